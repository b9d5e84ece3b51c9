"""``ckpm.aiter``: aiter's functions by their own names and parameters, over this project's kernels."""

from ckpm.attention.callers.aiter import *  # noqa: F403
from ckpm.attention.callers.aiter import __all__ as __all__

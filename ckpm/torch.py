"""``ckpm.torch``: operators for PyTorch, which must be installed."""

from ckpm.attention.callers.torch import dispatch_to as dispatch_to
from ckpm.attention.callers.torch import paged_prefill as paged_prefill
from ckpm.attention.callers.torch import varlen_attention as varlen_attention

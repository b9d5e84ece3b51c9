"""``ckpm.torch``: operators for PyTorch, which must be installed."""

from ckpm.attention.callers.torch import dispatch_to, paged_prefill, varlen_attention

__all__ = ["dispatch_to", "paged_prefill", "varlen_attention"]

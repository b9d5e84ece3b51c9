"""A problem as a caller poses it: sizes, strides and features of one attention call, without its numbers.

A :class:`Problem` is frozen and hashable: plans are kept by it. What it says about a sequence is its longest length;
the lengths themselves are arrays of the call. builder.py makes one step by step, validation.py refuses what
contradicts itself, shapes.py relates it to the matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

CHOICES: Mapping[str, tuple[str, ...]] = {
    "family": ("fwd", "fwd_splitkv", "fwd_pagedkv", "fwd_appendkv", "batch_prefill", "fwd_v3", "bwd_dq_dk_dv"),
    "dtype": ("fp32", "fp16", "bf16", "fp8", "fp8bf16", "fp8fp32"),
    "mode": ("batch", "group"),
    "layout": ("BSHD", "BHSD"),
    "vlayout": ("row", "col"),
    "mask": ("no", "top_left", "bottom_right", "window"),
    "bias": ("no", "bias", "alibi"),
    "qscale": ("no", "pertensor", "kv_blockscale"),
    "kv_layout": ("linear", "vectorized"),
    "kv_table": ("sglang", "vllm"),
    "rope": ("no", "inter", "half"),
}
ELEMENT_BYTES: Mapping[str, int] = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "fp8bf16": 1, "fp8fp32": 1}
PAGED = ("batch_prefill", "fwd_pagedkv")  # always over a paged cache


@dataclass(frozen=True, slots=True)
class Strides:
    """Elements from a sequence, head, row of a tensor to the next. The dims of a head lie one behind another."""

    batch: int
    nhead: int
    row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One call. Lengths are tokens.

    ``seqlen_q`` and ``seqlen_k`` are the longest of a batch; ``total_q`` and ``total_k`` the rows of Q and of
    contiguous K and V in group mode (0: ``batch`` times the longest). ``strides`` are given for q, k, v and o; one that
    is missing is contiguous in ``layout`` (group mode: [token, head, dim], pages: [page, token, head, dim]).

    ``page_size`` 0: K and V are contiguous. ``pool_pages`` are the pages of the cache, ``table_width`` entries of a
    row of a 2-D table (kv_table vllm). ``mask`` corners and windows are CK's, -1 is unbounded; ``sink_size`` leading
    keys are always seen, ``sink_logits`` a logit for each head is in the denominator. ``scale`` 0 is
    1/sqrt(hdim_q), ``logits_soft_cap`` 0 none. ``descales`` of Q, K and V are numbers where a kernel takes them so
    (batch prefill reads them from memory). ``ragged``: in batch mode, sequences have fewer keys than ``seqlen_k``.
    ``cu_seqlens``: lengths also come as running sums without padding. ``splits`` 0 is one stage;
    ``deterministic``, and ``dbias`` (the gradient of an elementwise bias is wanted), are of the backward pass.
    ``seqlen_knew`` rows are appended to a cache of ``seqlen_k``, ``rotary_dim`` of a head rotated.
    """

    family: str = "fwd"
    arch: str = "gfx950"
    dtype: str = "bf16"
    mode: str = "batch"
    batch: int = 1
    seqlen_q: int = 128
    seqlen_k: int = 128
    total_q: int = 0
    total_k: int = 0
    seqlen_knew: int = 0
    nhead_q: int = 1
    nhead_k: int = 1
    hdim_q: int = 128
    hdim_v: int = 128
    layout: str = "BSHD"
    vlayout: str = "row"
    strides: tuple[tuple[str, Strides], ...] = ()
    mask: str = "no"
    window_left: int = -1
    window_right: int = -1
    sink_size: int = 0
    sink_logits: bool = False
    bias: str = "no"
    alibi_per_batch: bool = False
    p_drop: float = 0.0
    dropout_seed: int = 0
    dropout_offset: int = 0
    store_randval: bool = False
    lse: bool = False
    logits_soft_cap: float = 0.0
    scale: float = 0.0
    qscale: str = "no"
    descales: tuple[float, float, float] = (1.0, 1.0, 1.0)
    ragged: bool = False
    page_size: int = 0
    pool_pages: int = 0
    table_width: int = 0
    kv_layout: str = "linear"
    kv_table: str = "sglang"
    cu_seqlens: bool = False
    dbias: bool = False
    deterministic: bool = False
    splits: int = 0
    rope: str = "no"
    rotary_dim: int = 0

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.dtype]

    @property
    def vector(self) -> int:
        """Elements of a 16-byte load: the x of the vectorized layouts."""
        return 16 // self.element_bytes

    @property
    def rows_q(self) -> int:
        """Rows of Q and O over all sequences."""
        return self.total_q or self.batch * self.seqlen_q

    @property
    def rows_k(self) -> int:
        """Rows of contiguous K and V over all sequences."""
        return self.total_k or self.batch * self.seqlen_k

    @property
    def softmax_scale(self) -> float:
        return self.scale or float(self.hdim_q) ** -0.5

    def stride(self, tensor: str) -> Strides:
        """Of q, k, v or o: as given, or contiguous."""
        return dict(self.strides).get(tensor) or self._contiguous(tensor)

    def _contiguous(self, tensor: str) -> Strides:
        heads, hdim, length = self.extent(tensor)
        if tensor in ("k", "v") and self.page_size:
            page = length * heads * hdim
            if self.kv_layout == "vectorized":
                return Strides(page, length * hdim, self.vector if tensor == "k" else hdim)
            return Strides(page, hdim, heads * hdim)
        return self.contiguous(heads, hdim, length)

    def contiguous(self, heads: int, hdim: int, length: int) -> Strides:
        """Of a tensor without gaps and pages, with ``length`` rows of a sequence."""
        if self.mode == "group":
            return Strides(0, hdim, heads * hdim)
        if self.layout == "BHSD":
            return Strides(heads * length * hdim, length * hdim, hdim)
        return Strides(length * heads * hdim, hdim, heads * hdim)

    def extent(self, tensor: str) -> tuple[int, int, int]:
        """Heads, elements of a head, and rows of a sequence (of a page; of all sequences in group mode)."""
        ours = tensor in ("q", "o")
        heads = self.nhead_q if ours else self.nhead_k
        hdim = self.hdim_q if tensor in ("q", "k") else self.hdim_v
        if not ours and self.page_size:
            return heads, hdim, self.page_size
        if self.mode == "group":
            return heads, hdim, self.rows_q if ours else self.rows_k
        return heads, hdim, self.seqlen_q if ours else self.seqlen_k

"""One attention call as data: sizes, strides and features, without its numbers.

A :class:`Problem` is frozen and hashable, a key for plans. It has the longest length of its sequences; the lengths
themselves are arrays of the call. case.py adds what suites need: lengths, numbers, checks. serving.py decides which
kernels serve it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from ckpm.matrix.keys import MIXED_DTYPES, has_large_head

STEP = 128  # keys of one step of every batch-prefill tile of V2
MOST_SPLITS = 128  # of batch prefill: a lane of the wave that combines them has two
PAGED = ("batch_prefill", "fwd_pagedkv")  # always over a paged cache
NAMED = ("batch_prefill",)  # a launch may name its kernel
# Words as types, for signatures that type checkers and editors read.
Dtype = Literal["fp32", "fp16", "bf16", "fp8", "fp8bf16", "fp8fp32", "fp16kvfp8", "bf16kvfp8"]
Layout = Literal["BSHD", "BHSD"]
Mask = Literal["no", "top_left", "bottom_right", "window"]
KvLayout = Literal["linear", "vectorized"]
# The bytes of an element of K and V.
ELEMENT_BYTES: Mapping[str, int] = {**dict.fromkeys(get_args(Dtype), 1), "fp32": 4, "fp16": 2, "bf16": 2}


def tensor_dtypes(dtype: str) -> tuple[str, str, str]:
    """The dtypes of the elements of Q, of K and V, and of O."""
    if dtype in MIXED_DTYPES:
        own = dtype.removesuffix("kvfp8")
        return own, "fp8", own
    return dtype, dtype, {"fp8bf16": "bf16", "fp8fp32": "fp32"}.get(dtype, dtype)


# The fields with the rows of a sequence, and the elements of a row, of each tensor that kernels of CK view whole.
_VIEWS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("q", "dq", "dq_acc"), ("seqlen_q", "hdim_q")),
    **dict.fromkeys(("o", "dout"), ("seqlen_q", "hdim_v")),
    **{"k": ("seqlen_k", "hdim_q"), "dk": ("seqlen_k", "hdim_q")},
    **{"v": ("seqlen_k", "hdim_v"), "dv": ("seqlen_k", "hdim_v")},
    "bias": ("seqlen_q", "seqlen_k"),
}

CHOICES: Mapping[str, tuple[str, ...]] = {
    "family": ("fwd", "fwd_splitkv", "fwd_pagedkv", "fwd_appendkv", "batch_prefill", "fwd_v3", "bwd_dq_dk_dv"),
    "dtype": get_args(Dtype),
    "mode": ("batch", "group"),
    "layout": get_args(Layout),
    "vlayout": ("row", "col"),
    "mask": get_args(Mask),
    "bias": ("no", "bias", "alibi"),
    "qscale": ("no", "pertensor", "kv_blockscale", "perhead"),  # perhead: K's and V's, of each KV head
    "kv_layout": get_args(KvLayout),
    "kv_table": ("sglang", "vllm"),
    "rope": ("no", "inter", "half"),
    "v3": ("any", "on", "off"),  # on: a V3 kernel must serve it; off: V3 is turned off for the launch
}


@dataclass(frozen=True, slots=True)
class Strides:
    """The elements from a sequence, head or row of a tensor to the next. The dims of a head are contiguous."""

    batch: int
    nhead: int
    row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One attention call, as all families take it. Lengths are tokens; 0 or "no" leaves a feature out."""

    family: str = "fwd"
    arch: str = "gfx950"
    dtype: str = "bf16"
    mode: str = "batch"
    batch: int = 1
    seqlen_q: int = 128  # longest of the batch
    seqlen_k: int = 128  # longest of the batch
    total_q: int = 0  # group mode: rows of Q; 0: batch * seqlen_q
    total_k: int = 0  # group mode: rows of contiguous K and V; 0: batch * seqlen_k
    seqlen_knew: int = 0  # rows appended to a cache of seqlen_k
    nhead_q: int = 1
    nhead_k: int = 1
    hdim_q: int = 128
    hdim_v: int = 128
    layout: str = "BSHD"  # group mode is always [token, head, dim], pages [page, token, head, dim]
    vlayout: str = "row"
    strides: tuple[tuple[str, Strides], ...] = ()  # of q, k, v, o, lse, bias, randval; others are contiguous
    mask: str = "no"
    window_left: int = -1  # as in CK; -1: unbounded
    window_right: int = -1
    sink_size: int = 0  # leading keys seen beside a window; not by queries from seqlen_k on
    sink_logits: bool = False  # a logit for each head is added to the denominator
    bias: str = "no"
    alibi_per_batch: bool = False
    p_drop: float = 0.0
    dropout_seed: int = 0
    dropout_offset: int = 0
    store_randval: bool = False
    lse: bool = False
    logits_soft_cap: float = 0.0
    scale: float = 0.0  # 0: 1 / sqrt(hdim_q)
    qscale: str = "no"
    descales: tuple[float, float, float] = (1.0, 1.0, 1.0)  # of Q, K, V; batch prefill reads its own from memory
    ragged: bool = False  # batch mode: sequences have fewer keys than seqlen_k
    page_size: int = 0  # 0: K and V are contiguous
    pool_pages: int = 0  # pages of the cache
    table_width: int = 0  # entries of a row of a 2-D table (kv_table vllm)
    kv_layout: str = "linear"
    kv_table: str = "sglang"
    cu_seqlens: bool = False  # lengths also come as running sums without padding
    dbias: bool = False  # backward: compute the gradient of an elementwise bias
    deterministic: bool = False  # backward
    splits: int = 0  # of split-KV; 0: one stage. With split_keys: the most of a sequence; 0: as many as seqlen_k has
    split_keys: int = 0  # of batch prefill: the fewest keys that one workgroup takes; 0: all
    rope: str = "no"
    rotary_dim: int = 0  # leading part of a head that is rotated
    min_seqlen_q: int = 0  # above 0: a kernel that skips sequences with no more queries
    tile_rows: int = 0  # rows of the kernel's tile, which is then named at launch; 0: dispatch chooses
    v3: str = "any"
    batch_invariant: bool = False  # a sequence's bits don't depend on the rest of the batch

    @property
    def element_bytes(self) -> int:
        """The bytes of an element of K and V."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def q_dtype(self) -> str:
        """The dtype of Q's elements."""
        return tensor_dtypes(self.dtype)[0]

    @property
    def kv_dtype(self) -> str:
        """The dtype of K's and V's elements."""
        return tensor_dtypes(self.dtype)[1]

    @property
    def o_dtype(self) -> str:
        """The dtype of O's elements."""
        return tensor_dtypes(self.dtype)[2]

    @property
    def scales_q(self) -> bool:
        """Return True if Q has a descale, too."""
        return self.qscale != "no" and self.dtype not in MIXED_DTYPES

    @property
    def vector(self) -> int:
        """The elements of a 16-byte load of K and V: the x of the vectorized layouts."""
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

    @property
    def lengths(self) -> tuple[tuple[int, int], ...]:
        """The queries and keys of each sequence, here the longest ones: the lengths are on the device."""
        return ((self.seqlen_q, self.seqlen_k),) * self.batch

    @property
    def whole_steps(self) -> bool:
        """Return True if the keys of each sequence fill whole steps of a kernel."""
        return self.seqlen_k > 0 and self.seqlen_k % STEP == 0 and not self.ragged

    @property
    def key_splits(self) -> int:
        """The splits of the longest sequence in batch prefill, 0 if keys are not split. An empty sequence has one."""
        if not self.split_keys:
            return 0
        whole = -(-max(self.seqlen_k, 1) // self.split_keys)
        return min(whole, self.splits or whole)

    @property
    def head_rows(self) -> int:
        """The rows of a head in LSE, bias and random values: a sequence's in batch mode, all in group mode."""
        return self.seqlen_q if self.mode == "batch" else self.rows_q

    @property
    def stores_random(self) -> bool:
        """Return True if the kernel writes dropout's random bytes."""
        return self.p_drop > 0 and self.store_randval

    def page_elements(self, tensor: str) -> int:
        """Elements from one page to the next of tensor ``k`` or ``v``."""
        return self.stride(tensor).batch

    @property
    def pool_bytes(self) -> int:
        """Bytes of the larger of the pools of K and V."""
        return self.pool_pages * max(self.page_elements("k"), self.page_elements("v")) * self.element_bytes

    @property
    def span_bytes(self) -> int:
        """The most bytes that a kernel of CK reaches from one address: a sequence's rows of a tensor, or all splits.

        Pages have an address each. The kernels that add up the accumulators of splits view all splits together.
        """
        tensors = ("q", "o", *(() if self.page_size else ("k", "v")), *(("bias",) if self.bias == "bias" else ()))
        strides = {tensor: self.stride(tensor) for tensor in tensors}
        if self.family.startswith("bwd"):
            strides |= self.gradients
        sizes = {"q": ELEMENT_BYTES[self.q_dtype], "o": ELEMENT_BYTES[self.o_dtype], "dq_acc": 4}
        sizes["bias"] = 4 if self.dtype == "fp8bf16" else ELEMENT_BYTES[self.q_dtype]
        lengths = {"seqlen_q": min(self.seqlen_q, self.rows_q), "seqlen_k": min(self.seqlen_k, self.rows_k)}
        spans: dict[str, int] = {}
        for tensor, of_tensor in strides.items():
            length, elements = _VIEWS[tensor]
            reach = (lengths[length] - 1) * of_tensor.row + getattr(self, elements)
            spans[tensor] = reach * sizes.get(tensor, self.element_bytes)
        split = self.nhead_q * self.rows_q * 4
        if self.splits and not self.split_keys:
            spans["o_acc"] = ((self.splits - 1) * split + self.seqlen_q * 4) * self.hdim_v
        elif self.deterministic and "dq_acc" in spans:
            keys = 64 if self.hdim_q > 128 or self.dtype == "fp32" else 128  # of a tile, whose dQ is a split
            spans["dq_acc"] += (-(-self.seqlen_k // keys) - 1) * split * self.hdim_q
        return max(spans.values())

    @property
    def fewest_queries(self) -> int:
        """The fewest queries that the sequence with the most keys may have: in group mode ``seqlen_q`` is a bound."""
        return min(self.seqlen_q, 1) if self.mode == "group" else self.seqlen_q

    @property
    def window_start(self) -> int:
        """The first key that the last tile of 64 queries with any keys sees through a window; 0 without a window."""
        if self.mask == "no" or self.window_left < 0:
            return 0
        aligned = self.mask != "top_left"
        queries = self.fewest_queries if aligned else self.seqlen_q
        ahead = self.seqlen_k - queries if aligned else 0
        last = min(queries - 1, self.seqlen_k - 1 + self.window_left - ahead)
        return max(last // 64 * 64 + ahead - self.window_left, 0)

    def stride(self, tensor: str) -> Strides:
        """The strides of q, k, v, o, lse, bias or randval, by default contiguous."""
        return dict(self.strides).get(tensor) or self._contiguous(tensor)

    def _contiguous(self, tensor: str) -> Strides:
        if tensor in ("lse", "bias", "randval"):
            row = 1 if tensor == "lse" else self.seqlen_k
            head = self.head_rows * row
            return Strides(self.nhead_q * head if self.mode == "batch" else 0, head, row)
        heads, hdim, length = self.extent(tensor)
        if tensor in ("k", "v") and self.page_size:
            page = length * heads * hdim
            if self.kv_layout == "vectorized":
                return Strides(page, length * hdim, self.vector if tensor == "k" else hdim)
            return Strides(page, hdim, heads * hdim)
        return self.contiguous(heads, hdim, length)

    def contiguous(self, heads: int, hdim: int, length: int) -> Strides:
        """Strides of a tensor without gaps and pages, with ``length`` rows of a sequence."""
        if self.mode == "group":
            return Strides(0, hdim, heads * hdim)
        if self.layout == "BHSD":
            return Strides(heads * length * hdim, length * hdim, hdim)
        return Strides(length * heads * hdim, hdim, heads * hdim)

    @property
    def gradients(self) -> dict[str, Strides]:
        """The strides of dO and of the gradients, which are contiguous. dK and dV have a head for each query head."""
        rows = {"seqlen_q": self.extent("q")[2], "seqlen_k": self.extent("k")[2]}
        views = {tensor: _VIEWS[tensor] for tensor in ("dout", "dq", "dq_acc", "dk", "dv")}
        return {
            tensor: self.contiguous(self.nhead_q, getattr(self, elements), rows[length])
            for tensor, (length, elements) in views.items()
        }

    def extent(self, tensor: str) -> tuple[int, int, int]:
        """The heads, the elements of a head, and the rows of a sequence, a page, or all sequences in group mode."""
        of_queries = tensor in ("q", "o")
        heads = self.nhead_q if of_queries else self.nhead_k
        hdim = self.hdim_q if tensor in ("q", "k") else self.hdim_v
        if not of_queries and self.page_size:
            return heads, hdim, self.page_size
        if self.mode == "group":
            return heads, hdim, self.rows_q if of_queries else self.rows_k
        return heads, hdim, self.seqlen_q if of_queries else self.seqlen_k


# In 16 bits launches of more queries than a tile of V2 has are V3's, by our dispatch too (families/batch_prefill.py).
V2_MOST_16BIT_ROWS = 128


def loads(problem: Problem) -> tuple[str, ...]:
    """The load modes of which a tree's selector may choose one for the problem. A library needs a kernel of each.

    A page of kN0 = 128 tokens or more has a descriptor of its own: 32-bit loads. Smaller pages need 64-bit loads in a
    pool over INT32_MAX bytes. In smaller pools versions differ. The first selector takes 32-bit loads. The next takes
    64-bit loads if the low half of the pool's address plus its bytes is over INT32_MAX. The newest takes 64-bit loads
    for every page of one token. Source: fmha_batch_prefill_select_kv_load_mode in upstream's fmha_fwd.hpp. Pools whose
    heads lie apart need 64-bit loads, which a launch has to name.
    """
    p = problem
    if p.page_size >= STEP:
        return ("bload",)
    own_only = p.split_keys or p.dtype in MIXED_DTYPES or has_large_head(max(p.hdim_q, p.hdim_v))
    if p.page_size == 1 and own_only:  # of ckpm alone, which has the newest selector
        return ("gload",)
    return ("gload",) if _heads_lie_apart(p) or p.pool_bytes > 2**31 - 1 else ("bload", "gload")


def _heads_lie_apart(p: Problem) -> bool:
    """Return True if a head's pages precede the next head's, as in vLLM's LHBNC. Selectors see the first head alone."""
    return p.nhead_k > 1 and any(strides.nhead > strides.batch for strides in map(p.stride, "kv"))


def needs_named_loads(problem: Problem) -> bool:
    """Return True if a selector may take 32-bit loads although only 64-bit loads reach all heads."""
    p = problem
    return 1 < p.page_size < STEP and p.pool_bytes <= 2**31 - 1 and _heads_lie_apart(p)


def is_tile_taken(when: str, batch: int, nhead_q: int, seqlen_q: int, compute_units: int) -> bool:
    """Return True if CK's dispatch takes a tile under its condition, a word of the dialect's tables.

    ``few_blocks`` is the tile of 64 rows: below 0.8 blocks of 128 rows a compute unit. ``few_compute_units``, with or
    without a gate to gfx942, is of rocm-libraries pull request 8492.
    """
    if when == "few_blocks":
        return batch * nhead_q * -(-seqlen_q // 128) < 0.8 * compute_units
    return not when.startswith("few_compute_units") or compute_units < 128


def launch_seqlen_k(problem: Problem) -> int:
    """The host's seqlen_k in batch mode, by which dispatch decides on padding of keys.

    The kernel takes each length from the table. If seqlen_k is a multiple of kN0 = 128, dispatch assumes that every
    length is. For ragged lengths it is therefore the longest + 1.
    """
    longest = problem.seqlen_k
    return longest if problem.whole_steps or longest % STEP else longest + 1


def mask_corner(problem: Problem, seqlen_q: int, seqlen_k: int) -> tuple[int, int]:
    """The (y, x) of CK's masks: row r sees columns c with r - y < c < r + x and c < seqlen_k. See block_masking.hpp."""
    top_left = problem.mask == "top_left"
    left = problem.window_left if problem.window_left >= 0 else (seqlen_q if top_left else seqlen_k) - 1
    right = problem.window_right if problem.window_right >= 0 else (seqlen_k if top_left else seqlen_q) - 1
    shift = 0 if top_left else seqlen_k - seqlen_q
    return 1 + left - shift, 1 + right + shift


def launch_instructions(problem: Problem) -> int:
    """The approximate number of wave-instructions of one launch.

    A step of 64 x 128 scores at head dim 128 takes 4 waves of about 400 instructions; a workgroup takes 3000 more.
    """
    steps = groups = 0
    heads = problem.nhead_q // problem.nhead_k if problem.split_keys else 1  # of a workgroup
    for seqlen_q, seqlen_k in problem.lengths:
        y, x = mask_corner(problem, seqlen_q, seqlen_k)
        for row in range(0, seqlen_q * heads, 64):
            begin, end = (0, seqlen_k)
            if problem.mask != "no":
                begin, end = max(row // heads - y + 1, 0) // 128 * 128, min((row + 63) // heads + x, seqlen_k)
            steps += max(-(-(end - begin) // 128), 0)
            groups += 1
    return problem.nhead_q // heads * (steps * 1600 * max(problem.hdim_q, 128) // 128 + groups * 3000)

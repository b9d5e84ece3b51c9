"""A problem: one attention launch as data, from shapes to the byte where its KV pool begins.

Problems come from ``matrix/tables/problems`` (matrix.problems.tables). This module says what a problem is, which kernel
serves it (:func:`needed`), what it costs on an emulator (:func:`wave_instructions`), and which other problem must give
the same bits (:func:`counterpart`). Buffers are made of it by attention/launch/buffers.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from ckpm.matrix.keys import V3_PIPELINE, Key, is_v3

SUITES = ("batch-prefill", "large-kv", "page-fault", "dispatch", "sanitize")
FAMILY_SUITE = "kernels"  # of libraries of fwd's families: their cases come from the kernels and not from a table
TIERS = ("smoke", "full", "nightly")  # each contains the ones before it
_BELOW_4_GB = (1 << 32) - (1 << 28)
_KN0 = 128  # keys of one step of every batch-prefill tile of V2
_V3_HEAD_DIMS = ((128, 128), (192, 128))
ELEMENT_BYTES = {"fp16": 2, "bf16": 2, "fp8bf16": 1, "fp32": 4}

CHOICES: Mapping[str, tuple[str, ...]] = {
    "dtype": tuple(ELEMENT_BYTES),
    "mode": ("group", "batch"),
    "vlayout": ("row", "col"),
    "kv_layout": ("linear", "vectorized"),
    "kv_table": ("sglang", "vllm"),
    # K and V in two pools, page by page in one, or in two with gaps between pages, tokens and heads
    "storage": ("separate", "interleaved", "gaps"),
    # which physical pages the table names, and in which order
    "page_order": ("identity", "reversed", "scrambled", "high", "spread", "lines", "shared", "repeated"),
    # what follows the table's last valid entry: nothing, page 0, a page of NaNs, -1
    "table_end": ("exact", "zeros", "nan_page", "minus_one"),
    "placement": ("default", "low", "high", "crossing"),  # of the KV pools' base address; crossing: a 4 GB line inside
    "mask": ("no", "top_left", "bottom_right", "window"),
    "bias": ("no", "bias", "alibi"),
    "bias_values": ("random", "minus_inf_rows"),
    "qscale": ("no", "pertensor", "kv_blockscale"),
    # page_number: V names its page, so that a wrong page shows at once
    # peaks: one key in hdim_q outweighs a row's others by so much that a maximum that misses it overflows
    "values": ("random", "page_number", "peaks"),
    "null_output": ("no", "lse", "rand_val"),  # asked for, but its pointer is null
    "v3": ("any", "on", "off"),  # on: a V3 kernel must serve it; off: V3 is turned off for the launch
    "expect": ("ok", "unsupported", "refused"),
}
# What is looked at after the launch. The lower half compares two launches bit for bit (see counterpart).
CHECKS = (
    "reference",
    "nonzero",
    "nan_canary",  # pages that no table names and gaps hold NaN: none may reach O or LSE
    "nan_slack",  # so do the unused slots of last pages
    "output_gaps",  # rows and heads of the outputs have gaps between them, in which nothing may be written
    "guard_page",  # the bytes before and behind each input are not mapped: a read beside it faults
    "freed_pages",  # pages of the pools that no table names are not mapped
    "repeat_bitwise",
    "batch_invariance",  # each sequence of the batch alone
    "identity_vs_scrambled",
    "linear_vs_vectorized",
    "sglang_vs_vllm",
    "paged_vs_contiguous",  # the tokens of a sequence one behind the other, in pages of one token
    "exact_vs_padded",
    "v3_off",  # the same request with V3 turned off, which V2 serves, meets the reference, too
)
PAIRWISE = CHECKS[7:-1]
_MAPPED_BYTES = 4096  # at once, the smallest page of a GPU's memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One launch. Lengths are tokens per sequence; ``window_left``/``window_right`` are -1 where unbounded.

    ``pool_pages`` 0 means as many pages as are referenced and a few more. ``sequence_ids`` name the sequences' random
    streams: a sub-batch with the same ids holds the same numbers. ``scale`` 0 means 1/sqrt(hdim_q). ``tile_rows`` is
    the kM0 that the kernel must have (it is then named at launch), 0 leaves the tile to dispatch. ``seed`` is also
    dropout's; without ``store_randval`` the kernel keeps the random values to itself. ``k_page_scales`` and
    ``v_page_scales`` are factors of the numbers in a sequence's first, second, ... page, and so of its block scales;
    they start over when all are taken. Without them block scales depend on the physical page.
    """

    name: str
    suite: str
    tier: str
    group: str
    dtype: str = "bf16"
    mode: str = "group"
    seqlens_q: tuple[int, ...] = (64,)
    seqlens_k: tuple[int, ...] = (128,)
    sequence_ids: tuple[int, ...] = ()
    nhead_q: int = 1
    nhead_k: int = 1
    hdim_q: int = 128
    hdim_v: int = 128
    tile_rows: int = 0
    vlayout: str = "row"
    page_size: int = 1
    kv_layout: str = "linear"
    kv_table: str = "sglang"
    storage: str = "separate"
    page_order: str = "scrambled"
    table_end: str = "exact"
    pool_pages: int = 0
    placement: str = "default"
    mask: str = "no"
    window_left: int = -1
    window_right: int = -1
    sink_size: int = 0
    sink_logits: bool = False
    bias: str = "no"
    bias_values: str = "random"
    alibi_per_batch: bool = False
    logits_soft_cap: float = 0.0
    lse: bool = False
    p_drop: float = 0.0
    dropout_offset: int = 0
    store_randval: bool = True
    null_output: str = "no"
    v3: str = "any"
    qscale: str = "no"
    scale: float = 0.0
    values: str = "random"
    q_range: tuple[float, float] = (-2.0, 2.0)
    kv_range: tuple[float, float] = (-1.0, 1.0)
    k_page_scales: tuple[float, ...] = ()
    v_page_scales: tuple[float, ...] = ()
    seed: int = 0
    checks: tuple[str, ...] = ("reference", "nonzero")
    expect: str = "ok"

    @property
    def batch(self) -> int:
        return len(self.seqlens_q)

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.dtype]

    @property
    def vector(self) -> int:
        """Elements of a 16-byte load: the x of the vectorized layouts."""
        return 16 // self.element_bytes

    @property
    def ids(self) -> tuple[int, ...]:
        return self.sequence_ids or tuple(range(self.batch))

    @property
    def keys_ahead(self) -> int:
        """The most by which a sequence's keys outnumber its queries: so far right is the bottom-right diagonal."""
        return max(keys - queries for queries, keys in zip(self.seqlens_q, self.seqlens_k, strict=True))

    @property
    def softmax_scale(self) -> float:
        return self.scale or float(self.hdim_q) ** -0.5

    def pages_of(self, sequence: int) -> int:
        return -(-self.seqlens_k[sequence] // self.page_size)


def complaint(problem: Problem) -> str | None:
    """Why no buffers can be made of the problem or no CK means anything by it; None if it is well formed."""
    p = problem
    if not p.seqlens_q or len(p.seqlens_q) != len(p.seqlens_k) or len(p.ids) != p.batch:
        return "seqlens_q, seqlens_k and sequence_ids must name the same number of sequences, at least one"
    if min(*p.seqlens_q, *p.seqlens_k, p.nhead_q - 1, p.nhead_k - 1, p.hdim_q - 1, p.hdim_v - 1, p.page_size - 1) < 0:
        return "a length is negative, or a count of heads, dims or tokens a page is not positive"
    if unknown := [check for check in p.checks if check not in CHECKS]:
        return f"unknown check '{unknown[0]}'; known: {', '.join(CHECKS)}"
    if p.mode == "batch" and len(set(p.seqlens_q)) > 1:
        return "batch mode has one seqlen_q for all sequences"
    if p.expect != "ok":
        return None
    return _combination_complaint(p)


def _combination_complaint(p: Problem) -> str | None:
    if p.nhead_q % p.nhead_k:
        return f"nhead_q {p.nhead_q} is no multiple of nhead_k {p.nhead_k}"
    if p.page_size & (p.page_size - 1):
        return f"page_size {p.page_size} is no power of two"
    if p.hdim_q % p.vector or p.hdim_v % p.vector:
        return f"head dims must be multiples of {p.vector} for {p.dtype}"
    if p.kv_layout == "vectorized" and (p.page_size % p.vector or p.vlayout == "col"):
        return f"a vectorized layout needs row-major V and pages of a multiple of {p.vector} tokens for {p.dtype}"
    if p.vlayout == "col" and (p.page_size > 1 or p.storage != "separate"):
        return "column-major V has page size 1 and a pool of its own"
    if (p.dtype == "fp8bf16") != (p.qscale != "no"):
        return "fp8bf16 needs a qscale, other dtypes have none"
    scales = (*p.k_page_scales, *p.v_page_scales)
    if scales and (p.qscale != "kv_blockscale" or p.page_order in ("shared", "repeated") or min(scales) <= 0):
        return "page scales are positive, and for block scales of pages of a sequence's own"
    if p.values == "peaks" and (p.qscale != "no" or p.page_order in ("shared", "repeated")):
        return "peaks are for tokens of a sequence's own, in a dtype that holds them without a scale"
    if p.mask == "no" and (p.window_left, p.window_right, p.sink_size) != (-1, -1, 0):
        return "a window or sink tokens need a mask"
    if p.pool_pages and p.page_order not in ("shared", "repeated"):
        total = sum(map(p.pages_of, range(p.batch)))
        if p.pool_pages < total:
            return f"a pool of {p.pool_pages} pages can't hold the {total} pages of the sequences"
    if "freed_pages" in p.checks and (why := _freed_pages_complaint(p)):
        return why
    if p.placement == "low" and (size := 2 * p.pool_pages * page_elements(p, "k") * p.element_bytes) > _BELOW_4_GB:
        return f"pools of {size} bytes don't fit below 4 GiB beside the program"
    if not 0 <= p.p_drop < 1 or p.logits_soft_cap < 0 or p.sink_size < 0:
        return "p_drop must be in [0, 1), logits_soft_cap and sink_size not negative"
    return None


def _freed_pages_complaint(p: Problem) -> str | None:
    if "nan_canary" in p.checks:
        return "freed_pages maps no page that nan_canary could fill with NaN"
    sizes = {page_elements(p, tensor) * p.element_bytes for tensor in ("k", "v")}
    if p.storage != "separate" or p.vlayout == "col" or any(size % _MAPPED_BYTES for size in sizes):
        return f"freed_pages needs pools of their own with pages of a multiple of {_MAPPED_BYTES} bytes"
    return None


def page_elements(problem: Problem, tensor: str) -> int:
    """Elements from one page to the next of tensor ``k`` or ``v``: the page stride."""
    row = problem.page_size * problem.nhead_k
    if problem.storage == "interleaved":
        return row * (problem.hdim_q + problem.hdim_v)
    own = row * (problem.hdim_q if tensor == "k" else problem.hdim_v)
    return 2 * own if problem.storage == "gaps" else own


def needed(problem: Problem) -> dict[str, frozenset[Any]]:
    """Key field -> the values of which a kernel must have one to serve the problem. Fields left out don't matter.

    None stands for a field that the dialect doesn't know, which is right where the problem asks for its neutral value.
    """
    p = problem
    values: dict[str, frozenset[Any]] = {
        "dtype": frozenset((p.dtype,)),
        "hdim_q": _head_dims(p),
        "mode": frozenset((p.mode,)),
        "vlayout": frozenset((p.vlayout,)),
        "logits": frozenset((p.logits_soft_cap > 0,)),
        "bias": frozenset((p.bias,)),
        "mask": _masks(p),
        "lse": frozenset((p.lse,)),
        "dropout": frozenset((p.p_drop > 0,)),
        "qscale": frozenset((p.qscale,)),
        "sink": frozenset((True,)) if p.sink_size else frozenset((False, None)),
        "page_size": frozenset((p.page_size, None) if p.page_size == 1 else (p.page_size,)),
        "kv_layout": frozenset((p.kv_layout, None) if p.kv_layout == "linear" else (p.kv_layout,)),
        "kv_table": frozenset((p.kv_table, None) if p.kv_table == "sglang" else (p.kv_table,)),
    }
    if p.sink_logits:  # a pointer that no key field tells of; the CK of 2026 that takes it is told by its page sizes
        values["page_size"] -= {None}
    if p.v3 != "any" or p.sink_logits:  # V3 has no sinks
        values["pipeline"] = frozenset((V3_PIPELINE if p.v3 == "on" else "qr_async",))
    if p.tile_rows:
        values["tile.bm0"] = frozenset((p.tile_rows,))
    if p.mode == "batch":
        values["pad"] = frozenset(("psddv" if launch_seqlen_k(p) and launch_seqlen_k(p) % 128 == 0 else "psskddv",))
    elif (p.hdim_q, p.hdim_v) not in _V3_HEAD_DIMS:
        values["pad"] = frozenset(("psskddv",))  # V3 pads no head dim
    values["load"] = frozenset((*loads(p), None))
    return values


def loads(problem: Problem) -> tuple[str, ...]:
    """The load modes of which a tree's selector may choose one for the problem; a library needs a kernel of each.

    A page of kN0 = 128 tokens or more has a descriptor of its own: 32-bit loads. Smaller pages need 64-bit loads in a
    pool over INT32_MAX bytes. In smaller pools the ages differ: the first selector takes 32-bit loads, the next 64-bit
    ones if the low half of the pool's address plus its bytes is over INT32_MAX, the newest 64-bit ones for every page
    of one token. Source: fmha_batch_prefill_select_kv_load_mode in upstream's fmha_fwd.hpp.
    """
    p = problem
    if p.page_size >= _KN0:
        return ("bload",)
    pool = p.pool_pages * max(page_elements(p, "k"), page_elements(p, "v")) * p.element_bytes
    return ("gload",) if pool > 2**31 - 1 else ("bload", "gload")


def _head_dims(p: Problem) -> frozenset[int]:
    """hdim_q of the kernels that hold the problem's head dims: dispatch takes the first that a library has.

    Only our own ckpm-extended has 64 and 192 (with 128 of V), which may lack what 128 and 256 have.
    """
    largest = max(p.hdim_q, p.hdim_v)
    if largest <= 64:
        return frozenset((64, 128))
    if largest <= 128:
        return frozenset((128,))
    if p.hdim_q <= 192 and p.hdim_v <= 128:
        return frozenset((192, 256))
    return frozenset((256 if largest <= 256 else largest,))


def _masks(p: Problem) -> frozenset[str]:
    """Masks of both sets. The generic set's causal kernel has no left bound: a left window needs its `generic` one."""
    if p.mask == "no":
        return frozenset(("no",))
    if p.mask == "window":
        return frozenset(("mask", "generic"))
    return frozenset(("mask", "causal") if p.window_left < 0 else ("mask",))


def launch_seqlen_k(problem: Problem) -> int:
    """The seqlen_k told to the host in batch mode, where dispatch reads from it whether key padding is needed.

    The kernel itself takes each length from the table. A multiple of kN0 = 128 promises that all of them are, so
    ragged lengths must not give one.
    """
    longest = max(problem.seqlens_k)
    whole = all(length and length % 128 == 0 for length in problem.seqlens_k)
    return longest if whole or longest % 128 else longest + 1


def serves(key: Key, problem: Problem) -> bool:
    """Whether the kernel has every feature that the problem needs."""
    return bool(serving((key,), problem))


def serving(keys: Iterable[Key], problem: Problem) -> list[Key]:
    """Those of the kernels that have every feature that the problem needs, in the order given."""
    left = list(keys)
    for field, values in needed(problem).items():
        left = _having(left, field, values, problem)
    return left


def _having(keys: list[Key], field: str, values: frozenset[Any], problem: Problem) -> list[Key]:
    """The keys of which a field has one of the values. V3 has descriptors for pages, which reach every pool."""
    value = attrgetter(field)
    if field != "load":
        return [key for key in keys if value(key) in values]
    return [key for key in keys if key.load in values or (is_v3(key.pipeline) and key.load == "bload")]


def measured(keys: Iterable[Key], problem: Problem) -> str | None:
    """The name of the kernel whose figures a served problem gives; None where dispatch chooses it.

    The problem names the tile. Of two load modes it is the one that the newest selectors take for pages of one token,
    wherever their pool is: 64 bits (see :func:`loads`).
    """
    able = serving(keys, problem) if problem.tile_rows else []
    wide = [key for key in able if key.load == "gload" and problem.page_size == 1]
    return next((key.name for key in (*wide, *able)), None)


def missing(keys: Iterable[Key], problem: Problem) -> str | None:
    """Why none of a library's kernels serves the problem, in one line; None if one does."""
    if (lack := lacking(keys, problem)) is None:
        return None
    field, values, others = lack
    return f"no kernel with {field} {in_words(values)} among {len(others)} that fit otherwise"


def lacking(keys: Iterable[Key], problem: Problem) -> tuple[str, frozenset[Any], list[Key]] | None:
    """The key field that none of the kernels has as the problem needs it, what it needs, and those that fit otherwise.

    None if a kernel serves the problem.
    """
    left = list(keys)
    for field, values in needed(problem).items():
        before, left = left, _having(left, field, values, problem)
        if not left:
            return field, values, before
    return None


def in_words(values: frozenset[Any]) -> str:
    """Values of a key field of which a problem needs one."""
    return " or ".join(sorted(str(value) for value in values if value is not None)) or "none"


def missing_load(keys: Iterable[Key], problem: Problem) -> str | None:
    """The load mode that dispatch may choose for the problem and that none of the serving kernels has; None if none.

    A dialect without load modes misses none.
    """
    there = {key.load for key in serving(keys, problem)}
    return None if None in there else next((load for load in loads(problem) if load not in there), None)


def refused_for(load: str) -> str:
    """What a refusal by a library means that lacks the kernels of a load mode (:func:`missing_load`)."""
    return f"dispatch asks for a {load} kernel, and this library has none that fits"


def mask_corner(problem: Problem, seqlen_q: int, seqlen_k: int) -> tuple[int, int]:
    """CK's (y, x): row r sees columns c with r - y < c < r + x (and c < seqlen_k). See block_masking.hpp."""
    top_left = problem.mask == "top_left"
    left = problem.window_left if problem.window_left >= 0 else (seqlen_q if top_left else seqlen_k) - 1
    right = problem.window_right if problem.window_right >= 0 else (seqlen_k if top_left else seqlen_q) - 1
    shift = 0 if top_left else seqlen_k - seqlen_q
    return 1 + left - shift, 1 + right + shift


def wave_instructions(problem: Problem) -> int:
    """About how many wave-instructions all launches of the problem take: the emulator's cost.

    A step of 64 x 128 scores at head dim 128 takes 4 waves some 400 instructions each, a workgroup 3000 besides.
    """
    steps = groups = 0
    for seqlen_q, seqlen_k in zip(problem.seqlens_q, problem.seqlens_k, strict=True):
        y, x = mask_corner(problem, seqlen_q, seqlen_k)
        for top in range(0, seqlen_q, 64):
            begin, end = (0, seqlen_k)
            if problem.mask != "no":
                begin, end = max(top - y + 1, 0) // 128 * 128, min(top + 63 + x, seqlen_k)
            steps += max(-(-(end - begin) // 128), 0)
            groups += 1
    launches = 1 + sum(check in (*PAIRWISE, "v3_off") for check in problem.checks)
    one = steps * 1600 * max(problem.hdim_q, 128) // 128 + groups * 3000
    return launches * problem.nhead_q * one if problem.expect == "ok" else 0


def counterpart(problem: Problem, check: str, sequence: int = -1) -> Problem:
    """The problem whose launch must give the same bits; ``batch_invariance`` takes one ``sequence`` alone.

    Compare with the same kernel named at launch: another batch may make dispatch choose another tile.

    Raises:
        KeyError: the check compares nothing.
    """
    changes: dict[str, dict[str, Any]] = {
        "repeat_bitwise": {},
        "identity_vs_scrambled": {
            "page_order": "identity" if problem.page_order != "identity" else "scrambled",
            "pool_pages": 0,
        },
        "linear_vs_vectorized": {"kv_layout": "linear" if problem.kv_layout == "vectorized" else "vectorized"},
        "sglang_vs_vllm": {"kv_table": "sglang" if problem.kv_table == "vllm" else "vllm"},
        "paged_vs_contiguous": {
            **{"page_size": 1, "kv_layout": "linear", "kv_table": "sglang", "page_order": "identity", "pool_pages": 0},
        },
        "exact_vs_padded": {"table_end": "zeros" if problem.table_end == "exact" else "exact"},
        "batch_invariance": {
            "seqlens_q": (problem.seqlens_q[sequence],),
            "seqlens_k": (problem.seqlens_k[sequence],),
            "sequence_ids": (problem.ids[sequence],),
        },
    }
    return dataclasses.replace(problem, name=f"{problem.name}~{check}", **changes[check])

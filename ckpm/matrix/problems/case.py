"""A case: a problem of suites, gates and the timing model, with lengths of sequences, numbers and checks.

Cases come from ``matrix/problems`` (:mod:`ckpm.matrix.problems.tables`) or are made from a kernel's key
(ckpm/kernels/families). This module also has its cost on an emulator (:func:`wave_instructions`) and the case that must
give the same bits (:func:`counterpart`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ckpm.matrix.keys import ANY_PAGE, FP8_KV_DTYPES, MIXED_DTYPES, takes_pages
from ckpm.matrix.problems.problem import CHOICES as PROBLEM_CHOICES
from ckpm.matrix.problems.problem import STEP, Problem, launch_instructions
from ckpm.matrix.sessions import sessions

SUITES = sessions().table_suites
TIERS = ("smoke", "full", "nightly")  # each contains the ones before it
_BELOW_4_GB = (1 << 32) - (1 << 28)

CHOICES: Mapping[str, tuple[str, ...]] = {
    "dtype": ("fp16", "bf16", "fp8bf16", "fp32", *MIXED_DTYPES),
    **{name: PROBLEM_CHOICES[name] for name in ("mode", "vlayout", "kv_layout", "kv_table")},
    # K and V in two pools, page by page in one, or in two with gaps between pages, tokens and heads. Of linear pages:
    # two pools of [page, head, token, dim], or one of them with a token's K and V side by side; or one pool of K, whose
    # first columns are V
    "storage": ("separate", "interleaved", "gaps", "heads_first", "packed", "latent"),
    # the physical pages in the table, and their order
    "page_order": ("identity", "reversed", "scrambled", "high", "spread", "lines", "shared", "repeated"),
    # after the table's last valid entry: nothing, page 0, a page of NaNs, -1
    "table_end": ("exact", "zeros", "nan_page", "minus_one"),
    "placement": ("default", "low", "high", "crossing"),  # of the KV pools' base address; crossing: a 4 GB line inside
    **{name: PROBLEM_CHOICES[name] for name in ("mask", "bias")},
    "bias_values": ("random", "minus_inf_rows"),
    "qscale": PROBLEM_CHOICES["qscale"],
    # page_number: V names its page, so that a wrong page shows at once
    # peaks: one key in hdim_q outweighs a row's others by so much that a maximum that misses it overflows
    "values": ("random", "page_number", "peaks"),
    "null_output": ("no", "lse", "rand_val"),  # asked for, but its pointer is null
    "v3": PROBLEM_CHOICES["v3"],
    "expect": ("ok", "unsupported", "refused"),
}
# The checks of a launch. The lower half compares two launches bit for bit (see counterpart).
CHECKS = (
    "reference",
    "nonzero",
    "nan_canary",  # gaps and pages outside of the table hold NaN, which must not reach O or LSE
    "nan_slack",  # unused slots of last pages hold NaN
    "output_gaps",  # rows and heads of the outputs have gaps between them, in which nothing may be written
    "guard_page",  # the bytes before and after each input are not mapped: reading them faults
    "freed_pages",  # pages of the pools outside of the table are not mapped
    "repeat_bitwise",
    "batch_invariance",  # each sequence of the batch alone
    "batch_orders",  # the sequences in reverse order, and among others that are longer and shorter
    "identity_vs_scrambled",
    "linear_vs_vectorized",
    "sglang_vs_vllm",
    "paged_vs_contiguous",  # the tokens of a sequence one after the other, in pages of one token
    "exact_vs_padded",
    "v3_off",  # the request also meets the reference with V3 off, by V2
)
PAIRWISE = CHECKS[7:-1]
BATCH_CHECKS = ("batch_invariance", "batch_orders")  # PAIRWISE over several other batches (other_batches)
_MAPPED_BYTES = 4096  # at once, the smallest page of a GPU's memory


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteCase(Problem):
    """A problem with a name, in a tier of a suite.

    ``seqlens_q`` and ``seqlens_k`` are tokens per sequence; batch, longest lengths and totals follow from them.

    ``pool_pages`` 0 means the referenced pages and a few more. ``sequence_ids`` name the sequences' random
    streams: a sub-batch with the same ids has the same numbers. ``seed`` is also dropout's. ``k_page_scales`` and
    ``v_page_scales`` are factors of the numbers in a sequence's first, second, ... page, and so of its block scales;
    longer sequences repeat them. Without them block scales depend on the physical page.
    """

    name: str
    suite: str
    tier: str
    group: str
    family: str = "batch_prefill"
    mode: str = "group"
    seqlens_q: tuple[int, ...] = (64,)
    seqlens_k: tuple[int, ...] = (128,)
    sequence_ids: tuple[int, ...] = ()
    page_size: int = 1
    storage: str = "separate"
    page_order: str = "scrambled"
    table_end: str = "exact"
    placement: str = "default"
    bias_values: str = "random"
    store_randval: bool = True
    null_output: str = "no"
    values: str = "random"
    q_range: tuple[float, float] = (-2.0, 2.0)
    kv_range: tuple[float, float] = (-1.0, 1.0)
    k_page_scales: tuple[float, ...] = ()
    v_page_scales: tuple[float, ...] = ()
    seed: int = 0
    checks: tuple[str, ...] = ("reference", "nonzero")
    expect: str = "ok"

    def __post_init__(self) -> None:
        group, lengths = self.mode == "group", self.seqlens_k
        derived = {
            "batch": len(self.seqlens_q),
            "seqlen_q": max(self.seqlens_q, default=0),
            "seqlen_k": max(lengths, default=0),
            "total_q": sum(self.seqlens_q) if group else 0,
            "total_k": sum(lengths) if group and not self.page_size else 0,
            "dropout_seed": self.seed if self.p_drop else 0,
            "ragged": len({*lengths}) > 1,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        what = {
            "splits": self.splits,
            "splits of": self.split_keys,
            "mask": "" if self.mask == "no" else f"{self.mask} ({self.window_left}, {self.window_right})",
            "pages of": self.page_size if self.page_size > 1 else 0,
            "new keys": self.seqlen_knew,
            "rope": "" if self.rope == "no" else f"{self.rope} of {self.rotary_dim}",
        }
        more = "".join(f", {name} {value}" for name, value in what.items() if value)
        lengths = ", ".join(f"{q} x {k}" for q, k in self.lengths)
        return f"{self.mode} {lengths}, heads {self.nhead_q}/{self.nhead_k}, dims {self.hdim_q}/{self.hdim_v}{more}"

    @property
    def ids(self) -> tuple[int, ...]:
        return self.sequence_ids or tuple(range(self.batch))

    @property
    def keys_ahead(self) -> int:
        """The largest surplus of keys over queries in a sequence, by which the bottom-right diagonal is shifted."""
        return max(keys - queries for queries, keys in self.lengths)

    @property
    def fewest_queries(self) -> int:
        return min((queries for queries, keys in self.lengths if keys == self.seqlen_k), default=0)

    @property
    def lengths(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip(self.seqlens_q, self.seqlens_k, strict=True))

    @property
    def whole_steps(self) -> bool:
        return all(length and length % STEP == 0 for length in self.seqlens_k)

    def pages_of(self, sequence: int) -> int:
        return -(-self.seqlens_k[sequence] // self.page_size)

    @property
    def heads_first(self) -> bool:
        """Return True if pages are [head, token, dim]."""
        return self.storage in ("heads_first", "packed")

    def row_elements(self, tensor: str) -> int:
        """The elements of a token's row in a page: K's and V's of storage packed, K's alone of storage latent."""
        if self.storage == "packed":
            return self.hdim_q + self.hdim_v
        return self.hdim_q if tensor == "k" or self.storage == "latent" else self.hdim_v

    def page_elements(self, tensor: str) -> int:
        row = self.page_size * self.nhead_k
        if self.storage == "interleaved":
            return row * (self.hdim_q + self.hdim_v)
        own = row * self.row_elements(tensor)
        return 2 * own if self.storage == "gaps" else own

    def row(self) -> dict[str, Any]:
        """The fields that tables set, by name."""
        return {name: getattr(self, name) for name in _ROW}


_ROW = (
    *("name", "suite", "tier", "group", "dtype", "mode", "seqlens_q", "seqlens_k", "sequence_ids"),
    *("nhead_q", "nhead_k", "hdim_q", "hdim_v", "tile_rows", "splits", "split_keys"),
    *("vlayout", "page_size", "kv_layout"),
    *("kv_table", "storage", "page_order", "table_end", "pool_pages", "placement", "mask"),
    *("window_left", "window_right", "sink_size", "sink_logits", "bias", "bias_values"),
    *("alibi_per_batch", "logits_soft_cap", "lse", "p_drop", "dropout_offset", "store_randval"),
    *("null_output", "v3", "qscale", "scale", "values", "q_range", "kv_range", "k_page_scales"),
    *("v_page_scales", "seed", "checks", "expect"),
)


def complaint(problem: SuiteCase) -> str | None:
    """The reason why the problem can't have buffers, or no CK supports it; None for a well-formed problem."""
    p = problem
    if not p.seqlens_q or len(p.seqlens_q) != len(p.seqlens_k) or len(p.ids) != p.batch:
        return "seqlens_q, seqlens_k and sequence_ids must name the same number of sequences, at least one"
    if min(*p.seqlens_q, *p.seqlens_k, p.nhead_q - 1, p.nhead_k - 1, p.hdim_q - 1, p.hdim_v - 1, p.page_size - 1) < 0:
        return "a length is negative, or a count of heads, dims or tokens a page is not positive"
    if unknown := [check for check in p.checks if check not in CHECKS]:
        return f"unknown check '{unknown[0]}'; known: {', '.join(CHECKS)}"
    if p.mode == "batch" and len(set(p.seqlens_q)) > 1:
        return "batch mode has one seqlen_q for all sequences"
    if p.mode == "batch" and "batch_orders" in p.checks:
        return "batch_orders adds sequences of other lengths: it needs group mode"
    if p.expect != "ok":
        return None
    return _combination_complaint(p)


def _combination_complaint(p: SuiteCase) -> str | None:
    if p.nhead_q % p.nhead_k:
        return f"nhead_q {p.nhead_q} is not a multiple of nhead_k {p.nhead_k}"
    if p.page_size & (p.page_size - 1) and not takes_pages(ANY_PAGE, p.page_size):
        return f"page_size {p.page_size} is neither a power of two nor a multiple of 16"
    if p.hdim_q % p.vector or p.hdim_v % p.vector:
        return f"head dims must be multiples of {p.vector} for {p.dtype}"
    if p.kv_layout == "vectorized" and (p.page_size % p.vector or p.vlayout == "col"):
        return f"a vectorized layout needs row-major V and pages of a multiple of {p.vector} tokens for {p.dtype}"
    if p.storage in ("heads_first", "packed", "latent") and p.kv_layout != "linear":
        return f"storage {p.storage} has linear pages"
    if p.storage == "latent" and (p.hdim_v > p.hdim_q or p.values == "page_number"):
        return "in storage latent V is the first columns of K: it has no more, and no numbers of its own"
    if p.vlayout == "col" and (p.page_size > 1 or p.storage != "separate"):
        return "column-major V has page size 1 and a pool of its own"
    if why := scales_complaint(p):
        return why
    scales = (*p.k_page_scales, *p.v_page_scales)
    if scales and (p.qscale != "kv_blockscale" or p.page_order in ("shared", "repeated") or min(scales) < 0):
        return "page scales are not negative, and for block scales of pages of a sequence's own"
    if p.values == "peaks" and p.page_order in ("shared", "repeated"):
        return "peaks are for tokens of a sequence's own"
    if p.mask == "no" and (p.window_left, p.window_right, p.sink_size) != (-1, -1, 0):
        return "a window or sink tokens need a mask"
    if p.pool_pages and p.page_order not in ("shared", "repeated"):
        total = sum(map(p.pages_of, range(p.batch)))
        if p.pool_pages < total:
            return f"a pool of {p.pool_pages} pages can't hold the {total} pages of the sequences"
    if "freed_pages" in p.checks and (why := _freed_pages_complaint(p)):
        return why
    if p.placement == "low" and (size := 2 * p.pool_pages * p.page_elements("k") * p.element_bytes) > _BELOW_4_GB:
        return f"pools of {size} bytes don't fit below 4 GiB beside the program"
    if not 0 <= p.p_drop < 1 or p.logits_soft_cap < 0 or p.sink_size < 0:
        return "p_drop must be in [0, 1), logits_soft_cap and sink_size not negative"
    return None


def scales_complaint(problem: Problem) -> str | None:
    """The reason why no kernel has the problem's scales; None if its dtype and scales fit."""
    p = problem
    if (p.dtype in FP8_KV_DTYPES) != (p.qscale != "no"):
        return "fp8 needs a qscale, other dtypes have none"
    if p.qscale == "perhead" and p.dtype not in MIXED_DTYPES:
        return f"perhead scales are for {' and '.join(MIXED_DTYPES)}"
    return None


def _freed_pages_complaint(p: SuiteCase) -> str | None:
    if "nan_canary" in p.checks:
        return "freed_pages maps no page that nan_canary could fill with NaN"
    sizes = {p.page_elements(tensor) * p.element_bytes for tensor in ("k", "v")}
    if p.storage != "separate" or p.vlayout == "col" or any(size % _MAPPED_BYTES for size in sizes):
        return f"freed_pages needs pools of their own with pages of a multiple of {_MAPPED_BYTES} bytes"
    return None


def wave_instructions(case: SuiteCase) -> int:
    """The approximate number of wave-instructions of all launches of the case: the emulator's cost."""
    if case.expect != "ok":
        return 0
    launches = [case, *(case for check in case.checks if check in (*PAIRWISE, "v3_off") and check != "batch_orders")]
    if "batch_orders" in case.checks:
        launches += [other for _, other, _ in other_batches(case, "batch_orders")]
    return sum(map(launch_instructions, launches))


def other_batches(problem: SuiteCase, check: str) -> Iterator[tuple[str, SuiteCase, Mapping[int, int]]]:
    """Yield the batches of BATCH_CHECKS: a label, the problem, and the positions of ``problem``'s sequences in it.

    A batch among others has two further sequences before and between them: a longer one, and one of a few tokens.
    """
    p, own = problem, range(problem.batch)
    if check == "batch_invariance":
        yield from ((f" of sequence {sequence}", counterpart(p, check, sequence), {sequence: 0}) for sequence in own)
        return
    longer, shorter = (p.seqlen_q + 70, p.seqlen_k + 130), (5, 9)
    batches = {" reversed": [*reversed(own)], " among others": [longer, *own[1:], shorter, *own[:1]]}
    for label, members in batches.items():
        lengths = [p.lengths[member] if isinstance(member, int) else member for member in members]
        changes: dict[str, Any] = {
            "seqlens_q": tuple(q for q, _ in lengths),
            "seqlens_k": tuple(k for _, k in lengths),
            "sequence_ids": tuple(
                p.ids[member] if isinstance(member, int) else max(p.ids) + 1 + at for at, member in enumerate(members)
            ),
        }
        other = dataclasses.replace(p, name=f"{p.name}~{check}", **changes)
        yield label, other, {member: at for at, member in enumerate(members) if isinstance(member, int)}


def counterpart(problem: SuiteCase, check: str, sequence: int = -1) -> SuiteCase:
    """The problem whose launch must give the same bits; ``batch_invariance`` takes one ``sequence`` alone.

    Name the same kernel at both launches: for another batch, dispatch may choose another tile.
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
            **{"page_size": 1, "kv_layout": "linear", "kv_table": "sglang", "page_order": "identity", "pool_pages": 0}
        },
        "exact_vs_padded": {"table_end": "zeros" if problem.table_end == "exact" else "exact"},
        "batch_invariance": {
            "seqlens_q": (problem.seqlens_q[sequence],),
            "seqlens_k": (problem.seqlens_k[sequence],),
            "sequence_ids": (problem.ids[sequence],),
        },
    }
    return dataclasses.replace(problem, name=f"{problem.name}~{check}", **changes[check])

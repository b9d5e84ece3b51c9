"""Checks of a problem: sizes that fit, rules of the matrix, an address for each element."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from ckpm.base.errors import ProblemError, demand_type, did_you_mean
from ckpm.kernels.families.libraries import host, library_with
from ckpm.matrix.configurations.configuration import Configuration
from ckpm.matrix.configurations.limits import limits
from ckpm.matrix.configurations.report import findings
from ckpm.matrix.problems.case import scales_complaint
from ckpm.matrix.problems.problem import CHOICES, ELEMENT_BYTES, MOST_SPLITS, PAGED, STEP, Problem, Strides

_LARGEST = 2**31 - 1  # sizes and strides are int32 in the C ABI
_LONGEST = 2**29  # of Q and keys together: kernels add a window, and up to four bytes a key, in 32 bits
_QUERIES_IN_VIEW = 128  # of a tile, which kernels address by 32 bits
_MOST_SPLITS = 128
# A factor must be a normal float32. An error in a score's last digit is an error in its weight's exponent: above 2^16
# weights are wrong for moderate scores, and from about 1e10 infinite. The soft cap's tanh has the same limit.
_SMALLEST_FACTOR, _LARGEST_FACTOR = 2.0**-126, 2.0**16
_POSITIVE = ("batch", "nhead_q", "nhead_k", "hdim_q", "hdim_v")
_COUNTS = (
    *("seqlen_q", "seqlen_k", "total_q", "total_k", "seqlen_knew", "page_size", "pool_pages", "table_width"),
    *("sink_size", "splits", "dropout_seed", "dropout_offset", "rotary_dim", "tile_rows", "min_seqlen_q", "split_keys"),
)
_WINDOW = ("window_left", "window_right")
# words of PyTorch, FlashAttention and FlashInfer in lower case, by field
_ELSEWHERE: Mapping[str, dict[str, str]] = {
    "mask": {"causal": "bottom_right, or top_left", "none": "no"},
    "dtype": {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float8_e4m3fn": "fp8bf16"},
    "layout": {
        **dict.fromkeys(("nhd", "bnhd"), "BSHD"),
        **dict.fromkeys(("hnd", "bhnd"), "BHSD"),
        "thd": "BSHD, with cu_seqlens_q",
    },
}
_SIZES = (*_POSITIVE, *_COUNTS, *_WINDOW)
_RULE_MASKS = {"window": "generic"}
_WIDE = ("dropout_seed", "dropout_offset")  # 64 bits in the C ABI


def validate(problem: Problem) -> Problem:
    """Check a problem, and return it.

    Raises:
        ProblemError: a value has another type than its field's default, or a size doesn't fit the C ABI.
        ProblemError: two elements of a tensor have one address, or rows of a tile or page lie too far apart.
        ProblemError: the problem breaks rules of `ckpm validate`, or contradicts itself.
    """
    demand_type("the problem", problem, Problem, "ckpm.Problem(...), or ProblemBuilder's build()")
    _check_types(problem)
    _check_sizes(problem)
    if complaints := list(_unknown_words(problem)) or [*_contradictions(problem), *broken_rules(problem)]:
        raise ProblemError("the problem can't be posed:\n" + "\n".join(f"  {line}" for line in complaints))
    _check_strides(problem)
    return problem


def broken_rules(problem: Problem) -> list[str]:
    """The errors that `ckpm validate` reports for the problem, a line each.

    A problem has no algorithm, so rules about it find nothing. Rules that some kernel of CK breaks (``contradiction``)
    are left out: the registry decides whether such a kernel exists.
    """
    p = problem
    values: dict[str, Any] = {
        "arch": p.arch, "family": p.family, "dtype": p.dtype, "mode": p.mode, "hdim_q": p.hdim_q, "hdim_v": p.hdim_v,
        "vlayout": p.vlayout[:1], "mask": _RULE_MASKS.get(p.mask, p.mask), "bias": p.bias, "lse": p.lse,
        "logits": p.logits_soft_cap > 0, "dropout": p.p_drop > 0, "qscale": p.qscale, "rope": p.rope,
        "sink": p.sink_size > 0, "paged_kv": p.page_size > 0, "page_size": p.page_size,
    }  # fmt: skip
    all_findings = findings(Configuration(values, {}))
    return [
        f"{finding.text} ({finding.rule}: {finding.reason})"
        for finding in all_findings
        if finding.severity == "error" and not finding.contradiction
    ]


def _check_types(p: Problem) -> None:
    """Refuse values of other types. Sizes are left to _check_range."""
    for field in dataclasses.fields(Problem):
        value, kind = getattr(p, field.name), type(field.default)
        wanted = Real if kind is float else kind
        if field.name in _SIZES or (isinstance(value, wanted) and isinstance(value, bool) is (kind is bool)):
            continue
        raise ProblemError(f"{field.name} is {value!r}: it must be of type {kind.__name__}.", kind="dimension")
    if len(p.descales) != 3 or not all(isinstance(descale, Real) for descale in p.descales):
        raise ProblemError(f"descales are {p.descales!r}: they must be three numbers.", kind="dimension")
    if not all(isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], Strides) for pair in p.strides):
        raise ProblemError(f"strides are {p.strides!r}: they must be pairs of a name and Strides.", kind="dimension")


def _check_sizes(p: Problem) -> None:
    for name in _POSITIVE:
        _check_range(name, getattr(p, name), 1)
    for name in _COUNTS:
        _check_range(name, getattr(p, name), 0, 2**64 - 1 if name in _WIDE else _LARGEST)
    for name in _WINDOW:
        _check_range(name, getattr(p, name), -1)
    _check_range("batch * seqlen_q", p.rows_q, 0)
    if not p.page_size:  # pages have no row for each key, and a caller's longest length may be that of a list
        _check_range("batch * seqlen_k", p.rows_k, 0)
    _check_range("seqlen_q + seqlen_k", p.seqlen_q + p.seqlen_k, 0, _LONGEST)
    if p.family == "fwd_splitkv":
        _check_range("a split's O, in elements, of the whole batch,", p.rows_q * p.nhead_q * p.hdim_v, 0)
    _check_range("a sequence's new keys, in elements,", p.seqlen_knew * p.nhead_k * max(p.hdim_q, p.hdim_v), 0)
    if p.deterministic:
        _check_range("a split's dQ, in elements, of the whole batch,", p.rows_q * p.nhead_q * p.hdim_q, 0)


def _check_range(name: str, value: object, smallest: int, largest: int = _LARGEST) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not smallest <= value <= largest:
        raise ProblemError(
            f"{name} is {value!r}: it must be a whole number from {smallest} to {largest}.", kind="dimension"
        )


def _unknown_words(p: Problem) -> Iterator[str]:
    for name, choices in {**CHOICES, "arch": tuple(limits().archs)}.items():
        if getattr(p, name) not in choices:
            yield none_of(name, getattr(p, name), choices).removesuffix(".")


def none_of(field: str, word: str, choices: Iterable[str]) -> str:
    """A sentence about a wrong word of a field, with the nearest choice, or what replaces another library's word."""
    names = list(choices)
    own = ({name.lower(): name for name in names} | _ELSEWHERE.get(field, {})).get(word.lower())
    hint = f"; write {own}." if own else did_you_mean(word, names)
    return f"{field} '{word}' is none of {', '.join(names)}{hint}"


def _contradictions(p: Problem) -> Iterator[str]:
    if p.nhead_q % p.nhead_k:
        yield f"nhead_q {p.nhead_q} is not a multiple of nhead_k {p.nhead_k}"
    if p.mask == "no" and (p.window_left, p.window_right, p.sink_size) != (-1, -1, 0):
        yield "a window or sink tokens need a mask"
    if not 0 <= p.p_drop < 1 or np.float32(p.p_drop) == 1:
        yield f"p_drop {p.p_drop} is not in [0, 1), or is 1 in float32"
    yield from _unusable_scales(p)
    if p.store_randval and not p.p_drop:
        yield "store_randval needs dropout"
    if p.store_randval and p.family == "batch_prefill" and p.seqlen_q * p.seqlen_k > _LARGEST:
        yield f"random bytes of {p.seqlen_q} queries and {p.seqlen_k} keys are over 2 GB, which kernels can't store"
    if why := scales_complaint(p):
        yield why
    if p.mode == "batch" and (p.total_q or p.total_k or p.cu_seqlens):
        yield "total_q, total_k and cu_seqlens belong to group mode"
    if p.splits > _MOST_SPLITS or (p.splits > 0 and not p.split_keys) != (p.family == "fwd_splitkv"):
        yield f"fwd_splitkv, or batch_prefill with split_keys, takes 1 to {_MOST_SPLITS} splits, not {p.splits}"
    if p.split_keys:
        yield from split_contradictions(p)
    if (p.deterministic or p.dbias) and not p.family.startswith("bwd"):
        yield "deterministic and dbias belong to the backward pass"
    if p.batch_invariant:
        yield from _reasons_to_vary(p)
    if p.dbias and p.bias != "bias":
        yield "dbias needs an elementwise bias"
    if (p.seqlen_knew > 0 or p.rope != "no") and p.family != "fwd_appendkv":
        yield "new keys and rotary embeddings belong to fwd_appendkv"
    if p.family.startswith("bwd"):
        yield from _backward_contradictions(p)
    yield from _page_contradictions(p)


def factor_is_usable(factor: object) -> bool:
    """True if scores times the factor keep their digits in a kernel."""
    return isinstance(factor, Real) and _SMALLEST_FACTOR <= float(factor) <= _LARGEST_FACTOR


def _unusable_scales(p: Problem) -> Iterator[str]:
    bounds = f"from {_SMALLEST_FACTOR:.3g} to {_LARGEST_FACTOR:g}"
    if p.scale != 0 and not factor_is_usable(p.scale):
        yield f"scale {p.scale} is not {bounds}, or 0 for the usual one; for a negative scale negate Q"
    elif p.qscale == "pertensor" and not factor_is_usable(p.softmax_scale * p.descales[0] * p.descales[1]):
        yield f"scale {p.softmax_scale:g} with the descales {p.descales[:2]} of Q and K is not {bounds}"
    if p.logits_soft_cap != 0 and not factor_is_usable(p.logits_soft_cap):
        yield f"logits_soft_cap {p.logits_soft_cap} is not {bounds}, or 0 for none"
    elif p.logits_soft_cap and p.softmax_scale * math.prod(p.descales[:2]) > 2.0**100 * p.logits_soft_cap:
        yield f"scale {p.softmax_scale:g} is over 2^100 times the soft cap {p.logits_soft_cap:g}: kernels divide them"
    if not math.isfinite(p.descales[2]):
        yield f"the descale {p.descales[2]} of V is not finite"


def _backward_contradictions(p: Problem) -> Iterator[str]:
    if not (p.seqlen_q and p.seqlen_k):
        yield f"{p.family} needs queries and keys, not {p.seqlen_q} and {p.seqlen_k}"
    if p.logits_soft_cap or p.sink_size or p.sink_logits or p.ragged or p.vlayout != "row":
        yield f"{p.family} has no soft cap, sinks, ragged batch or V by columns"


def _reasons_to_vary(p: Problem) -> Iterator[str]:
    """Reasons why no launch can give a sequence the same bits in every batch."""
    if not host(library_with(p.family)).arguments.BY_NAME:
        yield f"batch_invariant: a launch of {p.family} names no kernel, and its library may choose by the batch"
    if p.p_drop > 0:
        yield "batch_invariant: dropout draws its bytes by a sequence's place in the batch"


def split_contradictions(p: Problem) -> Iterator[str]:
    """Yield the reasons for which the keys of a problem can't be split at ``split_keys``."""
    if p.family != "batch_prefill":
        yield f"split_keys belongs to batch_prefill, not to {p.family}"
    if p.split_keys % STEP:
        yield f"split_keys {p.split_keys} is not a multiple of {STEP}"
    if p.key_splits > MOST_SPLITS:
        least = -(-p.seqlen_k // (MOST_SPLITS * STEP)) * STEP
        has = f"a seqlen_k of {p.seqlen_k} has {p.key_splits} splits of {p.split_keys} keys"
        yield f"{has}, and at most {MOST_SPLITS} are combined: give a split_keys of at least {least}"
    if p.bias != "no" or p.p_drop:
        yield "kernels that split the keys have no bias and no dropout"
    # kernels/include_prefill/ckpm_prefill/split.hpp: the heads of a KV head in one view of Q, and in one of float32 O
    heads, q = p.nhead_q // p.nhead_k, p.stride("q")
    spans = {
        "Q": ((p.seqlen_q - 1) * q.row + (heads - 1) * q.nhead + p.hdim_q) * ELEMENT_BYTES[p.q_dtype],
        "O in float32": p.seqlen_q * heads * p.hdim_v * 4,
    }
    for name, span in spans.items():
        if span > _LARGEST:
            yield f"split_keys with {p.seqlen_q} queries: {name} of {heads} heads spans {span} bytes, over 2 GB"


def _page_contradictions(p: Problem) -> Iterator[str]:
    if not p.page_size:
        if p.family in PAGED:
            yield f"{p.family} reads K and V from pages: page_size must be positive"
        if p.pool_pages or p.table_width or (p.kv_layout, p.kv_table) != ("linear", "sglang"):
            yield "pool_pages, table_width, kv_layout and kv_table need a page_size"
        return
    if p.family not in (*PAGED, "fwd_splitkv", "fwd_appendkv"):
        yield f"{p.family} reads no pages: page_size must be 0"
    if not p.pool_pages:
        yield "pool_pages must say how many pages the cache has"
    if p.kv_table == "vllm" and p.table_width * p.page_size < p.seqlen_k:
        yield f"a table row of {p.table_width} pages of {p.page_size} doesn't hold seqlen_k {p.seqlen_k}"
    if p.family != "batch_prefill" and (p.kv_table, p.kv_layout) != ("vllm", "linear"):
        yield f"{p.family} reads linear pages by a vllm table"
    if p.kv_layout == "vectorized" and (p.page_size % p.vector or p.vlayout == "col"):
        yield f"a vectorized layout needs row-major V and pages of a multiple of {p.vector} tokens for {p.dtype}"
    if p.family == "batch_prefill" and (p.hdim_q % p.vector or p.hdim_v % p.vector):
        yield f"head dims {p.hdim_q} and {p.hdim_v}: they must be multiples of {p.vector} for {p.dtype}"


def _check_strides(p: Problem) -> None:
    strides_by_name = dict(p.strides)
    if len(strides_by_name) != len(p.strides) or set(strides_by_name) - {"q", "k", "v", "o"}:
        named = sorted(name for name, _ in p.strides)
        raise ProblemError(f"strides are given once each for q, k, v and o, not for {named}.")
    others = {"bias": p.bias == "bias", "randval": p.stores_random, "lse": p.lse}
    tensors = {
        name: p.stride(name) for name in ("q", "k", "v", "o", *(name for name, there in others.items() if there))
    }
    for tensor, strides in {**tensors, **(p.gradients if p.family.startswith("bwd") else {})}.items():
        for field in dataclasses.fields(strides):
            _check_range(f"{field.name} stride of {tensor}", getattr(strides, field.name), 0)
        if tensor in strides_by_name and not (tensor == "v" and p.vlayout == "col"):
            _check_overlap(p, tensor, strides)
        if p.family == "batch_prefill" and tensor not in others:
            _check_span(p, tensor, strides)


def _check_span(p: Problem, tensor: str, strides: Strides) -> None:
    """Check that rows of a tile or page lie within 32 bits (kernels/include_prefill/ckpm_prefill/kernel.hpp)."""
    hdim, row = p.extent(tensor)[1], strides.row
    if tensor in ("q", "o"):
        rows, what = max(1, min(_QUERIES_IN_VIEW, p.seqlen_q)), "rows of a tile"
        size = ELEMENT_BYTES[p.q_dtype if tensor == "q" else p.o_dtype]
    else:
        rows, size, what = p.page_size, p.element_bytes, "tokens of a page"
        row = hdim if p.kv_layout == "vectorized" else row
    span = ((rows - 1) * row + hdim) * size
    if span > _LARGEST:
        raise ProblemError(
            f"row stride of {tensor} is {row}: a head's {rows} {what} span {span} bytes, and kernels reach {_LARGEST}. "
            "Give an array whose rows lie closer together.",
            kind="dimension",
        )


def _check_overlap(p: Problem, tensor: str, strides: Strides) -> None:
    """Check that no two elements have one address: each step must lead past all that smaller steps reach."""
    heads, hdim, rows = p.extent(tensor)
    if p.kv_layout == "vectorized" and tensor in ("k", "v"):  # the dims of a head are spread over a page
        steps = [(strides.nhead, heads), (strides.batch, p.pool_pages)]
        reached = rows * hdim
    else:
        paged = tensor in ("k", "v") and p.page_size
        sequences = p.pool_pages if paged else p.batch if p.mode == "batch" else 1
        steps = [(strides.nhead, heads), (strides.row, rows), (strides.batch, sequences)]
        reached = hdim
    if why := find_overlap(steps, reached):
        raise ProblemError(
            f"strides of {tensor} {dataclasses.astuple(strides)} (batch, head, row): {why}. Give strides of an array "
            "whose elements lie apart.",
            kind="overlap",
        )


def find_overlap(steps: Sequence[tuple[int, int]], reached: int) -> str:
    """The reason why two elements of an array share an address; "" if none do. ``steps``: (stride, length) of its axes.

    ``reached`` elements lie together at each place. Each step, from the smallest, must lead past all that smaller steps
    reach.
    """
    for step, count in sorted(steps):
        if count > 1 and step < reached:
            return f"a step of {step} leads into the {reached} elements that smaller steps reach"
        reached += max(count - 1, 0) * step
    return ""

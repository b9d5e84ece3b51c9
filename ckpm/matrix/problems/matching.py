"""Find the kernels of a dialect that serve a shape, and the shapes that exercise a kernel.

A kernel serves a shape if it has the head dims that dispatch chooses and exactly the requested features, and pads every
length that its tile doesn't divide. Conditions of dispatch that only choose among such kernels are left out, because a
kernel may be named at launch. They are few blocks, a short seqlen_q on a small tile, and unpadded before padded.

Sources: the codegen's API files (fmha_fwd.py, fmha_fwd_splitkv.py, fmha_fwd_appendkv.py, fmha_pagedkv_prefill.py,
fmha_batch_prefill.py, fmha_bwd.py): the properties scheck, skcheck, dcheck, dvcheck, max_seq_q_cond and extra_cond,
and the order of their head dims.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from ckpm.matrix.dialects import Dialect
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.families import Family
from ckpm.matrix.keys import Key, is_v3
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.problem import in_words, lacking_field
from ckpm.matrix.problems.problem import needed_values as needed_by
from ckpm.matrix.problems.testing import ListedShape
from ckpm.matrix.rules import broken

_ATTENTION = ("mode", "vlayout", "logits", "mask", "bias", "qscale", "sink")
# The features of a shape that a family reads. It does not compute the others, or takes them at run time.
_READS: Mapping[str, tuple[str, ...]] = {
    "fwd": (*_ATTENTION, "lse", "dropout", "skip"),
    "fwd_splitkv": (*_ATTENTION, "dropout", "paged_kv"),  # its LSE is between the two stages
    "fwd_splitkv_combine": ("mode", "lse", "dropout"),
    "fwd_appendkv": ("vlayout", "rope", "paged_kv"),
    "fwd_pagedkv": (*_ATTENTION, "lse", "dropout", "skip", "paged_kv"),
    "batch_prefill": (*_ATTENTION, "lse", "dropout", "page_size", "kv_layout", "kv_table"),
    "fwd_v3": (*_ATTENTION, "lse", "dropout", "skip"),
    "bwd_dot_do_o": ("mode",),
    "bwd_dq_dk_dv": ("mode", "mask", "bias", "dbias", "dropout", "dropout_impl", "deterministic"),
    "bwd_convert_dq": ("mode", "deterministic"),
}
_SUBMAX = {80: 96, 96: 128}  # CK's K0_MAX_SUBMAX_MAP where it isn't the head dim itself
_BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "mxfp4": 4}  # the others have 8
_ROWS_1D = 64  # rows of a block of the backward kernels with one-dimensional tiles (CK's M0_1D)
_SHORT_K = 256
_PAD = re.compile("p(s(?!k))?(sk)?(d(?!v))?(dv)?")


Pool = dict[str, dict[tuple[int, int], list[Key]]]  # by dtype and head dims, both in dispatch order


@dataclass(frozen=True, slots=True)
class Match:
    """The ``kernels`` that serve a shape, in dispatch order, or the ``reason`` why the last one doesn't."""

    kernels: tuple[Key, ...]
    reason: str


class Matcher:
    """A selection's kernels, looked up by shape. Shapes that differ in batch and heads alone share a match."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._pools: dict[str, dict[tuple[str, bool], Pool]] = {}
        for key in keys:  # V3 kernels have a dispatch of their own, with its own head dims
            pool = self._pools.setdefault(key.family, {}).setdefault((key.arch_trait, is_v3(key.pipeline)), {})
            pool.setdefault(key.dtype, {}).setdefault((key.hdim_q, key.hdim_v), []).append(key)
        self._answers: dict[tuple[Any, ...], Match] = {}

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(self._pools)

    def __call__(self, family: str, shape: ListedShape) -> Match:
        """The family's kernels that serve the shape."""
        question = (family, *_question(shape))
        if question not in self._answers:
            self._answers[question] = self._match(family, shape)
        return self._answers[question]

    def _match(self, family: str, shape: ListedShape) -> Match:
        if shape.impossible:
            return Match((), shape.impossible)
        narrowed = [_narrow(family, pool, shape) for pool in self._pools[family].values()]
        served = tuple(key for keys, _ in narrowed for key in keys)
        return Match(served, "" if served else "; ".join(dict.fromkeys(reason for _, reason in narrowed)))


def is_tried(family: str, shape: ListedShape) -> bool:
    """Return True if the family is tried with the shape: forward and backward have tests of their own."""
    return shape.direction in ("", "bwd" if family.startswith("bwd") else "fwd")


def count_shapes(matcher: Matcher, shapes: Iterable[ListedShape]) -> Counter[str]:
    """The number of shapes that each kernel serves, by name. Kernels that serve no shape are missing."""
    times: Counter[tuple[Any, ...]] = Counter()
    first: dict[tuple[Any, ...], ListedShape] = {}
    for shape in shapes:
        question = _question(shape)
        times[question] += 1
        first.setdefault(question, shape)
    counts: Counter[str] = Counter()
    for family in matcher.families:
        for question, shape in first.items():
            if is_tried(family, shape):
                counts.update(dict.fromkeys((key.name for key in matcher(family, shape).kernels), times[question]))
    return counts


_deciding_fields = attrgetter(
    *("direction", "impossible", "seqlen_q", "seqlen_k", "hdim_q", "hdim_v", "dtype", "mask", "bias", "lse", "dbias"),
    *("deterministic", "store_randval", "logits", "sink", "skip", "rope", "vlayout", "mode", "qscale", "page_size"),
    *("paged_kv", "kv_layout", "kv_table"),
)


def _question(shape: ListedShape) -> tuple[Any, ...]:
    """The fields of a shape that decide which kernels serve it."""
    return (*_deciding_fields(shape), shape.dropout > 0)


def _narrow(family: str, pool: Pool, shape: ListedShape) -> tuple[list[Key], str]:
    """The kernels of one family that serve the shape, or no kernel and the reason."""
    if shape.dtype not in pool:
        return [], f"no kernel with dtype {shape.dtype}"
    dims = next((d for d in pool[shape.dtype] if shape.hdim_q <= d[0] and shape.hdim_v <= d[1]), None)
    if dims is None:
        return [], f"no head dims from {shape.hdim_q}x{shape.hdim_v} on"
    left = pool[shape.dtype][dims]
    wanted = needed_values(shape)
    for field in _READS[family]:
        if field in wanted:
            before, left = left, [key for key in left if getattr(key, field) in wanted[field]]
            if not left:
                choices = " or ".join(sorted(str(value).lower() for value in wanted[field] if value is not None))
                return [], f"no kernel with {field} {choices} among {len(before)} that fit otherwise"
    before, left = left, [key for key in left if not_for_its_lengths(key, shape) is None]
    return left, "" if left else str(not_for_its_lengths(before[0], shape))


def needed_values(shape: ListedShape) -> dict[str, frozenset[Any]]:
    """The values of which a kernel must have one, by key field. None is for dialects without the field: it is off.

    A field that the shape leaves open is missing.
    """
    masks = {"no": ("no",), "top_left": ("causal", "mask"), "bottom_right": ("causal", "mask")}
    impls = ("wg16_storerandval", "wg32_storerandval") if shape.store_randval else ("wg16", "wg32")
    values: dict[str, frozenset[Any]] = {
        "mask": frozenset(masks.get(shape.mask, ("generic", "mask"))),
        "dropout": frozenset((shape.dropout > 0,)),
        "dropout_impl": frozenset(impls if shape.dropout > 0 else ("no",)),
    }
    for name in ("vlayout", "bias", "lse", "rope", "dbias", "deterministic", "logits"):
        values[name] = frozenset((getattr(shape, name),))
    for name in ("sink", "skip"):
        values[name] = frozenset((True,)) if getattr(shape, name) else frozenset((False, None))
    # a dialect without page sizes has page size 1, without layouts the linear layout, without tables SGLang's
    for name, plain in (
        ("page_size", 1),
        ("kv_layout", "linear"),
        ("kv_table", "sglang"),
        ("qscale", ""),
        ("mode", ""),
    ):
        if (value := getattr(shape, name)) is not None:
            values[name] = frozenset((value, None) if value == plain else (value,))
    if shape.paged_kv is not None or shape.page_size is not None:
        values["paged_kv"] = frozenset((shape.paged_kv is not False,))
    return values


def not_for_its_lengths(key: Key, shape: ListedShape) -> str | None:
    """The first length or head dim that the kernel neither divides nor pads, as a reason; None without one."""
    for name, length, step in _steps(key):
        value = getattr(shape, name)
        if length and value > length:
            return f"{name} {value} is over {length}"
        if step > 1 and (value % step or not value):
            return f"{name} {value} is not a multiple of {step}, and {key.pad} does not pad it"
    return None


def _steps(key: Key) -> list[tuple[str, int, int]]:
    """The (name, largest value or 0, divisor) of each length of a shape."""
    pads, group = padding(key.pad), key.mode == "group"
    padded = {"s": group or "s" in pads, "sk": group or "sk" in pads, "d": "d" in pads, "dv": "dv" in pads}
    return _STEPS.get(key.family, _attention_steps)(key, padded)


def _attention_steps(key: Key, padded: Mapping[str, bool]) -> list[tuple[str, int, int]]:
    tile, pipeline = key.tile, key.pipeline
    unpadded = {"d": _SUBMAX.get(tile.bk0max, tile.bk0max), "dv": key.hdim_v}
    if not pipeline.startswith("qr_async"):
        unpadded["s"] = tile.bm0
    if not pipeline.startswith("qr_async_trload"):
        unpadded["sk"] = tile.bn0
    vector = {"qr_async": 128 // _BITS.get(key.dtype, 8), "qr_hpad": 8}.get(pipeline, 1)
    return [*_unpadded_lengths(padded, unpadded), ("hdim_q", 0, vector), ("hdim_v", 0, vector)]


def _backward_steps(key: Key, padded: Mapping[str, bool]) -> list[tuple[str, int, int]]:
    tile = key.tile
    short = _SHORT_K if tile.when == "short_k" else 0
    steps = [("hdim_q", 0, key.dpad or key.hdim_q), ("hdim_v", 0, key.dvpad or key.hdim_v)]
    if key.pipeline:  # CK of mid-2025; later kernels have one pipeline, which pads lengths always
        steps += _unpadded_lengths(padded, {"s": tile.bm0, "sk": tile.bn0})
    return [("seqlen_q", tile.max_seq_q, 1), ("seqlen_k", short, 1), *steps]


# families whose kernels divide lengths in other ways than attention with a tile of Q and K
_STEPS: Mapping[str, Callable[[Key, Mapping[str, bool]], list[tuple[str, int, int]]]] = {
    "bwd_dq_dk_dv": _backward_steps,
    "bwd_dot_do_o": lambda key, padded: _unpadded_lengths(padded, {"s": _ROWS_1D, "dv": key.hdim_v}),
    "bwd_convert_dq": lambda key, padded: _unpadded_lengths(padded, {"s": _ROWS_1D, "d": key.hdim_q}),
    # no key has the rows of its block: its partner's rule decides
    "fwd_splitkv_combine": lambda key, padded: _unpadded_lengths(padded, {"dv": key.hdim_v}),
    "fwd_appendkv": lambda key, padded: _unpadded_lengths(
        padded, {"s": key.tile.bs, "d": key.tile.bd, "dv": key.tile.bdv}
    ),
}


_LENGTHS = {"s": "seqlen_q", "sk": "seqlen_k", "d": "hdim_q", "dv": "hdim_v"}


def _unpadded_lengths(padded: Mapping[str, bool], steps: Mapping[str, int]) -> list[tuple[str, int, int]]:
    return [(_LENGTHS[word], 0, step) for word, step in steps.items() if not padded[word]]


def padding(pad: str) -> frozenset[str]:
    """The lengths that a kernel pads: s, sk, d, dv for ``psskddv``, none for ``npad``.

    The backward pads of CK from autumn 2025 on (``pd8dv1``) are in fields of their own.
    """
    match = _PAD.fullmatch(pad)
    return frozenset(word for word in match.groups() if word) if match else frozenset()


def not_asked(dialect: Dialect, arch: str, mask_impl: str, problems: Iterable[SuiteCase]) -> dict[str, str]:
    """The problems, by name, that suites leave out for a dialect, arch and mask set, each with the reason.

    One table of problems serves CK of every version. A library reports a problem that its dialect does not have yet as
    unsupported. For a dialect with ``asked_everything: false``, problems that no kernel of any tier serves are left
    out, but never problems that must be refused. A reason names the values that no kernel has, and the rules or the
    axis.
    """
    if dialect.asked_everything:
        return {}
    family = dialect.family("batch_prefill")
    keys = enumerate_keys(family, arch=arch, mask_impl=mask_impl)
    reasons: dict[tuple[Any, ...], str] = {}  # thousands of problems need the same
    left_out = {}
    for problem in problems:
        needs = tuple(needed_by(problem).items())
        if problem.expect == "ok" and needs not in reasons:
            reasons[needs] = _reason(family, keys, problem)
        if problem.expect == "ok" and reasons[needs]:
            left_out[problem.name] = reasons[needs]
    return left_out


def _reason(family: Family, keys: list[Key], problem: SuiteCase) -> str:
    """The reason why no kernel serves the problem, "" if one serves it."""
    if (lack := lacking_field(keys, problem)) is None:
        return ""
    field, values, others = lack
    ruled = {
        rule.name
        for value in values
        if value is not None  # of a dialect without the field
        for rule in broken(family.rules, {name: getattr(others[0], name) for name in family.fields} | {field: value})
    }
    return f"{field} {in_words(values)}: " + (f"rule {', '.join(sorted(ruled))}" if ruled else f"axis {field}")

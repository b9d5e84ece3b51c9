"""Match the shapes of the testing matrix with the kernels of a selection, and problems of suites with a dialect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter
from typing import Any

from ckpm.matrix.dialects import Dialect
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.families import Family
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.problem import Problem
from ckpm.matrix.problems.serving import Match, in_words, match, needed_values
from ckpm.matrix.problems.testing import ListedShape, from_shape
from ckpm.matrix.rule import broken

_MAY_BE_OPEN = ("mode", "qscale", "page_size", "kv_layout", "kv_table")
_OPEN = ("pipeline", "pad", "load")  # a shape has no pool, and its kernel may be named


class Matcher:
    """A selection's kernels, looked up by shape. Shapes that differ in batch and heads alone share a match."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys: dict[str, list[Key]] = {}
        for key in keys:
            self._keys.setdefault(key.family, []).append(key)
        self._kept: dict[tuple[str, str, int, int], list[Key]] = {}
        self._answers: dict[tuple[Any, ...], Match] = {}

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(self._keys)

    def __call__(self, family: str, shape: ListedShape) -> Match:
        """The family's kernels that serve the shape, whatever they have where the shape is open."""
        question = (family, *_question(shape))
        if question not in self._answers:
            self._answers[question] = self._match(family, shape)
        return self._answers[question]

    def _match(self, family: str, shape: ListedShape) -> Match:
        if shape.impossible:
            return Match((), shape.impossible)
        left_open = {*_OPEN, *(name for name in _MAY_BE_OPEN if getattr(shape, name) is None)}
        if shape.paged_kv is None and shape.page_size is None:
            left_open.add("paged_kv")
        problem = from_shape(shape, family)
        if shape.paged_kv is False:
            problem = replace(problem, page_size=0)
        return match(self._keys_of(family, problem), problem, left_open)

    def _keys_of(self, family: str, problem: Problem) -> list[Key]:
        """The family's kernels with the dtype and large enough head dims, all if there are none; looked for once."""
        p, lookup = problem, (family, problem.dtype, problem.hdim_q, problem.hdim_v)
        if lookup not in self._kept:
            keys = [key for key in self._keys[family] if key.dtype == p.dtype and p.hdim_q <= key.hdim_q]
            self._kept[lookup] = [key for key in keys if p.hdim_v <= key.hdim_v] or self._keys[family]
        return self._kept[lookup]


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
        needs = tuple(needed_values(problem).items())
        if problem.expect == "ok" and needs not in reasons:
            reasons[needs] = _reason(family, keys, problem)
        if problem.expect == "ok" and reasons[needs]:
            left_out[problem.name] = reasons[needs]
    return left_out


def _reason(family: Family, keys: list[Key], problem: SuiteCase) -> str:
    """The reason why no kernel serves the problem, "" if one serves it."""
    if (lack := match(keys, problem).lack) is None:
        return ""
    field, values, others = lack
    ruled = {
        rule.name
        for value in values
        if value is not None  # of a dialect without the field
        for rule in broken(family.rules, {name: getattr(others[0], name) for name in family.fields} | {field: value})
    }
    return f"{field} {in_words(values)}: " + (f"rule {', '.join(sorted(ruled))}" if ruled else f"axis {field}")

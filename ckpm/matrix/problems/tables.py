"""The problems of a suite: groups of ``matrix/problems/SUITE.yaml``, each the product of its axes.

A group has its reason and its tier, by default smoke. It ``set``s fields and lists ``axes``. With ``cover: pairs`` its
cases are a part of the product, in which any two values of two axes meet (pairs.py). An axis is a list of values of the
field that it is named after, or of words. A word's parts between underscores set the fields that
``matrix/axis_words.yaml`` lists, or a number (``d64``). A mapping gives a word other fields or other parts. A case is
named after its suite, group and words. The axes ``queries``, ``keys`` and ``sequences`` take the place of ``lengths``.
The first sequence has these queries and keys, each further one fewer by a third of them (300, 200, 100). ``drop`` lists
conditions of cases to leave out; other impossible cases are errors. ``picks`` has, for each smaller tier, the condition
of the cases that run in it already. A condition names fields, or an axis and its words.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from ckpm.base.errors import ProblemError, UnknownWordError
from ckpm.base.tablefile import Field, Record, decode, load
from ckpm.matrix.dialects import TABLES
from ckpm.matrix.problems.case import CHECKS, CHOICES, SUITES, TIERS, SuiteCase, complaint
from ckpm.matrix.problems.pairs import cover

FOLDER = TABLES / "problems"
WORDS = TABLES / "axis_words.yaml"


class _Span(Record, frozen=True):
    first: int = msgspec.field(name="from")
    last: int = msgspec.field(name="to")


_Side = int | tuple[int, ...] | _Span  # one length for all sequences, one for each, or consecutive lengths


class _Lengths(Record, frozen=True):
    q: _Side
    k: _Side
    batch: int = 1
    ragged: bool = False


_INTEGERS = (
    *("nhead_q", "nhead_k", "hdim_q", "hdim_v", "tile_rows", "splits", "split_keys", "page_size", "pool_pages"),
    *("window_left", "window_right", "sink_size", "seed", "dropout_offset"),
)
# fields of a case with the same value in SuiteCase
_PLAIN: Mapping[str, Any] = {
    **{name: Literal[tuple(choices)] for name, choices in CHOICES.items()},
    **dict.fromkeys(_INTEGERS, int),
    **dict.fromkeys(("sink_logits", "alibi_per_batch", "lse", "store_randval"), bool),
    **dict.fromkeys(("logits_soft_cap", "p_drop", "scale"), float),
    **dict.fromkeys(("k_page_scales", "v_page_scales"), tuple[float, ...]),
}
_COMPOSITES: Mapping[str, Any] = {
    "lengths": _Lengths,
    **dict.fromkeys(("heads", "window"), tuple[int, int]),
    **dict.fromkeys(("hdim", "pool_bytes", "queries", "keys", "sequences"), int),
    **dict.fromkeys(("q_range", "kv_range"), tuple[float, float]),
    **dict.fromkeys(("checks", "also_check"), tuple[Literal[tuple(CHECKS)], ...]),  # type: ignore[misc]
}
_LISTED = ("k_page_scales", "v_page_scales", *(name for name, kind in _COMPOSITES.items() if kind is not int))  # lists
FIELDS = (*_PLAIN, *_COMPOSITES)
Values = msgspec.defstruct(
    "Values",
    [(name, kind | msgspec.UnsetType, msgspec.UNSET) for name, kind in {**_PLAIN, **_COMPOSITES}.items()],
    bases=(Record,),
    frozen=True,
)


_Worded = dict[str, Values | str | None]  # type: ignore[valid-type]


class WordTable(Record, frozen=True):
    """The record of axis_words.yaml: the fields that each part of a word sets."""

    parts: dict[str, Values | None]  # type: ignore[valid-type]


class _Group(Record, frozen=True):
    why: str
    tier: Literal["smoke", "full", "nightly"] = "smoke"
    set: Values | None = None  # type: ignore[valid-type]
    axes: dict[str, tuple[Any, ...] | _Worded] | None = None
    cover: Literal["pairs"] | None = None
    drop: tuple[dict[str, Any], ...] = ()
    picks: dict[str, dict[str, Any]] | None = None


class ProblemTable(Record, frozen=True):
    """The record of a table of problems."""

    suite: str
    groups: dict[str, _Group]
    defaults: Values | None = None  # type: ignore[valid-type]


Condition = Mapping[str, Sequence[Any]]  # field or axis -> the values or words that meet it

# The word of a bare axis value in a name, by default its text. An empty word is left out.
_WORDS: Mapping[str, Callable[[Any], str]] = {
    "hdim": lambda value: f"d{value}",
    "heads": lambda value: f"h{value[0]}x{value[1]}",
    "page_size": lambda value: f"ps{value}",
    "tile_rows": lambda value: f"m{value}" if value else "",
    "split_keys": lambda value: f"s{value}" if value else "",
    "sink_size": lambda value: f"sink{value}" if value else "",
    "sink_logits": lambda value: "sinklogits" if value else "",
    "lse": lambda value: "lse" if value else "",
    "logits_soft_cap": lambda value: f"cap{value:g}" if value else "",
    "p_drop": lambda value: f"drop{value:g}" if value else "",
    "window": lambda value: "win" + "_".join("all" if side < 0 else str(side) for side in value),
    "lengths": lambda value: _length_word(value),
    "bias": lambda value: "" if value == "no" else str(value),
    "qscale": lambda value: "" if value == "no" else str(value),
    "vlayout": lambda value: f"v{value}",
    "mode": str,
    "queries": lambda value: f"q{value}",
    "keys": lambda value: f"k{value}",
    "sequences": lambda value: f"b{value}" if value > 1 else "",
}
NUMBERED = {"d": "hdim", "ps": "page_size", "m": "tile_rows"}  # fields of words that end with a number


@dataclass(frozen=True, slots=True)
class ProblemStep:
    """A value of an axis: its word in names, and the fields that it sets."""

    word: str
    fields: Mapping[str, Any]


def problems(suite: str, tier: str = "smoke") -> tuple[SuiteCase, ...]:
    """The cases of a suite that a tier runs, in the table's order."""
    if suite not in SUITES:
        raise UnknownWordError("suite", suite, SUITES)
    if tier not in TIERS:
        raise UnknownWordError("tier", tier, TIERS)
    return tuple(itertools.chain.from_iterable(_suite(suite, name) for name in TIERS[: TIERS.index(tier) + 1]))


def find(name: str) -> SuiteCase:
    """The problem of a name in results or of ``--reproduce``; an unknown name is a ProblemError."""
    suite = name.partition("/")[0]
    for tier in TIERS if suite in SUITES else ():
        for problem in _suite(suite, tier):
            if problem.name == name:
                return problem
    raise ProblemError(f"no problem '{name}'. List them with `ckpm problems --suite SUITE --tier nightly`.")


@functools.cache
def _suite(suite: str, tier: str) -> tuple[SuiteCase, ...]:
    """The cases that a tier adds to the smaller ones."""
    return read(FOLDER / f"{suite}.yaml", suite, tier)


def read(file: Path, suite: str, tier: str) -> tuple[SuiteCase, ...]:
    """The cases of one tier alone of a table."""
    table = load(file)
    record = decode(table, ProblemTable).record
    if record.suite != suite:
        raise table.get("suite").fail(f"must be {suite}, the file's name")
    defaults = table.find("defaults")
    base = {} if defaults is None else _fields(defaults)
    by_name: dict[str, SuiteCase] = {}
    for group, field in table.get("groups").mapping().items():
        own = record.groups[group].tier
        picks = _picks(field, own)
        if tier != own and tier not in picks:
            continue
        cases = list(_expand(f"{suite}/{group}", field, base, picks, tier))
        if tier in picks and not cases:
            raise field.fail(f"picks.{tier}: no case of the group is like that")
        for problem in cases:
            if problem.name in by_name:
                raise field.fail(f"two cases are named {problem.name}: give their axes words that differ")
            by_name[problem.name] = problem
    return tuple(by_name.values())


def _expand(
    prefix: str, group: Field, base: Mapping[str, Any], picks: Mapping[str, Condition], tier: str
) -> Iterator[SuiteCase]:
    """Yield the group's cases of one tier: the tier's picks, or in the group's own tier the cases without a pick."""
    fixed = group.find("set")
    common = {**base, **({} if fixed is None else _fields(fixed))}
    axes = group.find("axes")
    lists = [] if axes is None else [_axis(word, field) for word, field in axes.mapping().items()]
    _no_field_twice(axes, lists)
    wanted = picks.get(tier, {})
    lists = [[step for step in axis if _may_meet(step.fields, wanted)] for axis in lists]
    out = [*_drops(group), *(picks[smaller] for smaller in TIERS[: TIERS.index(tier)] if smaller in picks)]
    for combination in _combinations(group, lists, common, out):
        values = dict(common)
        for step in combination:
            values |= step.fields
        if not _meets(values, wanted) or any(_meets(values, condition) for condition in out):
            continue
        label = "-".join(step.word for step in combination if step.word)
        yield _problem(group, f"{prefix}.{label}" if label else prefix, tier, values)


def _combinations(
    group: Field, lists: Sequence[Sequence[ProblemStep]], common: Mapping[str, Any], out: Sequence[Condition]
) -> Iterator[tuple[ProblemStep, ...]]:
    if group.find("cover") is None:
        yield from itertools.product(*lists)
        return
    if len(lists) < 2 or group.find("picks") is not None:
        raise group.fail("cover: pairs is for two axes or more, and for groups without picks")
    owned = [{field for step in axis for field in step.fields} for axis in lists]

    def forbidden(chosen: Mapping[int, int]) -> bool:
        open_fields = set().union(*(fields for axis, fields in enumerate(owned) if axis not in chosen))
        values = {field: value for field, value in common.items() if field not in open_fields}
        for axis, value in chosen.items():
            values |= lists[axis][value].fields
        return any(_meets(values, condition) for condition in out)

    for numbers in cover([len(axis) for axis in lists], forbidden):
        yield tuple(axis[number] for axis, number in zip(lists, numbers, strict=True))


def _meets(values: Mapping[str, Any], condition: Condition) -> bool:
    return all(values.get(field) in allowed for field, allowed in condition.items())


def _may_meet(fields: Mapping[str, Any], condition: Condition) -> bool:
    """Return True if a case with these fields, and others, can meet it; this prunes large groups for small picks."""
    return all(fields[field] in allowed for field, allowed in condition.items() if field in fields)


def _axis(name: str, field: Field) -> list[ProblemStep]:
    """The values of an axis. An axis without a field has its words as values of its name."""
    if name in FIELDS and isinstance(field.value, list):
        values = [_value(name, item) for item in field.items()]
        return [ProblemStep(_WORDS.get(name, str)(value), {name: value}) for value in values]
    label = () if name in FIELDS else (name,)
    return [ProblemStep(word, {**_word_fields(item), **dict.fromkeys(label, word)}) for word, item in _words_of(field)]


def _words_of(axis: Field) -> list[tuple[str, Field]]:
    """The words of an axis, each with the field that gives its fields."""
    if isinstance(axis.value, dict):
        return list(axis.mapping().items())
    lists = (_words_of(item) if isinstance(item.value, dict) else [(item.text(), item)] for item in axis.items())
    return list(itertools.chain.from_iterable(lists))


def _word_fields(field: Field) -> Mapping[str, Any]:
    """The fields of a mapping, or of a word or its parts."""
    if not isinstance(field.value, str):
        return {} if field.value is None else _fields(field)
    parts = _parts()
    fields: dict[str, Any] = {}
    for part in field.value.split("_"):
        numbered = re.fullmatch(r"([a-z]+)([0-9]+)", part)
        if part in parts:
            fields |= parts[part]
        elif numbered and numbered[1] in NUMBERED:
            fields[NUMBERED[numbered[1]]] = int(numbered[2])
        else:
            complaint = f"unknown word '{part}'; write WORD: {{field: value}}, or add it to {WORDS.name}"
            raise field.fail_word(complaint, part, parts)
    return fields


@functools.cache
def _parts() -> Mapping[str, Mapping[str, Any]]:
    """The fields of each part of a word."""
    table = load(WORDS)
    decode(table, WordTable)
    return table.get("parts").map(_word_fields)


def _no_field_twice(axes: Field | None, lists: Sequence[Sequence[ProblemStep]]) -> None:
    owner: dict[str, int] = {}
    for index, axis in enumerate(lists):
        for field in {field for step in axis for field in step.fields}:
            if owner.setdefault(field, index) != index and axes is not None:
                raise axes.fail(f"two axes set '{field}'")


def _drops(group: Field) -> list[Condition]:
    """The conditions of ``drop``. Their required ``why`` is for the reader."""
    conditions = []
    drops = group.find("drop")
    for item in drops.items() if drops else []:
        item.get("why").text()
        conditions.append(_condition(group, {name: field for name, field in item.mapping().items() if name != "why"}))
    return conditions


def _picks(group: Field, own: str) -> dict[str, Condition]:
    """The condition of the group's cases that a tier below the group's own runs, by tier."""
    picks = group.find("picks")
    if picks is None:
        return {}
    picks.allow(TIERS[: TIERS.index(own)])
    return {tier: _condition(group, condition.mapping()) for tier, condition in picks.mapping().items()}


def _condition(group: Field, fields: Mapping[str, Field]) -> Condition:
    """The values of each field, and the words of each axis without a field."""
    axes = group.find("axes")
    named = {} if axes is None else axes.mapping()
    condition: dict[str, list[Any]] = {}
    for name, field in fields.items():
        listed = isinstance(field.value, list) and (name not in _LISTED or name == "lengths")
        parts = field.items() if listed else [field]
        if name in FIELDS or name not in named:
            condition[name] = [_value(name, part) for part in parts]
            continue
        axis_words = [word for word, _ in _words_of(named[name])]
        for part in parts:
            if part.text() not in axis_words:
                raise part.fail_word(f"unknown word '{part.text()}' of the axis", part.text(), axis_words)
        condition[name] = [part.text() for part in parts]
    return condition


def _fields(field: Field) -> dict[str, Any]:
    """The fields that a mapping sets."""
    values = decode(field, Values).record
    return {name: _plain(getattr(values, name)) for name in field.value}


def _value(name: str, field: Field) -> Any:
    """The value of a problem's field. Composites are converted when the case is complete."""
    values = decode(Field({name: field}, field.file, field.line, field.path.rpartition(".")[0]), Values).record
    return _plain(getattr(values, name))


def _plain(value: Any) -> Any:
    """A value as a case has it: lengths as (q, k, batch, ragged), spans as ranges."""
    if isinstance(value, _Lengths):
        return _plain(value.q), _plain(value.k), value.batch, value.ragged
    return range(value.first, value.last + 1) if isinstance(value, _Span) else value


def _length_word(value: tuple[Any, ...]) -> str:
    q, k, batch, ragged = value
    return (f"b{batch}" if batch > 1 else "") + f"q{_side_word(q)}k{_side_word(k)}" + ("ragged" if ragged else "")


def _side_word(side: int | tuple[int, ...] | range) -> str:
    if isinstance(side, range):
        return f"{side.start}to{side[-1]}"
    return "_".join(map(str, side)) if isinstance(side, tuple) else str(side)


def _problem(group: Field, name: str, tier: str, values: Mapping[str, Any]) -> SuiteCase:
    plain: dict[str, Any] = {field: value for field, value in values.items() if field in _PLAIN}
    plain.setdefault("seed", int.from_bytes(hashlib.sha256(name.encode()).digest()[:3], "big"))
    for field in ("q_range", "kv_range", "checks"):
        if field in values:
            plain[field] = values[field]
    if extra := values.get("also_check"):
        plain["checks"] = (*plain.get("checks", ("reference", "nonzero")), *extra)
    if "heads" in values:
        plain["nhead_q"], plain["nhead_k"] = values["heads"]
    if "hdim" in values:
        plain["hdim_q"] = plain["hdim_v"] = values["hdim"]
    if "window" in values:
        plain["window_left"], plain["window_right"] = values["window"]
    prefix = name.partition(".")[0]  # SUITE/GROUP
    if "lengths" in values:
        plain["seqlens_q"], plain["seqlens_k"] = _sequences(values["lengths"], prefix)
    if "sequences" in values:
        count = range(values["sequences"])
        plain["seqlens_q"], plain["seqlens_k"] = (
            tuple(max(values[side] - index * values[side] // 3, min(values[side], 1)) for index in count)
            for side in ("queries", "keys")
        )
    suite, _, group_name = prefix.partition("/")
    problem = SuiteCase(name=name, suite=suite, tier=tier, group=group_name, **plain)
    if "pool_bytes" in values:
        stride = problem.page_elements("k") * problem.element_bytes
        problem = dataclasses.replace(problem, pool_pages=-(-values["pool_bytes"] // stride))
    if reason := complaint(problem):
        raise group.fail(f"{name}: {reason}. Fix the group or drop the case.")
    return problem


@functools.lru_cache(maxsize=1024)  # hundreds of a group's cases have the same lengths
def _sequences(lengths: tuple[Any, ...], seed: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The lengths of each sequence. Ragged ones are drawn from 1 to the maximum, alike in a whole group; q <= k."""
    q, k, batch, ragged = lengths
    queries = (q,) * (batch if isinstance(k, int) else len(k)) if isinstance(q, int) else tuple(q)
    keys = (k,) * len(queries) if isinstance(k, int) else tuple(k)
    if ragged:
        queries = tuple(_draw(seed, f"q{i}", length) for i, length in enumerate(queries))
        drawn = (_draw(seed, f"k{i}", length) for i, length in enumerate(keys))
        keys = tuple(max(pair) for pair in zip(queries, drawn, strict=True))
    return queries, keys


def _draw(seed: str, what: str, largest: int) -> int:
    """A number from 1 to ``largest``, the same on every machine and Python."""
    digest = hashlib.sha256(f"{seed} {what}".encode()).digest()
    return 1 + int.from_bytes(digest[:8], "big") % largest

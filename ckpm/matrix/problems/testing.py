"""The testing matrix of CK's tile engine: shapes to try the kernels of all families with, by tier.

A shape has less than a problem of problem.py: no page table, no placement, and one length for a batch. A kernel may
have or lack a feature that the shape leaves open (None).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from ckpm.base.errors import UnknownWordError, UsageError, did_you_mean, unknown_word
from ckpm.base.tablefile import Record, read_table
from ckpm.matrix.dialects import TABLES
from ckpm.matrix.problems.case import TIERS
from ckpm.matrix.problems.problem import NAMED, PAGED, Problem

FILE = TABLES / "testing.yaml"
DIRECTIONS = ("fwd", "bwd")
# The fields that a shape and a problem have alike.
_SAME = ("batch", "seqlen_q", "seqlen_k", "nhead_q", "nhead_k", "hdim_q", "hdim_v", "dtype", "mask", "bias", "lse")

# Upstream's order of the product; upstream's own reader ignores the file's layout.
_AXES = (
    *("batch", "seqlen_q", "seqlen_k", "nhead_q", "nhead_k", "hdim_q", "hdim_v"),
    *("dtype", "layout", "mask", "bias", "dropout", "lse", "dbias", "deterministic"),
)
_WORDS: Mapping[str, tuple[str, ...]] = {
    "dtype": ("fp32", "fp16", "bf16", "fp8", "fp8bf16", "fp8fp32", "mxfp8", "mxfp4"),
    "layout": ("BHSD", "BSHD"),
    "mask": ("no", "top_left", "bottom_right", "window"),
    "bias": ("no", "bias", "alibi"),
    "mode": ("batch", "group"),
    "vlayout": ("row", "col"),
    "qscale": ("no", "pertensor", "blockscale", "kv_blockscale", "mx"),
    "kv_layout": ("linear", "vectorized"),
    "kv_table": ("sglang", "vllm"),
    "rope": ("no", "inter", "half"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedShape:
    """The part of a launch that decides which kernels serve it. Lengths are tokens; ``dropout`` is a probability.

    ``layout`` is the order of batch, heads, sequence and head dim in memory, for a launch's strides. ``direction`` ""
    is both. The defaults are from upstream's reader; features that a shape doesn't name are off.
    """

    name: str = ""
    direction: str = ""
    tier: str = ""
    batch: int = 1
    seqlen_q: int = 1024
    seqlen_k: int = 1024
    nhead_q: int = 16
    nhead_k: int = 16
    hdim_q: int = 128
    hdim_v: int = 128
    dtype: str = "fp16"
    layout: str = "BHSD"
    mask: str = "no"
    bias: str = "no"
    dropout: float = 0.0
    lse: bool = False
    dbias: bool = False
    deterministic: bool = False
    store_randval: bool = False
    logits: bool = False
    sink: bool = False
    skip: bool = False
    rope: str = "no"
    vlayout: str = "row"
    mode: str | None = None
    qscale: str | None = None
    page_size: int | None = None
    paged_kv: bool | None = None
    kv_layout: str | None = None
    kv_table: str | None = None

    @property
    def impossible(self) -> str:
        """The reason why no kernel can be launched for the shape, "" if one can."""
        if self.nhead_q % self.nhead_k:
            return f"nhead_q {self.nhead_q} is not a multiple of nhead_k {self.nhead_k}"
        return ""

    def row(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "impossible": self.impossible}


def to_shape(problem: Problem) -> ListedShape:
    """The shape of the testing matrix: the fields that decide which kernels serve the problem."""
    p = problem
    return ListedShape(
        **{name: getattr(p, name) for name in _SAME},
        direction="bwd" if p.family.startswith("bwd") else "fwd",
        layout=p.layout,
        dropout=p.p_drop,
        dbias=p.dbias,
        deterministic=p.deterministic,
        store_randval=p.store_randval,
        logits=p.logits_soft_cap > 0,
        sink=p.sink_size > 0,
        rope=p.rope,
        vlayout=p.vlayout,
        mode=p.mode,
        qscale=p.qscale,
        page_size=p.page_size if p.family in NAMED else None,
        paged_kv=p.page_size > 0,
        kv_layout=p.kv_layout,
        kv_table=p.kv_table,
    )


def from_shape(shape: ListedShape, family: str, arch: str = "gfx950") -> Problem:
    """A problem of a family from a shape of the testing matrix.

    Fields that the shape leaves open get the family's usual values: batch mode (batch prefill: group) and no scales.
    For families that read pages, pages have 128 tokens (batch prefill: 1, in SGLang's table).

    A shape only turns features on, but a problem has their numbers: a soft cap of 30, a sink of 4 tokens, 2 splits of
    split-KV. No mask has a bound to the left, and only causal masks have a bound to the right. Append-KV has
    ``seqlen_k`` new keys.
    """
    s, batch_prefill = shape, family in NAMED
    mode = s.mode or ("group" if batch_prefill else "batch")
    paged = family in PAGED or (s.page_size is not None if s.paged_kv is None else s.paged_kv)
    page_size = (s.page_size or (1 if batch_prefill else 128)) if paged else 0
    pages = -(-s.seqlen_k // page_size) if page_size else 0
    table = s.kv_table or ("sglang" if batch_prefill or not page_size else "vllm")
    return Problem(
        **{name: getattr(s, name) for name in _SAME},
        family=family,
        arch=arch,
        mode=mode,
        layout=s.layout,
        vlayout=s.vlayout,
        total_q=s.batch * s.seqlen_q if mode == "group" else 0,
        total_k=s.batch * s.seqlen_k if mode == "group" and not page_size else 0,
        p_drop=s.dropout,
        dbias=s.dbias,
        deterministic=s.deterministic,
        store_randval=s.store_randval,
        logits_soft_cap=30.0 if s.logits else 0.0,
        sink_size=4 if s.sink else 0,
        window_left=-1,
        window_right=0 if s.mask in ("top_left", "bottom_right") else -1,
        qscale=s.qscale or "no",
        page_size=page_size,
        pool_pages=s.batch * pages,
        table_width=pages if table == "vllm" else 0,
        kv_layout=s.kv_layout or "linear",
        kv_table=table,
        rope=s.rope,
        min_seqlen_q=1 if s.skip else 0,
        splits={"fwd_splitkv": 2}.get(family, 0),
        seqlen_knew={"fwd_appendkv": s.seqlen_k}.get(family, 0),
    )


_KINDS: Mapping[str, str] = {field.name: str(field.type) for field in dataclasses.fields(ListedShape)}


def shapes(tier: str = "smoke") -> tuple[ListedShape, ...]:
    """The distinct shapes of a tier and the smaller ones, direction by direction, the impossible included."""
    if tier not in TIERS:
        raise UnknownWordError("tier", tier, TIERS)
    tiers = TIERS[: TIERS.index(tier) + 1]
    return tuple(itertools.chain.from_iterable(_read(FILE, *part) for part in itertools.product(DIRECTIONS, tiers)))


_Positive = Annotated[int, Meta(ge=1)]
_Dropout = Annotated[float, Meta(ge=0, lt=1)]


class _Defaults(Record, frozen=True):
    """Lists of the values of each axis that a test may leave out."""

    layout: tuple[str, ...]
    mask: tuple[str, ...]
    bias: tuple[str, ...]
    dropout: tuple[_Dropout, ...]
    lse: tuple[bool, ...]
    dbias: tuple[bool, ...]
    deterministic: tuple[bool, ...]


class _Test(Record, frozen=True):
    """Lists of the values of each axis; an axis without a list has the table's defaults."""

    batch: tuple[_Positive, ...]
    seqlen_q: tuple[_Positive, ...]
    seqlen_k: tuple[_Positive, ...]
    nhead_q: tuple[_Positive, ...]
    nhead_k: tuple[_Positive, ...]
    hdim_q: tuple[_Positive, ...]
    hdim_v: tuple[_Positive, ...]
    dtype: tuple[str, ...]
    layout: tuple[str, ...] | None = None
    mask: tuple[str, ...] | None = None
    bias: tuple[str, ...] | None = None
    dropout: tuple[_Dropout, ...] | None = None
    lse: tuple[bool, ...] | None = None
    dbias: tuple[bool, ...] | None = None
    deterministic: tuple[bool, ...] | None = None


class TestingTable(Record, frozen=True):
    """The record of testing.yaml: direction -> tier -> test."""

    defaults: _Defaults
    tests: dict[Literal["fwd", "bwd"], dict[Literal["smoke", "full", "nightly"], dict[str, _Test]]]


@functools.cache
def _table(file: Path) -> TestingTable:
    table = read_table(file, TestingTable)
    tests = [("tests", *path) for path in _paths(table.record)]
    for path in [("defaults",), *tests]:
        for name, field in table.at(*path).value.items():
            for item in field.value if name in _WORDS else ():
                if item.value not in _WORDS[name]:
                    raise item.fail_word(f"unknown {name} '{item.value}'", item.value, _WORDS[name])
    return table.record


def _paths(record: TestingTable) -> Iterator[tuple[str, str, str]]:
    for direction, tiers in record.tests.items():
        for tier, tests in tiers.items():
            for name in tests:
                yield direction, tier, name


@functools.cache
def _read(file: Path, direction: str, tier: str) -> Mapping[ListedShape, None]:
    """The shapes of one tier alone. A value that a list repeats gives one shape, unlike upstream."""
    record = _table(file)
    expanded: dict[ListedShape, None] = {}
    for own_direction, own_tier, name in _paths(record):
        if (own_direction, own_tier) == (direction, tier):
            test = record.tests[own_direction][own_tier][name]  # type: ignore[index]
            expanded |= dict.fromkeys(_expand(direction, tier, name, test, record.defaults))
    return expanded


def _expand(direction: str, tier: str, name: str, test: _Test, defaults: _Defaults) -> Iterator[ListedShape]:
    lists = [getattr(test, axis) if getattr(test, axis) is not None else getattr(defaults, axis) for axis in _AXES]
    for values in itertools.product(*lists):
        axes = dict(zip(_AXES, values, strict=True))
        yield ListedShape(name=f"{direction}/{name}.{_name_words(axes)}", direction=direction, tier=tier, **axes)


def _name_words(axes: Mapping[str, Any]) -> str:
    """The axes as a name has them; features that are off are left out."""
    parts = [
        "b{batch}-q{seqlen_q}k{seqlen_k}-h{nhead_q}x{nhead_k}-d{hdim_q}x{hdim_v}-{dtype}".format_map(axes),
        axes["layout"].lower() if axes["layout"] != "BHSD" else "",
        *(axes[name] for name in ("mask", "bias") if axes[name] != "no"),
        f"drop{axes['dropout']:g}" if axes["dropout"] else "",
        *(name for name in ("lse", "dbias", "deterministic") if axes[name]),
    ]
    return "-".join(word for word in parts if word)


def parse_shape(text: str) -> ListedShape:
    """A shape from ``hdim_q=128,mask=top_left,page_size=16``; missing fields have their default."""
    names = [name for name in _KINDS if name not in ("name", "tier")]
    values: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, word = part.partition("=")
        if name not in names:
            raise UsageError(f"--shape {text!r}: {unknown_word('field', name, names)}")
        values[name] = _parse(text, name, word)
    return ListedShape(**{"name": text, **values})


def _parse(text: str, name: str, word: str) -> Any:
    kind = _KINDS[name].removesuffix(" | None")
    choices = {**_WORDS, "direction": DIRECTIONS}.get(name) or (("true", "false") if kind == "bool" else ())
    if choices:
        if word not in choices:
            hint = did_you_mean(word, choices)
            raise UsageError(f"--shape {text!r}: {name} must be one of {', '.join(choices)}, not '{word}'{hint}")
        return word == "true" if kind == "bool" else word
    try:
        number = float(word) if kind == "float" else int(word)
    except ValueError:
        number = -1
    if kind == "float" and not 0 <= number < 1:
        raise UsageError(f"--shape {text!r}: {name} must be a number from 0 to below 1, not '{word}'.")
    if kind == "int" and number < 1:
        raise UsageError(f"--shape {text!r}: {name} must be a positive number, not '{word}'.")
    return number

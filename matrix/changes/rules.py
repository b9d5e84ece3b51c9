"""What matrix/tables/changes.yaml says: which changed file can touch what, and what is built and run of it."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.tablefile import Field, load
from ckpm.matrix.dialects import FAMILIES, HAND_WRITTEN, TABLES
from ckpm.matrix.problems.case import FAMILY_SUITE, SUITES

COMPARISONS = ("kernels", "rules", "suites")
ALWAYS = "lint"  # the check that no change goes without


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a changed file can touch. ``compare`` names a comparison by meaning that decides instead, "" for none."""

    reason: str
    compare: str = ""
    families: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    gates: bool = False
    checks: tuple[str, ...] = ()
    everything: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryPlan:
    """What is built of families that make one library together, and what judges it.

    Of ``smoke_upstreams`` nothing is built but the smoke tier, where suites and gates run.
    """

    name: str
    families: tuple[str, ...]
    upstreams: tuple[str, ...]
    smoke_upstreams: tuple[str, ...]
    tier: str
    suites: tuple[str, ...]
    gates: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """How an arch's libraries are built, and whether they run without a GPU of that arch."""

    arch: str
    build: str
    emulated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The table; ``effects`` are pairs of path patterns and what a fitting file touches, of which the first counts."""

    effects: tuple[tuple[tuple[str, ...], Effect], ...]
    checks: Mapping[str, tuple[str, ...]]
    kernels_per_shard: int
    runners: tuple[Runner, ...]
    libraries: tuple[LibraryPlan, ...]
    suites: Mapping[str, str]
    gate: str

    def effect(self, path: str) -> Effect:
        """What a changed file touches: everything if no rule knows it."""
        for patterns, effect in self.effects:
            if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns):
                return effect
        return Effect(reason="no rule of matrix/tables/changes.yaml knows this file", everything=True)


@functools.cache
def rules() -> Rules:
    """The rules of this checkout. Raises TableError."""
    return read_rules(TABLES / "changes.yaml")


def read_rules(file: Path) -> Rules:
    """Raises TableError: the table can't be read or names a check, family or suite that does not exist."""
    table = load(file)
    table.allow(("rules", "checks", "kernels_per_shard", "archs", "libraries", "suites", "gate"))
    checks = table.get("checks").map(Field.texts)
    if ALWAYS not in checks:
        raise table.get("checks").fail(f"there must be a check named {ALWAYS}")
    return Rules(
        effects=tuple(_rule(field, tuple(checks)) for field in table.get("rules").items()),
        checks=checks,
        kernels_per_shard=_positive(table.get("kernels_per_shard")),
        runners=tuple(_runner(arch, row) for arch, row in table.get("archs").mapping().items()),
        libraries=tuple(_library(name, row) for name, row in table.get("libraries").mapping().items()),
        suites=table.get("suites").map(Field.text),
        gate=table.get("gate").text(),
    )


def _rule(field: Field, checks: Sequence[str]) -> tuple[tuple[str, ...], Effect]:
    field.allow(("paths", "reason", "compare", "families", "suites", "gates", "checks"))
    compare, gates = field.find("compare"), field.find("gates")
    if compare and compare.text() not in COMPARISONS:
        raise compare.fail(f"must be one of {', '.join(COMPARISONS)}")
    effect = Effect(
        reason=field.get("reason").text(),
        compare=compare.text() if compare else "",
        families=_words(field.find("families"), (*FAMILIES, *HAND_WRITTEN)),
        suites=_words(field.find("suites"), (*SUITES, FAMILY_SUITE)),
        gates=gates.boolean() if gates else False,
        checks=_words(field.get("checks"), checks),
    )
    return field.get("paths").texts(), effect


def _words(field: Field | None, known: Sequence[str]) -> tuple[str, ...]:
    """A list of known words, or ``all`` of them; none if the field is missing."""
    if field is None:
        return ()
    if field.value == "all":
        return tuple(known)
    for item in field.items():
        if item.text() not in known:
            raise item.fail(f"unknown; known: {', '.join(known)}, or all")
    return field.texts()


def _runner(arch: str, row: Field) -> Runner:
    row.allow(("build", "emulated"))
    return Runner(arch=arch, build=row.get("build").text(), emulated=row.get("emulated").boolean())


def _library(name: str, row: Field) -> LibraryPlan:
    row.allow(("families", "upstreams", "smoke_upstreams", "tier", "suites", "gates"))
    smoke = row.find("smoke_upstreams")
    return LibraryPlan(
        name=name,
        families=_words(row.get("families"), (*FAMILIES, *HAND_WRITTEN)),
        upstreams=row.get("upstreams").texts(),
        smoke_upstreams=smoke.texts() if smoke else (),
        tier=row.get("tier").text(),
        suites=_words(row.get("suites"), (*SUITES, FAMILY_SUITE)),
        gates=row.get("gates").boolean(),
    )


def _positive(field: Field) -> int:
    if field.integer() < 1:
        raise field.fail("must be at least 1")
    return field.integer()

"""Read changes.yaml: what a changed file can touch, and what is built and run for it."""

from __future__ import annotations

import fnmatch
import functools
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, structs

from ckpm.base.paths import data
from ckpm.base.tablefile import Field, Later, Record, add_names, read_table
from ckpm.matrix.dialects import FAMILIES, HAND_WRITTEN
from ckpm.matrix.problems.case import FAMILY_SUITE, SUITES

ALWAYS = "lint"  # the check of every change


_Names = tuple[str, ...] | Literal["all"]


class Effect(Record, frozen=True):
    """The parts that a changed file of ``paths`` can touch. ``compare`` names a comparison that decides instead.

    ``all`` stands for every name of a kind. Without paths it is the effect of a file without a rule: everything.
    """

    paths: tuple[str, ...]
    reason: str
    checks: _Names
    compare: Literal["", "kernels", "suites"] = ""
    families: _Names = ()
    suites: _Names = ()
    gates: bool = False

    @property
    def everything(self) -> bool:
        return not self.paths


class Runner(Record, frozen=True):
    """The build session of an arch, and True if its libraries run without a GPU of that arch."""

    build: str
    emulated: bool
    arch: Later = ""


class LibraryPlan(Record, frozen=True):
    """A library: its families, its builds, the suites and gates that judge it.

    For ``smoke_upstreams`` only the smoke tier is built, for suites and gates.
    """

    families: tuple[str, ...]
    upstreams: tuple[str, ...]
    tier: str
    suites: tuple[str, ...]
    gates: bool
    smoke_upstreams: tuple[str, ...] = ()
    name: Later = ""


class Rules(Record, frozen=True):
    """The record of changes.yaml. The first of the ``rules`` that fits a file counts."""

    rules: tuple[Effect, ...]
    checks: dict[str, tuple[str, ...]]
    kernels_per_shard: Annotated[int, Meta(ge=1)]
    archs: dict[str, Runner]
    libraries: dict[str, LibraryPlan]
    suites: dict[str, str]
    gate: str

    def effect(self, path: str) -> Effect:
        """The effect of a changed file: everything if no rule has it."""
        for effect in self.rules:
            if any(fnmatch.fnmatchcase(path, pattern) for pattern in effect.paths):
                return effect
        return Effect(paths=(), reason="no rule of matrix/changes.yaml has this file", checks=())


@functools.cache
def rules() -> Rules:
    """The rules of this checkout."""
    return read_rules(data("matrix", "changes.yaml"))


def read_rules(file: Path) -> Rules:
    """Read a table of rules. Unknown checks, families and suites are refused."""
    table = read_table(file, Rules)
    record = table.record
    if ALWAYS not in record.checks:
        raise table.fail(f"there must be a check named {ALWAYS}", "checks")
    vocabulary = {
        "families": (*FAMILIES, *HAND_WRITTEN),
        "suites": (*SUITES, FAMILY_SUITE),
        "checks": tuple(record.checks),
    }
    effects = []
    for index, row in enumerate(record.rules):
        field = table.at("rules", index)
        names = {name: _read_names(getattr(row, name), field, name, vocabulary[name]) for name in vocabulary}
        effects.append(structs.replace(row, **names))
    for name, library in record.libraries.items():
        for kind in ("families", "suites"):
            _read_names(getattr(library, kind), table.at("libraries", name), kind, vocabulary[kind])
    return structs.replace(
        record, rules=tuple(effects), archs=add_names(record.archs, "arch"), libraries=add_names(record.libraries)
    )


def _read_names(value: _Names, row: Field, name: str, vocabulary: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a field; ``all`` stands for the whole vocabulary."""
    if value == "all":
        return vocabulary
    for index, word in enumerate(value):
        if word not in vocabulary:
            raise row.value[name].value[index].fail(f"unknown; known: {', '.join(vocabulary)}, or all")
    return tuple(value)

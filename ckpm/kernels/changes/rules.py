"""Read changes.yaml: the parts that a changed file can touch, and the libraries that are built for it."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ckpm.base.paths import data
from ckpm.base.tablefile import Field, Later, Record, Table, add_names, read_table
from ckpm.kernels.families.libraries import host, libraries
from ckpm.matrix.dialects import FAMILIES, HAND_WRITTEN
from ckpm.matrix.sessions import FAMILY_SUITE, sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The parts that a changed file can touch. ``compare`` names a comparison that decides instead, "" without one."""

    reason: str
    compare: str = ""
    families: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    gates: bool = False
    checks: tuple[str, ...] = ()
    everything: bool = False


_Names = tuple[str, ...] | Literal["all"]


class _RuleRow(Record, frozen=True):
    paths: tuple[str, ...]
    reason: str
    checks: _Names
    compare: Literal["", "kernels", "suites"] = ""
    families: _Names = ()
    suites: _Names = ()
    gates: bool = False


class PlannedCheck(Record, frozen=True):
    """A check of the project itself: sessions with their options, and the planned minutes of all on two processors.

    One that ``always`` runs is for every change. ``needs`` are programs of which the machine must have one.
    """

    sessions: tuple[str, ...]
    minutes: Annotated[int, Meta(ge=1)]
    always: bool = False
    needs: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        return " && ".join(f"nox -s {session}" for session in self.sessions)


class LibraryPlan(Record, frozen=True):
    """A library: its builds, whether gates judge it, and the planned minutes of a run and of a shard without a cache.

    For ``smoke_upstreams`` only the smoke tier is built, for suites and gates.
    """

    upstreams: tuple[str, ...]
    tier: str
    gates: bool
    run_minutes: Annotated[int, Meta(ge=1)]
    shard_minutes: Annotated[int, Meta(ge=1)]
    smoke_upstreams: tuple[str, ...] = ()
    name: Later = ""

    @property
    def families(self) -> tuple[str, ...]:
        return libraries()[self.name]

    @property
    def suites(self) -> tuple[str, ...]:
        """The suites that judge it."""
        return sessions().table_suites if host(self.name).table_problems else (FAMILY_SUITE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The table. ``effects`` are pairs of path patterns and an effect; the first pair that fits a file counts."""

    effects: tuple[tuple[tuple[str, ...], Effect], ...]
    checks: Mapping[str, PlannedCheck]
    kernels_per_shard: int
    libraries: tuple[LibraryPlan, ...]

    def effect(self, path: str) -> Effect:
        """The effect of a changed file: everything if no rule has it."""
        for patterns, effect in self.effects:
            if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns):
                return effect
        return Effect(reason="no rule of matrix/changes.yaml has this file", everything=True)


class ChangeTable(Record, frozen=True):
    """The record of changes.yaml."""

    rules: tuple[_RuleRow, ...]
    checks: dict[str, PlannedCheck]
    kernels_per_shard: Annotated[int, Meta(ge=1)]
    libraries: dict[str, LibraryPlan]


@functools.cache
def rules() -> Rules:
    """The rules of this checkout."""
    return read_rules(data("matrix", "changes.yaml"))


def read_rules(file: Path) -> Rules:
    """Read a table of rules. Unknown checks, families and suites are refused."""
    table = read_table(file, ChangeTable)
    record = table.record
    vocabulary = {
        "families": (*FAMILIES, *HAND_WRITTEN),
        "suites": tuple(sessions().suites),
        "checks": tuple(record.checks),
    }
    effects = []
    for index, row in enumerate(record.rules):
        field = table.at("rules", index)
        values = {name: _read_names(getattr(row, name), field, name, vocabulary[name]) for name in vocabulary}
        effect = Effect(
            reason=row.reason,
            compare=row.compare,
            families=values["families"],
            suites=values["suites"],
            gates=row.gates,
            checks=values["checks"],
        )
        effects.append((row.paths, effect))
    table.demand_known(record.libraries, libraries(), "libraries")
    return Rules(
        effects=tuple(effects),
        checks={
            name: msgspec.structs.replace(check, sessions=tuple(_fill(table, name)))
            for name, check in record.checks.items()
        },
        kernels_per_shard=record.kernels_per_shard,
        libraries=tuple(add_names(record.libraries).values()),
    )


def _fill(table: Table[ChangeTable], name: str) -> Iterator[str]:
    """Yield the sessions of a check, with the files of groups of tests, for each emulated arch if they name one."""
    for index, line in enumerate(table.record.checks[name].sessions):
        for arch in sessions().emulated if "{arch}" in line else ("",):
            try:
                yield line.format(arch=arch, **sessions().test_files)
            except (LookupError, ValueError) as error:
                message = f"neither {{arch}} nor a group of tests in braces: {error}"
                raise table.fail(message, "checks", name, "sessions", index) from error


def _read_names(value: _Names, row: Field, name: str, vocabulary: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a field; ``all`` stands for the whole vocabulary."""
    if value == "all":
        return vocabulary
    for index, word in enumerate(value):
        if word not in vocabulary:
            raise row.value[name].value[index].fail_word(f"unknown '{word}'", word, (*vocabulary, "all"))
    return tuple(value)

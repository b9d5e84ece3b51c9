"""The table of stages (reports/release/stages.yaml), and its steps for archs, an upstream and a tier."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, structs

from ckpm.base.paths import data
from ckpm.base.rocm_choice import DEVICES
from ckpm.base.tablefile import Field, Record, Table, read_table
from ckpm.matrix.dialects import archs as known_archs
from ckpm.matrix.dialects import upstreams
from ckpm.matrix.sessions import SESSIONS, SessionTable, read_sessions

STAGES = data("reports", "release", "stages.yaml")
SUITES = "suites"  # the stage that stands for all suites
PROJECT = "project"  # in place of the arch, in names of stages that run once
_BLANKS = ("stage", "arch", "upstream", "tier", "toolchain", "device")


class Stage(Record, frozen=True):
    """One row. ``command`` and the paths of ``outputs`` (by role) have blanks like ``{arch}``."""

    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    needs: tuple[str, ...] = ()
    outputs: dict[Literal["library", "manifest", "results", "gate", "report", "intermediate"], str] = msgspec.field(
        default_factory=dict
    )

    @property
    def each_arch(self) -> bool:
        return any("{arch}" in text for text in (*self.command, *self.outputs.values()))


class StageTable(Record, frozen=True):
    """The record of stages.yaml. ``archs`` and ``upstream`` are the defaults of a release."""

    upstream: str
    stages: Annotated[dict[str, Stage], Meta(min_length=1)]
    archs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStep:
    """A stage on an arch, or ``PROJECT``. ``outputs`` are files by role, relative to the folder that holds build/.

    ``needs`` are the names of steps that come before it in :func:`steps`.
    """

    stage: str
    arch: str
    command: tuple[str, ...]
    outputs: Mapping[str, str]
    needs: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.arch}/{self.stage}"

    @property
    def shown(self) -> str:
        """The command as a person types it."""
        return " ".join(("ckpm", *self.command))


def read_stages(file: Path = STAGES, sessions: Path = SESSIONS) -> StageTable:
    """Read the table of stages, with the suites and archs of a table of sessions; check its names and blanks."""
    table = read_table(file, StageTable)
    check_stages(table)
    whole = table.record.archs and SUITES not in table.record.stages  # a bundle's table
    return table.record if whole else _fill_in(table.record, read_sessions(sessions))


def check_stages(table: Table[Any]) -> None:
    """Check names, needs and blanks of a table whose record is a :class:`StageTable`."""
    table.demand_known(table.record.archs, known_archs(), "archs")
    table.demand_known(table.record.upstream, upstreams(), "upstream")  # a checkout is not pinned
    above: list[str] = []
    for name, stage in table.record.stages.items():
        table.demand_known(stage.needs, above, "stages", name, *(["needs"] if stage.needs else []))
        row = table.at("stages", name)
        for text in (*row.get("command").items(), *(row.get("outputs").mapping().values() if stage.outputs else ())):
            _check_blanks(text)
        above.append(name)


def _fill_in(table: StageTable, sessions: SessionTable) -> StageTable:
    """The table with a stage of each suite in the place of ``suites``, and with archs."""
    suites = {name: sessions.suites[name].device for name in sessions.table_suites}
    stages: dict[str, Stage] = {}
    for row, stage in table.stages.items():
        needs = tuple(name for need in stage.needs for name in (suites if need == SUITES else (need,)))
        for name, device in suites.items() if row == SUITES else ((row, ""),):
            command = tuple(device if device and word == "{device}" else word for word in stage.command)
            stages[name] = structs.replace(stage, needs=needs, command=command)
    return structs.replace(table, stages=stages, archs=table.archs or sessions.emulated)


def _check_blanks(text: Field) -> None:
    """Raise TableError for an unknown blank, a blank with a width, or half a blank."""
    try:
        parts = list(string.Formatter().parse(text.text()))
    except ValueError as error:
        raise text.fail(f"no text with blanks: {error}") from error
    for _, blank, width, conversion in parts:
        if blank is not None and (blank not in _BLANKS or width or conversion):
            raise text.fail(f"unknown blank {{{blank}}}; known: {', '.join(_BLANKS)}, and nothing beside the name")


def steps(
    table: StageTable, archs: Sequence[str], *, upstream: str, tier: str, toolchain: str
) -> tuple[StageStep, ...]:
    """Every stage on every arch, ordered so that the needs of a step come before it.

    What ROCm's compiler built is tested on a GPU, other libraries on the emulator.
    """
    result = []
    shared = {"upstream": upstream, "tier": tier, "toolchain": toolchain}
    shared["device"] = DEVICES[toolchain == "rocm"]
    for name, stage in table.stages.items():
        for arch in archs if stage.each_arch else (PROJECT,):
            blanks = {"stage": name, "arch": arch, **shared}
            needs = [step for need in stage.needs for step in _names(need, table.stages[need], arch, archs)]
            result.append(
                StageStep(
                    stage=name,
                    arch=arch,
                    command=tuple(word.format(**blanks) for word in stage.command),
                    outputs={role: file.format(**blanks) for role, file in stage.outputs.items()},
                    needs=tuple(needs),
                )
            )
    return tuple(result)


def _names(need: str, stage: Stage, arch: str, archs: Sequence[str]) -> list[str]:
    """The steps of a needed stage: the same arch's, or every arch's if the project needs it."""
    if not stage.each_arch:
        return [f"{PROJECT}/{need}"]
    return [f"{needed_arch}/{need}" for needed_arch in (archs if arch == PROJECT else (arch,))]

"""The table of stages (reports/release/stages.yaml), and its steps for archs, an upstream and a tier."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.tablefile import Field, load
from ckpm.matrix.dialects import archs as known_archs
from ckpm.matrix.dialects import upstreams

STAGES = Path(__file__).parents[1] / "stages.yaml"
ROLES = ("library", "manifest", "results", "gate", "report", "intermediate")
PROJECT = "project"  # stands for the arch in the names of what is done once
_BLANKS = ("stage", "arch", "upstream", "tier", "toolchain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One row. ``command`` and the paths of ``outputs`` (by role) have blanks like ``{arch}``."""

    name: str
    needs: tuple[str, ...]
    command: tuple[str, ...]
    outputs: Mapping[str, str]

    @property
    def each_arch(self) -> bool:
        return any("{arch}" in text for text in (*self.command, *self.outputs.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """All stages. ``archs`` and ``upstream`` are the defaults of a release."""

    archs: tuple[str, ...]
    upstream: str
    stages: tuple[Stage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
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


def read_table(file: Path = STAGES) -> Table:
    """Raises TableError, with file, line and field."""
    table = load(file)
    table.allow(("archs", "upstream", "stages"))
    archs, upstream = table.get("archs"), table.get("upstream")
    for arch in archs.items():
        if arch.text() not in known_archs():
            raise arch.fail(f"is none of {', '.join(known_archs())}")
    if upstream.text() not in upstreams():
        raise upstream.fail(f"is none of {', '.join(upstreams())}: a checkout is pinned by nothing")
    stages: dict[str, Stage] = {}
    for name, row in table.get("stages").mapping().items():
        stages[name] = _stage(name, row, tuple(stages))
    if not stages or not archs.texts():
        raise table.fail("needs at least one arch and one stage")
    return Table(archs=archs.texts(), upstream=upstream.text(), stages=tuple(stages.values()))


def _stage(name: str, row: Field, above: Sequence[str]) -> Stage:
    row.allow(("needs", "command", "outputs"))
    command, needs, outputs = row.get("command"), row.find("needs"), row.find("outputs")
    words = command.texts()
    if not words:
        raise command.fail("must name a command of ckpm")
    for need in needs.items() if needs else ():
        if need.text() not in above:
            raise need.fail(f"is not a stage above; there are {', '.join(above) or 'none'}")
    files = outputs.mapping() if outputs else {}
    for role, file in files.items():
        if role not in ROLES:
            raise file.fail(f"unknown role; known: {', '.join(ROLES)}")
    for text in (*command.items(), *files.values()):
        _check_blanks(text)
    return Stage(
        name=name,
        needs=needs.texts() if needs else (),
        command=words,
        outputs={role: file.text() for role, file in files.items()},
    )


def _check_blanks(text: Field) -> None:
    """Raise TableError for an unknown blank, a blank with a width, or half a blank."""
    try:
        parts = list(string.Formatter().parse(text.text()))
    except ValueError as error:
        raise text.fail(f"no text with blanks: {error}") from error
    for _, blank, width, conversion in parts:
        if blank is not None and (blank not in _BLANKS or width or conversion):
            raise text.fail(f"unknown blank {{{blank}}}; known: {', '.join(_BLANKS)}, and nothing beside the name")


def steps(table: Table, archs: Sequence[str], *, upstream: str, tier: str, toolchain: str) -> tuple[Step, ...]:
    """Every stage on every arch, ordered so that the needs of a step come before it."""
    by_name = {stage.name: stage for stage in table.stages}
    result = []
    for stage in table.stages:
        for arch in archs if stage.each_arch else (PROJECT,):
            blanks = {"stage": stage.name, "arch": arch, "upstream": upstream, "tier": tier, "toolchain": toolchain}
            needs = [name for need in stage.needs for name in _names(by_name[need], arch, archs)]
            result.append(
                Step(
                    stage=stage.name,
                    arch=arch,
                    command=tuple(word.format(**blanks) for word in stage.command),
                    outputs={role: file.format(**blanks) for role, file in stage.outputs.items()},
                    needs=tuple(needs),
                )
            )
    return tuple(result)


def _names(need: Stage, arch: str, archs: Sequence[str]) -> list[str]:
    """The steps of a needed stage: the same arch's, or every arch's if the project needs it."""
    if not need.each_arch:
        return [f"{PROJECT}/{need.name}"]
    return [f"{one}/{need.name}" for one in (archs if arch == PROJECT else (arch,))]

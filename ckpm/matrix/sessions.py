"""Read matrix/sessions.json: archs, suites and groups of tests, each with the session of nox that runs it.

noxfile.py reads the same table with the standard library alone: it may run in an environment that has only nox.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from ckpm.base.paths import data
from ckpm.base.tablefile import Record, read_table

SESSIONS = data("matrix", "sessions.json")
FAMILY_SUITE = "kernels"  # of libraries of fwd's families, with cases made from the kernels instead of a table


class _ArchSession(Record, frozen=True):
    gpu: str
    emulated: bool


class _SuiteSession(Record, frozen=True):
    session: str
    help: str
    device: Literal["", "emulator"] = ""


class _TestGroup(Record, frozen=True):
    help: str
    arguments: tuple[str, ...] = ("pytest",)
    files: tuple[str, ...] = ()
    extra: str = ""


class SessionTable(Record, frozen=True):
    """The record of sessions.json. ``{arch}`` in the name of a session is filled in; sessions with it are of one arch.

    ``archs`` are those that libraries are built for; suites run on the emulated device for ``emulated`` archs. A suite
    with a ``device`` runs on no other one. ``tests`` are the groups of `nox -s tests -- NAME`: the arguments of
    `python -m`, the files to run when the line names none, and the EXTRA of requirements-EXTRA.txt.
    """

    build: str
    gate: str
    archs: Annotated[dict[str, _ArchSession], Meta(min_length=1)]
    suites: dict[str, _SuiteSession]
    tests: dict[str, _TestGroup]

    @property
    def emulated(self) -> tuple[str, ...]:
        return tuple(name for name, arch in self.archs.items() if arch.emulated)

    @property
    def table_suites(self) -> tuple[str, ...]:
        """The suites whose problems are tables in matrix/problems."""
        return tuple(name for name in self.suites if name != FAMILY_SUITE)

    @property
    def test_files(self) -> dict[str, str]:
        """The files of each group of tests, as words of a command line."""
        return {name: " ".join(group.files) for name, group in self.tests.items()}


@functools.cache
def sessions() -> SessionTable:
    """The table of this checkout."""
    return read_sessions(SESSIONS)


def read_sessions(file: Path) -> SessionTable:
    """Read a table of sessions."""
    return read_table(file, SessionTable).record

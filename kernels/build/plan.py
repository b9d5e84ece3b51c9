"""A plan: everything that SConstruct needs to build one library, as data in a file (build/<arch>/<upstream>/plan.json).

Paths below the work folder are relative, so that two checkouts have the same build signatures and share a cache. What
holds machine paths (compiler, include folders) is kept apart from what decides about the output (``signature``).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.base.files import write_if_changed
from matrix.base.bounded import parse_json, read_text
from matrix.base.errors import UsageError

_REMEDY = "'python -m kernels build' writes plans, as build/<arch>/<upstream>/plan.json."


@dataclass(frozen=True, kw_only=True)
class Step:
    """One node of the build graph: a command that makes ``target`` from ``sources``.

    ``argv`` is run in the work folder. ``signature`` names everything that decides about the output besides the
    sources' content: flags, archs, identities of toolchain and upstream. ``environment`` is added to the process's own.
    """

    kind: str  # "unit", "host", "library", "manifest"
    target: str
    sources: tuple[str, ...]
    argv: tuple[str, ...]
    signature: str
    label: str
    kernels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A library's build graph and what its manifest records.

    ``folder`` is the output folder relative to the work folder; ``facts`` goes into the manifest as it is.
    """

    folder: str
    steps: tuple[Step, ...]
    environment: Mapping[str, str]
    facts: Mapping[str, Any]

    def text(self) -> str:
        """What its file holds."""
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    def write(self, file: Path) -> None:
        """Raises DiskFullError, OutputError."""
        write_if_changed(file, self.text())

    @classmethod
    def read(cls, file: Path) -> Plan:
        """Raises UsageError for a file that is missing or no plan."""
        try:
            data = parse_json(read_text(file))
            steps = tuple(_step(step) for step in data["steps"])
            return cls(folder=data["folder"], steps=steps, environment=data["environment"], facts=data["facts"])
        except OSError as error:
            raise UsageError(f"{file}: no plan can be read there: {error.strerror}. {_REMEDY}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{file}: this is no plan of a build. {_REMEDY}") from error


def _step(data: Mapping[str, Any]) -> Step:
    return Step(
        kind=data["kind"],
        target=data["target"],
        sources=tuple(data["sources"]),
        argv=tuple(data["argv"]),
        signature=data["signature"],
        label=data["label"],
        kernels=tuple(data["kernels"]),
    )


def signature(*parts: str | Sequence[str]) -> str:
    """A digest of words that decide about an output."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

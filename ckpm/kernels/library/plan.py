"""The plan: all data that SConstruct needs to build one library, in build/<arch>/<upstream>/plan.json.

Paths below the work folder are relative, so that two checkouts have the same build signatures and share a cache. Paths
of the machine (compiler, include folders) are not part of ``signature``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.base.errors import UsageError
from ckpm.base.records import Source

_REMEDY = "'ckpm build' writes plans, as build/<arch>/<upstream>/plan.json."


@dataclass(frozen=True, kw_only=True)
class BuildStep:
    """One node of the build graph: a command that makes ``target`` from ``sources``.

    ``argv`` is run in the work folder. ``signature`` contains everything that the output depends on besides the
    sources' content: flags, archs, identities of toolchain and upstream. A unit's ``headers`` are the digest of the
    identities of its headers and compiler.
    """

    kind: str  # "unit", "host", "library", "manifest"
    target: str
    sources: tuple[str, ...]
    argv: tuple[str, ...]
    signature: str
    label: str
    kernels: tuple[str, ...] = ()
    headers: str = ""


@dataclass(frozen=True, kw_only=True)
class BuildPlan:
    """A library's build graph and the facts of its manifest.

    ``folder`` is the output folder relative to the work folder; ``facts`` goes into the manifest as it is.
    ``environment`` is added to that of the processes.
    """

    folder: str
    steps: tuple[BuildStep, ...]
    environment: Mapping[str, str]
    facts: Mapping[str, Any]

    def text(self) -> str:
        """The text of the plan's file."""
        return json.dumps({**vars(self), "steps": [vars(step) for step in self.steps]}, indent=1) + "\n"

    @classmethod
    def read(cls, file: Path) -> BuildPlan:
        """Read a plan."""
        return Source(file, "a plan of a build", _REMEDY, UsageError).read().record(cls)


def signature(*parts: str | Sequence[str]) -> str:
    """The digest of strings on which an output depends."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

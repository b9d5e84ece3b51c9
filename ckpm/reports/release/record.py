"""The record of a stage that passed: its inputs and outputs.

A record has a digest of itself. A damaged record, or a record of changed outputs, is refused. It has no time and
no machine's path, so that the same stage with the same inputs and outputs gives the same bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.base.errors import RecordError
from ckpm.base.files import sha256_of, write_atomically
from ckpm.base.records import Source, Value, as_text
from ckpm.reports.release.stages import StageStep

FOLDER = Path("build/release/records")  # of the folder that holds build/
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts of all stages of a release. ``toolchain`` and ``upstream_identity`` are identities as in a manifest."""

    commit: str
    tier: str
    upstream: str
    upstream_identity: str
    toolchain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRecord:
    """A stage that ended. ``inputs`` and ``outputs`` are sha256 by file, relative to the folder that holds build/.

    The inputs include the library that a suite ran on. ``code`` is the exit code: not 0 in a first run on a GPU alone.
    """

    stage: str
    arch: str
    command: tuple[str, ...]
    facts: Facts
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    code: int = 0

    def _document(self) -> dict[str, Any]:
        return {
            "format": 1,
            "stage": self.stage,
            "arch": self.arch,
            "command": list(self.command),
            **dataclasses.asdict(self.facts),
            "inputs": dict(sorted(self.inputs.items())),
            "outputs": dict(sorted(self.outputs.items())),
            **({"code": self.code} if self.code else {}),
        }

    def as_bytes(self) -> bytes:
        """The file's content."""
        document = self._document()
        return as_text({**document, "digest": _digest(document)})

    def write(self, work: Path) -> None:
        """Replace the record of this step."""
        write_atomically(work / record_path(self.arch, self.stage), self.as_bytes())

    @classmethod
    def read(cls, file: Path) -> StageRecord:
        """Read a record. Raises RecordError: it can't be read, lacks a field, or has another digest."""
        source = Source(location=file, what="a stage's record", remedy="Run the stage again.", error=RecordError)
        document = source.read()
        document.allow(
            ("format", "stage", "arch", "command", "inputs", "outputs", "code", "digest", *_facts())
        )  # a mistyped name would be lost
        if document.get("format").value != 1:
            raise document.get("format").fail("is not 1: of another version")
        rest = {name: value for name, value in document.value.items() if name != "digest"}
        if document.get("digest").text() != _digest(rest):
            raise source.fail("is damaged: its digest is not that of its content")
        return cls(
            stage=document.get("stage").nonempty_text(),
            arch=document.get("arch").nonempty_text(),
            command=tuple(word.text() for word in document.get("command").items()),
            facts=Facts(**{name: document.get(name).nonempty_text() for name in _facts()}),
            inputs=document.get("inputs").map(_checksum),
            outputs=document.get("outputs").map(_checksum),
            code=document.optional("code", Value.count, 0),
        )

    def differences(
        self, step: StageStep, facts: Facts, inputs: Mapping[str, str], finished: Collection[int] = (0,)
    ) -> list[str]:
        """Differences from a record of this step with these inputs and a ``finished`` exit code, as text."""
        pairs: dict[str, tuple[object, object]] = {
            "stage": (self.stage, step.stage),
            "arch": (self.arch, step.arch),
            "command": (" ".join(self.command), " ".join(step.command)),
            **{name: (getattr(self.facts, name), getattr(facts, name)) for name in _facts()},
            **({} if self.code else {"outputs": (sorted(self.outputs), sorted(step.outputs.values()))}),
        }
        lines = [f"exit code {self.code}"] if self.code not in finished else []
        lines += [f"{name} {recorded}, not {other}" for name, (recorded, other) in pairs.items() if recorded != other]
        for file in sorted(self.inputs.keys() | inputs.keys()):
            recorded, other = self.inputs.get(file, "nothing"), inputs.get(file, "nothing")
            if recorded != other:
                lines.append(f"{file} with sha256 {recorded[:16]}, not {other[:16]}")
        return lines

    def find_damage(self, work: Path) -> list[str]:
        """List outputs that are missing or not as recorded."""
        lines = []
        for file, digest in self.outputs.items():
            if not (work / file).is_file():
                lines.append(f"{file} is missing")
            elif (actual := sha256_of(work / file)) != digest:
                lines.append(f"{file} has sha256 {actual[:16]}, not {digest[:16]}")
        return lines


def record_path(arch: str, stage: str) -> Path:
    """A record's file, relative to the folder that holds build/. Reports read two folders deep and skip it."""
    return FOLDER / arch / f"{stage}.json"


def _facts() -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(Facts))


def _checksum(value: Value) -> str:
    if not _SHA256.fullmatch(value.text()):
        raise value.fail("is not a sha256")
    return value.text()


def _digest(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()

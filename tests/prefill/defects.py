"""The table defects.yaml of defects planted in our headers, and the suite's case that finds each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from ckpm.base.tablefile import Record, read_table
from tests.prefill.instead import UPSTREAM

WRONG = "wrong numbers"


class Edit(Record, frozen=True):
    """Replaces ``old`` in a header of kernels/include_prefill by ``new``."""

    header: str
    old: str
    new: str


class Defect(Record, frozen=True):
    """A row of defects.yaml; ``upstream`` is the key above it."""

    case: str
    edits: tuple[Edit, ...]
    found_as: str = WRONG
    upstream: str = UPSTREAM

    @property
    def of_v3(self) -> bool:
        return all(edit.header.startswith("ckpm_prefill_v3/") for edit in self.edits)


class _Defects(Record, frozen=True, rename="kebab"):
    ckpm: dict[str, Defect]
    ckpm_v3: dict[str, Defect]
    ckpm_extended: dict[str, Defect]


def _read() -> dict[str, Defect]:
    """Every defect by name. Raises TableError."""
    groups: Mapping[str, Mapping[str, Defect]] = msgspec.structs.asdict(
        read_table(Path(__file__).with_name("defects.yaml"), _Defects).record
    )
    return {
        name: msgspec.structs.replace(defect, upstream=group.replace("_", "-"))
        for group, rows in groups.items()
        for name, defect in rows.items()
    }


DEFECTS = _read()

"""The table callers.yaml: callers' test files, and what of them runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ARCH = "gfx950"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A row of callers.yaml, which describes the fields."""

    clone: str
    files: Sequence[str]
    cases: int
    seed: int
    most_work: float
    work: Sequence[str]
    only: Mapping[str, Sequence[Any]]
    without: Mapping[str, str]
    skipped: Sequence[Mapping[str, Any]]
    kernels: Sequence[str]


def callers() -> dict[str, Caller]:
    """The rows by name."""
    rows = yaml.safe_load(Path(__file__).with_name("callers.yaml").read_text())
    return {name: Caller(**row) for name, row in rows.items()}

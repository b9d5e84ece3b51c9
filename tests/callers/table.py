"""The table callers.yaml: callers' test files, and what of them runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckpm.base.tablefile import Record, read_table

ARCH = "gfx950"


class Kernels(Record, frozen=True, kw_only=True):
    """Kernels of an upstream that are declared, and compiled when a call needs one."""

    family: str
    upstream: str
    dtype: str = "*"


class Caller(Record, frozen=True, kw_only=True):
    """A row of callers.yaml, which describes the fields."""

    clone: str
    files: Sequence[str]
    cases: int
    seed: int
    most_work: float = 1
    work: Sequence[str] = ()
    only: Mapping[str, Sequence[Any]] = {}
    without: Mapping[str, str] = {}
    skipped: Sequence[Mapping[str, Any]] = ()
    kernels: Sequence[str] = ()
    driven: bool = False
    on_demand: Sequence[Kernels] = ()


class _Callers(Record, frozen=True):
    callers: dict[str, Caller]


def callers() -> dict[str, Caller]:
    """The rows by name. Raises TableError."""
    return read_table(Path(__file__).with_name("callers.yaml"), _Callers).record.callers

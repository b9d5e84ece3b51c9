"""Counts of the emulator for each problem, as plain data: written by ``ckpm measure``, read by gates."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.base.errors import RecordError
from ckpm.base.files import write_atomically
from ckpm.base.records import Source, Value, as_text

_FORMAT = 1
CLASSES = ("salu", "valu", "trans", "mfma", "smem", "vmem", "lds", "branch", "wait", "barrier", "other")
# metric: unit. Sums over a launch's waves (workgroups for the last three); `instructions` sums all classes.
# lds_bank_conflicts: cycles that LDS accesses take beyond those without conflicts. mfma_cycles: of the matrix cores.
METRICS: Mapping[str, str] = {
    "instructions": "wave-instructions",
    **{f"instructions_{kind}": "wave-instructions" for kind in CLASSES},
    "mfma_flops": "flop",
    "mfma_cycles": "cycles",
    "global_load_bytes": "bytes",
    "global_store_bytes": "bytes",
    "scalar_load_bytes": "bytes",
    "scratch_bytes": "bytes",
    "lds_load_bytes": "bytes",
    "lds_store_bytes": "bytes",
    "lds_dma_bytes": "bytes",
    "lds_bank_conflicts": "cycles",
    "barriers": "barriers",
    "workgroups": "workgroups",
    "waves": "waves",
    "early_out_workgroups": "workgroups",
}
# Facts of the library from its manifest, but for the arch; `tier` is the problems'.
LIBRARY_FACTS = ("toolchain", "identity", "upstream", "upstream_identity", "dialect", "mask_impl", "selection", "flags")
PROVENANCE = ("arch", *LIBRARY_FACTS, "tier")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One launch. ``occupancy_waves`` of the kernel are waves a SIMD, ``compulsory_bytes`` Q, K, V and O once."""

    problem: str
    kernel: str
    dtype: str
    occupancy_waves: int
    compulsory_bytes: int
    counters: Mapping[str, int]  # every one of METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """``provenance``: every one of PROVENANCE, and facts of the library's file (ckpm.base.results.LIBRARY_SHA256).

    ``left_out``: problem -> why the library could not run it.
    """

    provenance: Mapping[str, str]
    problems: tuple[Measured, ...]
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step. Raises DiskFullError, OutputError."""
        write_atomically(file, as_text({"format": _FORMAT, **dataclasses.asdict(self)}))

    @classmethod
    def read(cls, file: Path) -> Measurements:
        """Read a file. Raises RecordError, with the field: it can't be read, or is not a file of measurements."""
        document = of_library(file, "measurements", _FORMAT, "Measure again: ckpm measure --help.")
        problems = document.get("problems")
        rows = tuple(map(_read_measured, problems.items()))
        if not rows:
            raise problems.fail("expected a list of at least one")
        if len({one.problem for one in rows}) != len(rows):
            raise problems.fail("one is named twice")
        return cls(
            provenance=document.get("provenance").texts(), problems=rows, left_out=document.get("left_out").texts()
        )


def of_library(file: Path, what: str, form: int, remedy: str) -> Value:
    """A document about a library's problems, with every one of PROVENANCE.

    Raises RecordError: the file can't be read, is of another format, or lacks one.
    """
    document = Source(place=file, what=what, remedy=remedy, error=RecordError).read()
    if not isinstance(document.value, dict) or document.value.get("format") != form:
        raise document.source.fail(f"no {what} of format {form}")
    for name in PROVENANCE:
        document.get("provenance").get(name).text()
    return document


def flatten(launched: Mapping[str, Any]) -> dict[str, int]:
    """METRICS from a device's counters ({"kernels": {symbol: ...}}), summed over the kernels of a launch."""
    totals = dict.fromkeys(METRICS, 0)
    for counted in launched["kernels"].values():
        for kind in CLASSES:
            totals[f"instructions_{kind}"] += counted["instructions"][kind]
        totals["instructions"] += sum(counted["instructions"].values())
        for name in METRICS:
            if not name.startswith("instructions"):
                totals[name] += counted[name]
    return totals


def _read_measured(row: Value) -> Measured:
    row.allow([field.name for field in dataclasses.fields(Measured)])
    counters = row.get("counters")
    counters.allow(tuple(METRICS))
    return Measured(
        problem=row.get("problem").nonempty_text(),
        kernel=row.get("kernel").nonempty_text(),
        dtype=row.get("dtype").nonempty_text(),
        occupancy_waves=row.get("occupancy_waves").count(),
        compulsory_bytes=row.get("compulsory_bytes").count(),
        counters={name: counters.get(name).count() for name in METRICS},
    )

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
from ckpm.base.tablefile import Count, Text

COUNTERS = "counters.json"  # beside a library or the decode kernels, for gates and report
_FORMAT = 1
CLASSES = ("salu", "valu", "trans", "mfma", "smem", "vmem", "lds", "branch", "wait", "barrier", "other")
# metric: unit. Sums over a launch's waves (workgroups for the last three); `instructions` sums all classes.
# lds_bank_conflicts: cycles that conflicts add to LDS accesses. mfma_cycles: of the matrix cores.
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
# Facts from the library's manifest, without the arch. `tier` is the problems'.
LIBRARY_FACTS = ("toolchain", "identity", "upstream", "upstream_identity", "dialect", "mask_impl", "selection", "flags")
PROVENANCE = ("arch", *LIBRARY_FACTS, "tier")
PROGRAM = "program"  # a fact of counters: the digest of this program's text, on which they depend


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One launch. ``occupancy_waves`` of the kernel are waves a SIMD, ``compulsory_bytes`` Q, K, V and O once."""

    problem: Text
    kernel: Text
    dtype: Text
    occupancy_waves: Count
    compulsory_bytes: Count
    counters: Mapping[str, int]  # every one of METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Launches of a library's kernels.

    ``provenance``: every one of PROVENANCE, and facts of the library's file (ckpm.base.results.LIBRARY_SHA256).
    ``left_out``: problem -> why the library could not run it. ``cycles_a_token``: the timing model's, by problem of
    the decode kernels.
    """

    provenance: Mapping[str, str]
    problems: tuple[Measured, ...]
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cycles_a_token: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step."""
        write_atomically(file, as_text({"format": _FORMAT, **dataclasses.asdict(self)}))

    @classmethod
    def read(cls, file: Path) -> Measurements:
        """Read a file of measurements. Raise RecordError, with the field, if it is damaged."""
        document = of_library(file, "measurements", _FORMAT, "Measure again: ckpm measure --help.")
        for row in document.get("problems").items():
            counters = row.get("counters")
            counters.allow(tuple(METRICS))
            for name in METRICS:
                counters.get(name).count()
        measurements = document.record(cls)
        if not measurements.problems:
            raise document.get("problems").fail("expected a list of at least one")
        names = {measured.problem for measured in measurements.problems}
        if len(names) != len(measurements.problems):
            raise document.get("problems").fail("one is named twice")
        for name in measurements.cycles_a_token:
            if name not in names:
                raise document.get("cycles_a_token").get(name).fail("no such problem")
        return measurements


def has_counters(file: Path, facts: Mapping[str, str]) -> bool:
    """True if a file has counters with exactly this provenance. A damaged file has none."""
    try:
        return file.exists() and Measurements.read(file).provenance == facts
    except RecordError:
        return False


def of_library(file: Path, what: str, form: int, remedy: str) -> Value:
    """Read a document about a library's problems. Check its format, which is left out, and its PROVENANCE."""
    document = Source(location=file, what=what, remedy=remedy, error=RecordError).read()
    if not isinstance(document.value, dict) or document.value.get("format") != form:
        raise document.source.fail(f"no {what} of format {form}")
    for name in PROVENANCE:
        document.get("provenance").get(name).text()
    facts = {name: value for name, value in document.value.items() if name != "format"}
    return dataclasses.replace(document, value=facts)


def executed_instructions(launched: Mapping[str, Any] | None) -> int:
    """The wave-instructions of a device's counters, 0 if the device counts none."""
    return flatten(launched)["instructions"] if launched else 0


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

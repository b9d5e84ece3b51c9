"""What the emulator counted of each problem, as plain data: written by ``python -m kernels measure``, read by gates."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.errors import ResultsError
from matrix.base.files import write_atomically

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
# Of the library, as its manifest says it, but for the arch; `tier` is the problems'.
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
    """``provenance``: every one of PROVENANCE. ``left_out``: problem -> why the library could not run it."""

    provenance: Mapping[str, str]
    problems: tuple[Measured, ...]
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step. Raises DiskFullError, OutputError."""
        document = {"format": _FORMAT, **dataclasses.asdict(self)}
        write_atomically(file, (json.dumps(document, indent=1) + "\n").encode())


def flattened(launched: Mapping[str, Any]) -> dict[str, int]:
    """METRICS from a device's counters ({"kernels": {symbol: ...}}), summed over the kernels of a launch."""
    found = dict.fromkeys(METRICS, 0)
    for counted in launched["kernels"].values():
        for kind in CLASSES:
            found[f"instructions_{kind}"] += counted["instructions"][kind]
        found["instructions"] += sum(counted["instructions"].values())
        for name in METRICS:
            if not name.startswith("instructions"):
                found[name] += counted[name]
    return found


def read_measurements(file: Path) -> Measurements:
    """Raises ResultsError: the file can't be read or is no file of measurements; the message names the field."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ResultsError(f"{file}: can't be read as measurements: {error}. {_REMEDY}") from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ResultsError(f"{file}: no measurements of format {_FORMAT}. {_REMEDY}")
    provenance, left_out, rows = (document.get(name) for name in ("provenance", "left_out", "problems"))
    for name, texts in (("provenance", provenance), ("left_out", left_out)):
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise ResultsError(f"{file}: {name}: expected text by name. {_REMEDY}")
    if missing := [name for name in PROVENANCE if name not in (provenance or {})]:
        raise ResultsError(f"{file}: provenance.{missing[0]} is missing. {_REMEDY}")
    if not isinstance(rows, list) or not rows:
        raise ResultsError(f"{file}: problems: expected a list of at least one. {_REMEDY}")
    problems = tuple(_measured(file, f"problems[{at}]", row) for at, row in enumerate(rows))
    if len({one.problem for one in problems}) != len(problems):
        raise ResultsError(f"{file}: problems: one is named twice. {_REMEDY}")
    return Measurements(provenance=provenance or {}, problems=problems, left_out=left_out or {})


_REMEDY = "Measure again: python -m kernels measure --help."


def _measured(file: Path, where: str, row: Any) -> Measured:
    names = [field.name for field in dataclasses.fields(Measured)]
    if not isinstance(row, dict) or set(row) != set(names):
        raise ResultsError(f"{file}: {where}: expected the fields {', '.join(names)}. {_REMEDY}")
    for name in ("problem", "kernel", "dtype"):
        if not isinstance(row[name], str) or not row[name]:
            raise ResultsError(f"{file}: {where}.{name}: expected text, found {row[name]!r}. {_REMEDY}")
    counters = row["counters"]
    if not isinstance(counters, dict) or set(counters) != set(METRICS):
        odd = sorted(set(METRICS) ^ set(counters)) if isinstance(counters, dict) else ["all"]
        raise ResultsError(f"{file}: {where}.counters: missing or unknown: {', '.join(odd)}. {_REMEDY}")
    numbers = {**counters, "occupancy_waves": row["occupancy_waves"], "compulsory_bytes": row["compulsory_bytes"]}
    for name, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ResultsError(f"{file}: {where}: {name}: {value!r} is no count. {_REMEDY}")
    return Measured(**row)

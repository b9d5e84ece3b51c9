"""The columns of results: those of CK's tile engine under its names and in its order, then ours.

Times are a GPU's; what an emulator counts, and what a model of one workgroup makes of it, stand in columns of their
own.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Mapping, Sequence

from ckpm.attention.sweeps.stored.identity import Identity

Cell = str | int | float | bool | None
Row = Mapping[str, Cell]

SHAPE = ("batch", "seqlen_q", "seqlen_k", "nhead_q", "nhead_k", "hdim_q", "hdim_v", "dtype")
RENAMED = {"name": "kernel", "data_type": "kernel_dtype", "hdim_q": "kernel_hdim_q", "hdim_v": "kernel_hdim_v"}
_FIRST = ("kernel", "family", "mode", "pipeline", "tile_m0", "tile_n0", "tile_k0")
_NAMED = tuple(RENAMED.get(field.name, field.name) for field in dataclasses.fields(Identity))
TIMES = ("latency_ms", "tflops", "bandwidth_gb_s")
COUNTS = (
    *("instructions", "mfma_flops", "mfma_cycles", "global_load_bytes", "global_store_bytes", "lds_bank_conflicts"),
    *("workgroups", "waves"),
)
OURS = (
    "dispatch_order",
    "layout",
    "device",
    *COUNTS,
    "modelled_cycles",
    "agrees",
    "tolerance_used",
    "known_defect",
    "library",
)
COLUMNS = (
    *("problem_name", *SHAPE, *_FIRST),
    *(name for name in _NAMED if name not in _FIRST),
    *TIMES,
    *OURS,
)


def as_csv(rows: Sequence[Row]) -> bytes:
    """CSV text with a line of names; cells that a row lacks are empty."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _csv_value(value) for name, value in row.items()} for row in rows)
    return text.getvalue().encode()


def _csv_value(value: Cell) -> Cell:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else value

"""The columns of results: those of CK's tile engine under its names and in its order, then ours.

Times are a GPU's; what an emulator counts, and what a model of one workgroup makes of it, stand in columns of their
own. TFLOPS count both products over the whole of Q and K, masked or not; bytes are Q, K, V and O once.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Mapping, Sequence

from dispatcher.benchmark.cases import Case
from dispatcher.benchmark.identity import Identity, identity
from dispatcher.problems.problem import ELEMENT_BYTES
from matrix.problems.testing import Shape

Cell = str | int | float | bool | None
Row = Mapping[str, Cell]

SHAPE = ("batch", "seqlen_q", "seqlen_k", "nhead_q", "nhead_k", "hdim_q", "hdim_v", "dtype")
_RENAMED = {"name": "kernel", "data_type": "kernel_dtype", "hdim_q": "kernel_hdim_q", "hdim_v": "kernel_hdim_v"}
_FIRST = ("kernel", "family", "mode", "pipeline", "tile_m0", "tile_n0", "tile_k0")
_NAMED = tuple(_RENAMED.get(field.name, field.name) for field in dataclasses.fields(Identity))
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


def described(case: Case) -> dict[str, Cell]:
    """The columns that name a case: its shape and its kernel."""
    named = dataclasses.asdict(identity(case.key))
    return {
        "problem_name": case.shape.name,
        **{name: getattr(case.shape, name) for name in SHAPE},
        **{_RENAMED.get(name, name): value for name, value in named.items()},
        "layout": case.shape.layout,
    }


def rates(shape: Shape, milliseconds: float) -> dict[str, Cell]:
    """The columns of a time."""
    s = shape
    flop = 2 * s.batch * s.nhead_q * s.seqlen_q * s.seqlen_k * (s.hdim_q + s.hdim_v)
    size = ELEMENT_BYTES[s.dtype]
    inputs = s.seqlen_q * s.nhead_q * s.hdim_q + s.seqlen_k * s.nhead_k * (s.hdim_q + s.hdim_v)
    moved = s.batch * (inputs * size + s.seqlen_q * s.nhead_q * s.hdim_v * max(size, 2))
    return {
        "latency_ms": milliseconds,
        "tflops": flop / (milliseconds * 1e9),
        "bandwidth_gb_s": moved / (milliseconds * 1e6),
    }


def as_csv(rows: Sequence[Row]) -> bytes:
    """With a line of names; what a row doesn't have is empty."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _word(value) for name, value in row.items()} for row in rows)
    return text.getvalue().encode()


def _word(value: Cell) -> Cell:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else value

"""Cells of a row: its shape and its kernel, and the rates of a time."""

from __future__ import annotations

import dataclasses

from ckpm.attention.sweeps.cases import Case
from ckpm.attention.sweeps.stored.columns import RENAMED, SHAPE, Cell
from ckpm.attention.sweeps.stored.identity import identity
from ckpm.matrix.problems.problem import ELEMENT_BYTES
from ckpm.matrix.problems.testing import Shape


def describe(case: Case) -> dict[str, Cell]:
    """The columns that name a case: its shape and its kernel."""
    named = dataclasses.asdict(identity(case.key))
    return {
        "problem_name": case.shape.name,
        **{name: getattr(case.shape, name) for name in SHAPE},
        **{RENAMED.get(name, name): value for name, value in named.items()},
        "layout": case.shape.layout,
    }


def rates(shape: Shape, milliseconds: float) -> dict[str, Cell]:
    """The columns of a time. TFLOPS count both products over all of Q and K; bytes are Q, K, V and O once."""
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

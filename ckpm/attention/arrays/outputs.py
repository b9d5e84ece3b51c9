"""Outputs of a call: their shapes and dtypes, and the caller's own arrays for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.alibi import lse_shift
from ckpm.attention.arrays.posing import Posed, sequence_lengths
from ckpm.attention.arrays.pytorch import dtype_of, is_like
from ckpm.attention.arrays.tensors import (
    WORDS,
    Operand,
    demand_dtype,
    demand_one_place,
    demand_shape,
    demand_writable,
    operand,
)
from ckpm.attention.launch.device import Device
from ckpm.base.errors import ArgumentError
from ckpm.matrix.problems.problem import Problem

# An output's name, shape, PyTorch dtype (None without PyTorch), and if it is like Q: such memory takes less time.
Form = tuple[str, tuple[int, ...], Any, bool]
_ARGUMENTS = {"o": "out", "lse": "lse_out"}


def o_shape(p: Problem) -> tuple[int, ...]:
    if p.mode == "group":
        return p.rows_q, p.nhead_q, p.hdim_v
    inner = (p.nhead_q, p.seqlen_q) if p.layout == "BHSD" else (p.seqlen_q, p.nhead_q)
    return p.batch, *inner, p.hdim_v


def lse_shape(p: Problem) -> tuple[int, ...]:
    return (p.nhead_q, p.rows_q) if p.mode == "group" else (p.batch, p.nhead_q, p.seqlen_q)


def shape_of(p: Problem, name: str) -> tuple[int, ...]:
    """The shape of an output, by its name in the C ABI."""
    return o_shape(p) if name == "o" else lse_shape(p) if name == "lse" else (*lse_shape(p), p.seqlen_k)


def word_of(posed: Posed, name: str) -> str:
    """The word of the dtype of an output that the call allocates. O has Q's dtype."""
    if name != "o":
        return {"lse": "fp32", "rand_val": "bits8"}[name]
    if posed.floats is not None:
        return WORDS[posed.floats.name]
    return "bits16" if posed.inputs["q"].dtype == "bits16" else posed.problem.o_dtype


def forms(posed: Posed, names: Iterable[str], q: Any) -> list[Form]:
    """Forms of the outputs that a call allocates beside Q."""
    outputs = []
    for name in names:
        shape, dtype = shape_of(posed.problem, name), dtype_of(word_of(posed, name), q)
        outputs.append((name, shape, dtype, dtype is not None and is_like(q, q, shape, dtype)))
    return outputs


def check_output(device: Device, p: Problem, name: str, array: Any, q: Operand) -> Operand:
    """The operand of an output, checked for shape, dtype, contiguity, write access, and to be where Q is."""
    output = operand(_ARGUMENTS.get(name, name), array, device)
    demand_one_place([q, output])
    demand_shape(output, shape_of(p, name))
    if name == "lse" or (name == "o" and (output.on_device or output.dtype not in ("fp32", "fp64"))):
        demand_dtype(output, "fp32" if name == "lse" else p.o_dtype)
    demand_writable(output)
    return output


def demand_apart(spans: Mapping[str, tuple[int, int]]) -> None:
    """Refuse outputs that share memory. ``spans`` are addresses and sizes in bytes."""
    ordered = sorted((begin, begin + size, _ARGUMENTS.get(name, name)) for name, (begin, size) in spans.items() if size)
    for (_, end, name), (begin, _, other) in itertools.pairwise(ordered):
        if end > begin:
            raise ArgumentError(
                f"{name} and {other} overlap: a kernel would overwrite one with the other. Give each its own memory.",
                kind="overlap",
            )


def shift_of(posed: Posed) -> NDArray[np.float64]:
    """The shift of a kernel's LSE for arrays of the host (:func:`ckpm.attention.alibi.lse_shift`)."""
    slopes = posed.inputs["bias"].array
    assert slopes is not None, "all are on the host"
    return lse_shift(posed.problem, slopes, sequence_lengths(posed))

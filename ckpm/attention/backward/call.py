"""``fmha_backward``: the gradients of one attention call, from arrays to arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.alibi import shifts_lse
from ckpm.attention.arrays.options import Options, SharedOptions, refuse_unknown
from ckpm.attention.arrays.outputs import lse_shape, o_shape, shift_of
from ckpm.attention.arrays.posing import Posed, encode_operand, pose
from ckpm.attention.arrays.tensors import Operand, demand_contiguous, demand_one_place, demand_shape, operand
from ckpm.attention.call import chosen, parameters_of
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.device import Device
from ckpm.attention.launch.encodings import bits_type, decode, encode
from ckpm.attention.launch.launching import host_buffers, upload
from ckpm.attention.launch.plan import UNTIMED, FinishedLaunch, Timing
from ckpm.base.errors import ArgumentError, demand_type
from ckpm.matrix.problems.problem import Problem

_HOST_ARRAYS = (
    "fmha_backward takes host arrays. For device memory call dispatcher.plan(problem).run({name: address}). "
    "Then add up dK and dV of the heads of Q that share a KV head."
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BackwardResult:
    """Gradients in NumPy's arrays. ``dq``, ``dk`` and ``dv`` have the axes of Q, K and V, ``dbias`` those of the bias.

    Their dtype is Q's, and uint16 (bits) for bf16 of PyTorch.

    ``random_values`` of dropout lie as [batch, head, query, key] or [head, token, key].
    """

    dq: NDArray[Any]
    dk: NDArray[Any]
    dv: NDArray[Any]
    dbias: NDArray[Any] | None = None
    random_values: NDArray[np.uint8] | None = None
    problem: Problem
    ran: FinishedLaunch


@dataclass(frozen=True, kw_only=True, eq=False)
class BackwardParameters(SharedOptions):
    """All parameters of fmha_backward, for signatures alone: no call makes one."""

    do: Any = field(kw_only=False)
    q: Any = field(kw_only=False)
    k: Any = field(kw_only=False)
    v: Any = field(kw_only=False)
    o: Any = field(kw_only=False)
    lse: Any = field(kw_only=False)
    dispatcher: Dispatcher | None = None
    dbias: bool = False
    deterministic: bool = False
    timing: Timing = UNTIMED


@parameters_of(BackwardParameters)
def fmha_backward(
    do: Any,
    q: Any,
    k: Any,
    v: Any,
    o: Any,
    lse: Any,
    *,
    dispatcher: Dispatcher | None = None,
    dbias: bool = False,
    deterministic: bool = False,
    timing: Timing = UNTIMED,
    **options: Any,
) -> BackwardResult:
    """Return the gradients of fmha's O with respect to Q, K, V and the bias, from the gradient of O.

    All arrays are on the host. ``do`` has O's shape. ``o`` and ``lse`` are results of the forward pass, ``lse`` in
    float32 as [batch, head, query] or [head, token]. ``options`` are the options of that forward pass. Kernels write dK
    and dV for each head of Q. For heads that share a KV head they are added up here, in float64.

    Raises:
        TypeError: an option doesn't exist.
        HipError: memory ran out.
        ArgumentError: an array is on the device.
        An error of ckpm.base.errors: see Dispatcher.plan and Plan.run.
    """
    refuse_unknown(options, list(BackwardParameters.__dataclass_fields__))
    for name, truth in (("dbias", dbias), ("deterministic", deterministic)):
        demand_type(name, truth, bool, "True or False")
    dispatcher = chosen(dispatcher, q)
    posed = pose(dispatcher.device, q, k, v, Options(family="bwd_dq_dk_dv", **options))
    if posed.on_device:
        raise ArgumentError(_HOST_ARRAYS, kind="device")
    p = dataclasses.replace(posed.problem, dbias=dbias, deterministic=deterministic)
    inputs = {**posed.inputs, **of_forward(dispatcher.device, posed, do, o, lse)}
    bits, drawn, ran = _launch(dispatcher, p, inputs, timing)
    return BackwardResult(**_gradients(posed, p, bits), random_values=drawn, problem=p, ran=ran)


fmha_backward.__doc__ = f"{fmha_backward.__doc__}\n    {Options.__doc__}"  # as fmha's


def _launch(
    dispatcher: Dispatcher, p: Problem, inputs: Mapping[str, Operand], timing: Timing
) -> tuple[dict[str, NDArray[Any]], NDArray[np.uint8] | None, FinishedLaunch]:
    """Return the bits of the gradients as kernels write them, dropout's random values, and the launch.

    Cleared before it is what no kernel writes: dbias of hidden scores, and in group mode gradients of a sequence
    without queries or without keys (sequences-without-queries-are-left-out in the ledger).
    """
    kind, shapes, drawn_shape = np.dtype(bits_type(p.dtype)), _shapes(p), (*lse_shape(p), p.seqlen_k)
    if not (p.seqlen_q and p.seqlen_k):  # no grid has 0 workgroups
        drawn = np.zeros(drawn_shape, np.uint8) if p.store_randval else None
        return {name: np.zeros(shape, kind) for name, shape in shapes.items()}, drawn, FinishedLaunch(kernels=())
    plan = dispatcher.plan(p)
    arrays: dict[str, NDArray[Any]] = {}
    for name in plan.inputs:
        array = inputs[name].array
        assert array is not None, "all are on the host"
        arrays[name] = array
    cleared = [*(["dbias"] if p.dbias else []), *(["dq", "dk", "dv"] if p.mode == "group" else [])]
    arrays |= {name: np.zeros(shapes[name], kind) for name in cleared}
    sizes = {name: size for name, size in plan.outputs.items() if name not in arrays}
    hip = dispatcher.device.hip
    with upload(dispatcher.device, host_buffers(arrays, sizes)) as memory:
        ran = plan.run({name: part.address for name, part in memory.items()}, timing=timing)
        plan.finish()
        bits = {name: hip.read(memory[name], kind, shape) for name, shape in shapes.items()}
        drawn = hip.read(memory["rand_val"], np.uint8, drawn_shape) if p.store_randval else None
    return bits, drawn, ran


def of_forward(device: Device, posed: Posed, do: Any, o: Any, lse: Any) -> dict[str, Operand]:
    """The gradient of O, and O and LSE of the forward pass, as kernels read them."""
    p, operands = posed.problem, {}
    for name, array, dtype, shape in (
        ("dout", do, p.dtype, o_shape(p)),
        ("o", o, p.dtype, o_shape(p)),
        ("lse", lse, "fp32", lse_shape(p)),
    ):
        tensor = operand("do" if name == "dout" else name, array, device)
        if demand_one_place([posed.inputs["q"], tensor]):
            demand_contiguous(tensor)
        demand_shape(tensor, shape, "as the forward pass gives it")
        operands[name] = encode_operand(tensor, dtype, device.arch)
    softmax_s = operands["lse"].array
    if softmax_s is not None and shifts_lse(p):
        kernel_s = (softmax_s + shift_of(posed)).astype(np.float32)
        operands["lse"] = dataclasses.replace(operands["lse"], array=kernel_s)
    return operands


def _shapes(p: Problem) -> dict[str, tuple[int, ...]]:
    """Shapes of the gradients as kernels write them."""

    def shape_of(rows: int, length: int, hdim: int) -> tuple[int, ...]:
        if p.mode == "group":
            return rows, p.nhead_q, hdim
        return (p.batch, *((p.nhead_q, length) if p.layout == "BHSD" else (length, p.nhead_q)), hdim)

    shapes = {
        "dq": shape_of(p.rows_q, p.seqlen_q, p.hdim_q),
        "dk": shape_of(p.rows_k, p.seqlen_k, p.hdim_q),
        "dv": shape_of(p.rows_k, p.seqlen_k, p.hdim_v),
    }
    return shapes | ({"dbias": (*lse_shape(p), p.seqlen_k)} if p.dbias else {})


def _gradients(posed: Posed, p: Problem, bits: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Gradients in Q's dtype, dK and dV with the heads of K and V."""
    q = posed.inputs["q"].array
    assert q is not None, "all are on the host"
    heads, gradients = 1 if p.mode == "batch" and p.layout == "BHSD" else -2, {}
    for name, gradient in bits.items():
        if name in ("dk", "dv") and p.nhead_q != p.nhead_k:
            numbers = _added_up(decode(gradient, p.dtype, p.arch), p, heads)
            gradient = numbers if posed.floats is not None else encode(numbers, p.dtype, p.arch)
        elif posed.floats is not None:
            gradient = decode(gradient, p.dtype, p.arch)
        gradients[name] = gradient.view(q.dtype) if posed.floats is None else gradient.astype(posed.floats)
    return gradients


def _added_up(numbers: NDArray[np.float64], p: Problem, axis: int) -> NDArray[np.float64]:
    """Sums over the heads of Q that share a head of K and V. Such heads are neighbours."""
    shape = list(numbers.shape)
    at = axis % len(shape)
    shape[at : at + 1] = [p.nhead_k, p.nhead_q // p.nhead_k]
    total: NDArray[np.float64] = numbers.reshape(shape).sum(axis=at + 1)
    return total

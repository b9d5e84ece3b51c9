"""``fmha``: one attention call from arrays to arrays, over whatever kernels are registered."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.arrays.options import Options
from ckpm.attention.arrays.posing import Posed, pose
from ckpm.attention.arrays.tensors import demand_dtype, demand_shape, demand_writable, operand
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.device import choose
from ckpm.attention.launch.encodings import decode
from ckpm.attention.launch.launching import host_buffers, upload
from ckpm.attention.launch.plan import UNTIMED, Plan, Ran, Timing
from ckpm.attention.registry import Registry
from ckpm.base.errors import ArgumentError, NoKernelError
from ckpm.kernels.library.request import LIBRARY
from ckpm.matrix.problems.problem import Problem

_DEFAULTS: dict[str, Dispatcher] = {}
_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attention:
    """``o`` has Q's axes and dtype (bf16 of fp8), ``lse`` is natural, [batch, head, query] or [head, token].

    Of a call on the device both are what the call was given to write to. ``random_values`` of dropout lie as
    [batch, head, query, key] or [head, token, key].
    """

    o: Any
    lse: Any = None
    random_values: NDArray[np.uint8] | None = None
    problem: Problem
    ran: Ran


def default(arch: str = "gfx950") -> Dispatcher:
    """The dispatcher of calls that name none: all libraries below build/<arch>, on a GPU of the arch or the emulator.

    Raises:
        NoKernelError: no library is there. Otherwise as Registry.add_library and ckpm.attention.launch.device.choose.
    """
    with _LOCK:
        if arch not in _DEFAULTS:
            registry = Registry()
            for library in sorted(Path("build", arch).glob(f"*/{LIBRARY}")):
                registry.add_library(library)
            if not len(registry):
                raise NoKernelError(f"no library is in build/{arch}. Build one: ckpm build --arch {arch}")
            _DEFAULTS[arch] = Dispatcher(registry, choose("auto", arch))
        return _DEFAULTS[arch]


def fmha(
    q: Any,
    k: Any,
    v: Any,
    *,
    dispatcher: Dispatcher | None = None,
    out: Any = None,
    lse_out: Any = None,
    stream: int = 0,
    timing: Timing = UNTIMED,
    **options: Any,
) -> Attention:
    """Compute softmax(Q K^T * scale) V of each sequence. ckpm.attention.arrays.posing describes arrays and options.

    Host arrays are copied to the device and back; floats are encoded in ``dtype``, and O comes in Q's dtype. Arrays on
    the device are used where they lie, and written to ``out`` and ``lse_out``; the call then returns when the launch is
    queued on ``stream``.

    Raises:
        TypeError: an option that doesn't exist. HipError: memory ran out.
        An error of ckpm.attention.errors: see pose, Dispatcher.plan and Plan.run.
    """
    over = dispatcher if dispatcher is not None else default()
    posed = pose(over.device, q, k, v, Options(**options))
    plan = over.plan(posed.problem)
    if posed.on_device:
        return _where_it_lies(plan, posed, out, lse_out, stream, timing)
    return uploaded_call(plan, posed, out, stream, timing)


def _address(posed: Posed, name: str, base: int) -> int:
    """V's block scales lie between K's."""
    return base + 4 if name == "v_descale" and posed.problem.qscale == "kv_blockscale" else base


def _where_it_lies(plan: Plan, posed: Posed, out: Any, lse_out: Any, stream: int, timing: Timing) -> Attention:
    pointers = {name: _address(posed, name, posed.inputs[name].address) for name in plan.inputs}
    p = posed.problem
    wanted = {"o": (out, o_shape(p), p.dtype), "lse": (lse_out, lse_shape(p), "fp32")}
    for name in plan.outputs:
        given, shape, dtype = wanted.get(name, (None, (), ""))
        if given is None:
            raise ArgumentError(
                f"{name} needs memory on the device that the call can write to: give out, lse_out.", kind="null"
            )
        made = operand(name, given, plan.device)
        demand_shape(made, shape)
        demand_dtype(made, "bf16" if dtype == "fp8bf16" else dtype)
        demand_writable(made)
        pointers[name] = made.address
    return Attention(o=out, lse=lse_out, problem=p, ran=plan.run(pointers, stream=stream, timing=timing))


def uploaded_call(plan: Plan, posed: Posed, out: Any, stream: int, timing: Timing) -> Attention:
    """Run a plan with arrays of the host. Raises as Plan.run; ArgumentError: of ``out``."""
    p, hip = posed.problem, plan.device.hip
    if out is not None:
        target = operand("out", out, plan.device)
        demand_shape(target, o_shape(p))
        demand_writable(target)
    arrays: dict[str, NDArray[Any]] = {}
    for name in plan.inputs:
        array = posed.inputs[name].array
        assert array is not None, "all are on the host"
        arrays[name] = array
    with upload(plan.device, host_buffers(arrays, plan.outputs)) as memory:
        ran = plan.run(
            {n: _address(posed, n, part.address) for n, part in memory.items()}, stream=stream, timing=timing
        )
        plan.finish()
        kind = np.dtype(np.uint32 if p.dtype in ("fp32", "fp8fp32") else np.uint16)
        bits = hip.read(memory["o"], kind, o_shape(p))
        lse = hip.read(memory["lse"], np.float32, lse_shape(p)) if p.lse else None
        drawn = hip.read(memory["rand_val"], np.uint8, (*lse_shape(p), p.seqlen_k)) if p.store_randval else None
    o = _as_given(posed, bits)
    if out is not None:
        out[...] = o
    return Attention(o=o if out is None else out, lse=lse, random_values=drawn, problem=p, ran=ran)


def _as_given(posed: Posed, bits: NDArray[Any]) -> NDArray[Any]:
    """O in Q's dtype."""
    p, q = posed.problem, posed.inputs["q"].array
    if posed.floats is not None:
        return decode(bits, "bf16" if p.dtype == "fp8bf16" else p.dtype, p.arch).astype(posed.floats)
    return bits if q is None or q.dtype.itemsize != bits.itemsize else bits.view(q.dtype)


def o_shape(p: Problem) -> tuple[int, ...]:
    if p.mode == "group":
        return p.rows_q, p.nhead_q, p.hdim_v
    inner = (p.nhead_q, p.seqlen_q) if p.layout == "BHSD" else (p.seqlen_q, p.nhead_q)
    return p.batch, *inner, p.hdim_v


def lse_shape(p: Problem) -> tuple[int, ...]:
    return (p.nhead_q, p.rows_q) if p.mode == "group" else (p.batch, p.nhead_q, p.seqlen_q)

"""One case on a device: uploaded, launched, timed or counted, compared with the float64 reference on request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ckpm.attention import reference
from ckpm.attention.arrays.posing import Posed, pose
from ckpm.attention.call import Attention, uploaded_call
from ckpm.attention.launch.c_abi import Library
from ckpm.attention.launch.counters import flatten
from ckpm.attention.launch.device import Device, EmulatedDevice
from ckpm.attention.launch.plan import UNTIMED, Plan, Timing
from ckpm.attention.problems.validation import validate
from ckpm.attention.sweeps.cases import Case
from ckpm.attention.sweeps.cells import rates
from ckpm.attention.sweeps.stored.columns import COUNTS, Cell
from ckpm.attention.sweeps.tensors import Tensors, tensors
from ckpm.attention.timing.machine import Number, values
from ckpm.attention.timing.record import SIMDS
from ckpm.base.errors import LaunchError
from ckpm.kernels.library.manifest import Manifest
from ckpm.matrix.keys import Key

_TIMING = Timing(warmups=5, repeats=20)  # on a GPU
_NO_TIMELINE = {"timeline_from": 0, "timeline_bin": 1, "timeline_bins": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A library on a device. ``keys`` are its kernels, ``known`` the timing model's figures, None without a model."""

    device: Device
    library: Library
    manifest: Manifest
    keys: tuple[Key, ...]
    known: Mapping[str, Number] | None


def measure(bench: Bench, case: Case, *, verify: bool) -> dict[str, Cell]:
    """The figures of one case.

    Raises:
        ProblemError: the problem can't be posed.
        LaunchError: its library refuses it, or it faulted. LaunchError: dispatch took another kernel.
        HipError: memory ran out.
    """
    made = tensors(case, bench.device.arch, random_values=verify)
    posed = pose(bench.device, made.q, made.k, made.v, made.options)
    plan = _plan(bench, case, posed)
    emulated = bench.device if isinstance(bench.device, EmulatedDevice) else None
    if emulated is not None:
        emulated.forget_recording()
        emulated.reset_counters()
        emulated.configure(record={"workgroup": None, "only": False} if bench.known else None)
    try:
        done = uploaded_call(plan, posed, None, 0, UNTIMED if emulated else _TIMING)
    finally:
        plan.close()
    if done.ran.kernels[0] != case.key.name:
        raise LaunchError(f"dispatch took {done.ran.kernels[0]} for it.", kind="other-kernel")
    cells: dict[str, Cell] = dict(_counts(bench, emulated, case) if emulated else rates(case.shape, done.ran.median))
    if verify:
        cells |= _verdict(case, made, done)
    return {**cells, "device": bench.device.kind, "library": bench.manifest.library_sha256}


def _plan(bench: Bench, case: Case, posed: Posed) -> Plan:
    """Make a plan of the case's kernel, named where launches take a name; dispatch chooses those of later stages."""
    p = replace(posed.problem, min_seqlen_q=1 if case.key.skip else 0)
    named = bench.library.arguments.BY_NAME
    return Plan(validate(p), bench.device, bench.library, kernels=(case.key.name,), named=named)


def _counts(bench: Bench, device: EmulatedDevice, case: Case) -> dict[str, Cell]:
    """The emulator's counts, and the cycles that the timing model gives the launch on an otherwise idle GPU."""
    totals = flatten(device.counters())
    return {**{name: totals[name] for name in COUNTS}, "modelled_cycles": _model_cycles(bench, device, case)}


def _model_cycles(bench: Bench, device: EmulatedDevice, case: Case) -> int | None:
    """The longest workgroup's cycles, beside as many others as are resident, times the rounds that the grid takes.

    None of several stages, of which only one is recorded.
    """
    recording = device.recorded_workgroup()
    if bench.known is None or recording is None or len({key.family for key in bench.keys}) > 1:
        return None
    occupancy = bench.manifest.kernels[case.key.name].archs[device.arch].occupancy_waves
    possible = max(occupancy * SIMDS // len(recording["instructions"]), 1)
    launched, units = int(recording["launched"]), device.compute_units
    resident = min(possible, -(-launched // units))
    replayed = device.replay({**values(bench.known), **_NO_TIMELINE, "workgroups": resident})
    return int(replayed["cycles"]) * -(-launched // (units * resident))


def _verdict(case: Case, made: Tensors, done: Attention) -> dict[str, Cell]:
    """Compare O, and LSE if there is one, with the float64 reference."""
    s, p = case.shape, done.problem
    drawn = done.random_values
    random = None if drawn is None else np.split(drawn, s.batch, axis=1) if s.mode == "group" else list(drawn)
    o, lse = reference.attention(p, *made.sequences, random_values=random, **made.more)
    got = done.o
    if s.mode == "batch":
        got = np.concatenate(list(got.swapaxes(1, 2) if p.layout == "BHSD" else got))
    verdicts = [reference.agreement(got, o, s.dtype)]
    if done.lse is not None:
        mine = done.lse if s.mode == "group" else np.concatenate(list(done.lse), axis=1)
        verdicts.append(reference.agreement(mine, lse, "lse"))
    worst = max(one.worst for one in verdicts)
    # JSON has no infinity, which stands for NaN
    return {"agrees": all(one.passed for one in verdicts), "tolerance_used": worst if np.isfinite(worst) else "nan"}

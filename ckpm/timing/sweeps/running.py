"""Build the libraries of a benchmark, run every case, and record the results one by one."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ckpm.attention import reference
from ckpm.attention.arrays.posing import Posed, pose
from ckpm.attention.call import Attention, uploaded_call
from ckpm.attention.launch.c_abi import Library
from ckpm.attention.launch.counters import flatten
from ckpm.attention.launch.device import Device, EmulatedDevice
from ckpm.attention.launch.plan import UNTIMED, LaunchPlan, Timing
from ckpm.attention.problems.validation import validate
from ckpm.base.errors import (
    DeviceError,
    HipError,
    InconclusiveError,
    LaunchError,
    NoKernelError,
    ProblemError,
    RecordError,
)
from ckpm.kernels.abi import Status
from ckpm.kernels.families.libraries import host
from ckpm.kernels.library.building import run as build
from ckpm.kernels.library.manifest import MANIFEST, Manifest, check_library
from ckpm.kernels.library.request import LIBRARY
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import TIERS, SuiteCase
from ckpm.matrix.problems.ledger import Ledger, read_ledger, source
from ckpm.matrix.problems.problem import ELEMENT_BYTES, launch_instructions
from ckpm.matrix.problems.testing import ListedShape, from_shape
from ckpm.matrix.sessions import FAMILY_SUITE
from ckpm.timing.machine import ModelNumber, numbers, values
from ckpm.timing.record import SIMDS
from ckpm.timing.sweeps.cases import SweepCase, Tensors, not_laid_out, tensors
from ckpm.timing.sweeps.results import COUNTS, FAULT, RENAMED, SHAPE, Cell, Row, SweepResults, identity
from ckpm.timing.sweeps.sweep_request import SweepRequest, layers, request

log = logging.getLogger(__name__)
_TIMING = Timing(warmups=5, repeats=20)  # on a GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepBench:
    """A library on a device. ``keys`` are its kernels, ``known`` the timing model's figures, None without a model."""

    device: Device
    library: Library
    manifest: Manifest
    keys: tuple[Key, ...]
    numbers: Mapping[str, ModelNumber] | None


def measure(bench: SweepBench, case: SweepCase, *, verify: bool) -> dict[str, Cell]:
    """The figures of one case.

    Raises:
        ProblemError: the problem can't be posed.
        LaunchError: the library refused the launch, the device faulted, or dispatch took another kernel.
        HipError: memory ran out.
    """
    arrays = tensors(case, bench.device.arch, reference=verify)
    posed = pose(bench.device, arrays.q, arrays.k, arrays.v, arrays.options)
    plan = _plan(bench, case, posed)
    emulated = bench.device if isinstance(bench.device, EmulatedDevice) else None
    if emulated is not None:
        emulated.forget_recording()
        emulated.reset_counters()
        emulated.configure(record={"workgroup": None, "only": False} if bench.numbers else None)
    try:
        done = uploaded_call(plan, posed, {}, 0, UNTIMED if emulated else _TIMING)
    finally:
        plan.close()
    if done.ran.kernels[0] != case.key.name:
        raise LaunchError(f"dispatch took {done.ran.kernels[0]} for it.", kind="other-kernel")
    cells: dict[str, Cell] = dict(_counts(bench, emulated, case) if emulated else rates(case.shape, done.ran.median))
    if verify:
        cells |= _verdict(case, arrays, done)
    return {**cells, "device": bench.device.kind, "library": bench.manifest.library_sha256}


def _plan(bench: SweepBench, case: SweepCase, posed: Posed) -> LaunchPlan:
    """Make a plan of the case's kernel, named if launches take a name.

    Dispatch chooses the kernels of later stages.
    """
    p = replace(posed.problem, min_seqlen_q=1 if case.key.skip else 0)
    named = bench.library.arguments.BY_NAME
    return LaunchPlan(validate(p), bench.device, bench.library, kernels=(case.key.name,), named=named)


def _counts(bench: SweepBench, device: EmulatedDevice, case: SweepCase) -> dict[str, Cell]:
    """The emulator's counts, and the cycles that the timing model gives the launch on an otherwise idle GPU."""
    totals = flatten(device.counters())
    return {**{name: totals[name] for name in COUNTS}, "modelled_cycles": _model_cycles(bench, device, case)}


def _model_cycles(bench: SweepBench, device: EmulatedDevice, case: SweepCase) -> int | None:
    """The longest workgroup's cycles, together with all other resident ones, times the rounds of the grid.

    None for several stages, of which only one is recorded.
    """
    recording = device.recorded_workgroup()
    if bench.numbers is None or recording is None or len({key.family for key in bench.keys}) > 1:
        return None
    occupancy = bench.manifest.kernels[case.key.name].archs[device.arch].occupancy_waves
    possible = max(occupancy * SIMDS // len(recording["instructions"]), 1)
    launched, units = int(recording["launched"]), device.compute_units
    resident = min(possible, -(-launched // units))
    replayed = device.replay(values(bench.numbers, resident))
    return int(replayed["cycles"]) * -(-launched // (units * resident))


def _verdict(case: SweepCase, arrays: Tensors, done: Attention) -> dict[str, Cell]:
    """Compare O, and LSE if there is one, with the float64 reference."""
    s, p = case.shape, done.problem
    o, lse = reference.attention(p, *arrays.sequences, **arrays.more)
    got = done.o
    if s.mode == "batch":
        got = np.concatenate(list(got.swapaxes(1, 2) if p.layout == "BHSD" else got))
    verdicts = [reference.agreement(got, o, s.dtype)]
    if done.lse is not None:
        kernel_lse = done.lse if s.mode == "group" else np.concatenate(list(done.lse), axis=1)
        verdicts.append(reference.agreement(kernel_lse, lse, "lse"))
    worst = max(verdict.worst for verdict in verdicts)
    # JSON has no infinity, which stands for NaN
    return {
        "agrees": all(verdict.passed for verdict in verdicts),
        "tolerance_used": worst if np.isfinite(worst) else "nan",
    }


def describe(case: SweepCase) -> dict[str, Cell]:
    """The columns that name a case: its shape and its kernel."""
    named = vars(identity(case.key))
    return {
        "problem_name": case.shape.name,
        **{name: getattr(case.shape, name) for name in SHAPE},
        **{RENAMED.get(name, name): value for name, value in named.items()},
        "layout": case.shape.layout,
    }


def rates(shape: ListedShape, milliseconds: float) -> dict[str, Cell]:
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


_SECONDS = 2.0  # between two writes of the results

_REFUSED = (Status.UNSUPPORTED, Status.NO_KERNEL)


def libraries_of(sweep: SweepRequest, toolchain: str, work: Path, jobs: int) -> list[Path]:
    """Build libraries in which each kernel can be launched, and return their paths."""
    built = []
    for at, keys in enumerate(layers(sweep.keys), start=1):
        folder = work / f"layer-{at}"
        folder.mkdir(parents=True, exist_ok=True)
        library_request = request(sweep, keys, toolchain, Path(os.path.realpath(folder)))
        tally = build(library_request, jobs=jobs)
        log.info(f"library {at}: {len(keys)} kernels, {tally.summary()}")
        built.append(library_request.work / library_request.folder / LIBRARY)
    return built


def open_bench(path: Path, device: Device, sweep: SweepRequest) -> SweepBench:
    """Load a library on the device. On the emulator add the timing model's figures."""
    manifest = Manifest.read(path.with_name(MANIFEST))
    digest = check_library(path, manifest)
    by_name = {key.name: key for key in sweep.keys}
    loaded = device.load(path, host(sweep.library).arguments, digest)
    keys: tuple[Key, ...] = tuple(by_name[name] for name in loaded.kernels)
    figures: dict[str, ModelNumber] | None = None
    if device.kind == "emulator":
        with contextlib.suppress(InconclusiveError):  # an arch without figures has counts and no model
            figures = numbers(device.arch)
    return SweepBench(device=device, library=loaded, manifest=manifest, keys=keys, numbers=figures)


def resume(file: Path, sweep: SweepRequest) -> SweepResults:
    """Results of an earlier run of the same sweep, or none yet. Results of another sweep are refused.

    Faults are left out, to be tried again, once every case has a result. Earlier, a fault that ends the process would
    be run again and again, and no later case.
    """
    fresh = SweepResults(request=sweep.facts, kernels=len(sweep.keys), cases=len(sweep.cases))
    if not file.exists():
        return fresh
    earlier = SweepResults.read(file)
    differing = [name for name, value in sweep.facts.items() if earlier.request.get(name) != value]
    if differing:
        raise RecordError(
            f"{file}: results of another run: {differing[0]} differs. Name another --work, or remove the file.",
            kind="benchmark",
        )
    identities = {case.identity for case in sweep.cases}
    rows = tuple(row for row in earlier.rows if (str(row["problem_name"]), str(row["kernel"])) in identities)
    left_out = {
        key: why
        for key, why in earlier.left_out.items()
        if key in identities and not (earlier.finished and why.startswith(FAULT))
    }
    return replace(fresh, rows=rows, left_out=left_out)


def too_large(case: SweepCase, most: int) -> str:
    """The reason why the emulator does not run a case; "" if it does."""
    problem = from_shape(case.shape, case.key.family)
    return f"its wave-instructions are over --most-instructions {most}" if launch_instructions(problem) > most else ""


class SweepProgress:
    """Results as they come, written to ``file`` every few seconds and at the end."""

    def __init__(self, results: SweepResults, file: Path) -> None:
        self.results, self._file, self._written = results, file, 0.0

    def done(self) -> set[tuple[str, str]]:
        """The cases that have a result."""
        ran = {(str(row["problem_name"]), str(row["kernel"])) for row in self.results.rows}
        return ran | set(self.results.left_out)

    def add(self, row: Row) -> None:
        self.results = replace(self.results, rows=(*self.results.rows, row))
        self._write()

    def leave_out(self, case: SweepCase, why: str) -> None:
        self.results = replace(self.results, left_out={**self.results.left_out, case.identity: why})
        self._write()

    def _write(self) -> None:
        if time.monotonic() - self._written > _SECONDS:
            self.write()

    def write(self) -> None:
        """Write the results to the file."""
        self.results.write(self._file)
        self._written = time.monotonic()


def sort_out(cases: Sequence[SweepCase], progress: SweepProgress, *, most: int | None) -> list[SweepCase]:
    """The cases that are still to be run. Cases that can't be run are left out with their reason.

    ``most`` wave-instructions of a launch, None without a limit.
    """
    done, left = progress.done(), []
    for case in cases:
        if case.identity in done:
            continue
        why = not_laid_out(case)
        if not why and most is not None:
            why = too_large(case, most)
        if why:
            progress.leave_out(case, why)
        else:
            left.append(case)
    return left


def known_defect(sweep: SweepRequest, key: Key) -> str:
    """The name of the ledger's entry for a kernel, "" without one. An expired entry is an error."""
    problem = SuiteCase(name=f"{FAMILY_SUITE}/{key.name}", suite=FAMILY_SUITE, tier=TIERS[-1], group=key.family)
    ledger = read_ledger()
    entry = ledger.find(problem, source(sweep.tree.name, sweep.tree.dialect), sweep.arch)
    if entry is None:
        return ""
    Ledger(file=ledger.file, entries=(entry,)).check_dates(datetime.date.today())
    return entry.name


def run_library(
    bench: SweepBench, cases: Sequence[SweepCase], sweep: SweepRequest, progress: SweepProgress, *, verify: bool
) -> None:
    """Run the cases of the library's kernels. A case that faults is left out with a reason that begins with FAULT."""
    names = {key.name for key in bench.keys}
    for case in cases:
        if case.key.name not in names:
            continue
        try:
            cells = measure(bench, case, verify=verify)
        except (ProblemError, NoKernelError) as error:
            progress.leave_out(case, str(error).replace("\n", " "))
        except (LaunchError, HipError) as error:
            if error.kind == "other-kernel":
                progress.leave_out(case, str(error).replace("\n", " "))
                continue
            progress.leave_out(case, _end_text(error, case, known_defect(sweep, case.key)))
            if bench.device.fault() is not None:
                bench.device.recover()
                if bench.device.lost:
                    raise DeviceError("the GPU's context is lost: only a new process gets another") from error
        else:
            wrong = known_defect(sweep, case.key) if cells.get("agrees") is False else ""
            order = sweep.order[case.key.name]
            progress.add({**describe(case), **cells, "dispatch_order": order, "known_defect": wrong})


def _end_text(error: LaunchError | HipError, case: SweepCase, defect: str) -> str:
    """The reason of a launch that did not end well: a refusal, a known defect, or a fault."""
    why = str(error).partition("\n")[0]
    if isinstance(error, LaunchError) and any(f": {status.name.lower()}: " in str(error) for status in _REFUSED):
        # without library and kernel, so that equal reasons are counted together
        return why.rpartition(f"{case.key.name}: ")[2]
    return f"known defect {defect}: {why}" if defect else f"{FAULT}{why}"

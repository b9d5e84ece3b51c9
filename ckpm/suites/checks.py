"""One case on a device: its launches and its checks (the CHECKS of ckpm/matrix/problems/case.py).

:func:`run_case` raises nothing for a kernel's errors: a wrong number, a fault or a refusal is the case's result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch import hip_api, launching
from ckpm.attention.launch.buffers import POISON, prepare
from ckpm.attention.launch.c_abi import Library
from ckpm.attention.launch.device import Device, Fault
from ckpm.attention.launch.launching import LaunchOutcome
from ckpm.attention.philox import drawn
from ckpm.attention.reference import Expected, exact, visible
from ckpm.attention.tolerances import all_zero_rows, compare_lse, compare_o, mean_shift
from ckpm.base.errors import HipError
from ckpm.kernels.abi import Status
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import BATCH_CHECKS, PAIRWISE, SuiteCase, counterpart, other_batches
from ckpm.matrix.problems.problem import is_tile_taken
from ckpm.matrix.problems.serving import missing_kernel, missing_load, refused_for, serves, serving_kernels
from ckpm.suites.signatures import FAULTS, why_not_predicted

RESULTS = ("passed", "wrong", "fault", "timeout", "unsupported", "infrastructure")
_GPU_PAGE = 4096
_OTHER_FAULTS = {"timeout": "timeout", "unknown": "infrastructure", "internal": "infrastructure"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseBench:
    """A library on a device. ``keys`` are its kernels in dispatch order."""

    device: Device
    library: Library
    keys: tuple[Key, ...]

    def key(self, name: str) -> Key | None:
        return next((key for key in self.keys if key.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """``outcome`` is one of RESULTS; ``message`` its reason in one line; ``lines`` all findings.

    ``tolerance_used`` is the largest error over what is allowed there, None if nothing was compared. ``mean_shift`` is
    the mean error of O furthest from 0 (ckpm/attention/tolerances.py), None for too few elements. ``signature``:
    "" if the case fails exactly as the ledger describes, else the difference; None if it was not checked.
    ``same_batches``: the BATCH_CHECKS in which the kernel gave the same bits. ``executed``: the machine code of each
    kernel that ran (Device.executed_ranges).
    """

    outcome: str
    message: str = ""
    lines: tuple[str, ...] = ()
    kernel: str = ""
    seconds: float = 0.0
    tolerance_used: float | None = None
    mean_shift: float | None = None
    fault: Mapping[str, Any] = field(default_factory=dict)
    counters: Mapping[str, Any] = field(default_factory=dict)
    signature: str | None = None
    same_batches: tuple[str, ...] = ()
    executed: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)


class EndError(Exception):
    """Ends a case early with its outcome."""

    def __init__(self, outcome: str, message: str, fault: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.outcome, self.message, self.fault = outcome, message, fault or {}


class _Case:
    """The state of one case: its launches and their results."""

    def __init__(self, bench: CaseBench, problem: SuiteCase) -> None:
        self.bench, self.problem = bench, problem
        self.lines: list[str] = []
        self.kernel = ""
        self.seconds = 0.0
        self.tolerance_used: float | None = None
        self.mean_shift: float | None = None
        self.counters: Mapping[str, Any] = {}
        self.expected: Expected | None = None
        self.last: LaunchOutcome | None = None  # of the launches of the problem itself
        self.wrong: LaunchOutcome | None = None  # the launch whose numbers failed the case

    # ---- launching

    def configure(self, options: Mapping[str, Any], label: str) -> None:
        if self.bench.device.has("granularity"):
            granularity = 1 if "guard_page" in self.problem.checks else _GPU_PAGE
            self.bench.device.configure(**{"granularity": granularity, **options})
        if label:
            self.lines.append(f"{label}:")

    def launch(self, problem: SuiteCase, kernel: str | None) -> LaunchOutcome:
        """Launch a problem. Raises EndError for a fault."""
        prepared = prepare(problem, self.bench.device.arch)
        outcome = launching.run_problem(self.bench.device, self.bench.library, prepared, kernel)
        self.seconds += outcome.seconds
        self.counters = outcome.counters or self.counters
        self.kernel = outcome.launch.kernel or kernel or ""
        self.last = outcome if problem is self.problem else self.last
        if outcome.fault is not None:
            raise EndError(outcome_of(outcome.fault), in_a_line(outcome.fault), dict(outcome.fault.fields))
        return outcome

    def run_launch(self, problem: SuiteCase, kernel: str | None) -> LaunchOutcome:
        outcome = self.launch(problem, kernel)
        status = outcome.launch.status
        if status == Status.HIP_ERROR:
            more = self.bench.device.hip.explanation()
            raise EndError("infrastructure", f"the launch failed: {outcome.launch.message}" + (more and f": {more}"))
        if status == Status.UNSUPPORTED and (load := missing_load(self.bench.keys, problem)):
            raise EndError("unsupported", refused_for(load))
        if status != Status.OK:
            raise EndError("wrong", f"refused ({status.name.lower()}): {outcome.launch.message}")
        return outcome

    # ---- looking

    def reference(self, outcome: LaunchOutcome) -> Expected:
        """The reference's outputs, the same for every launch of the case."""
        if self.expected is None:
            p = self.problem
            self.expected = exact(outcome.prepared.inputs, drawn(p) if p.p_drop else None)
        return self.expected

    def examine(self, outcome: LaunchOutcome) -> None:
        """Compare one launch with the reference. Raises EndError with all errors."""
        p, expected, o = self.problem, self.reference(outcome), outcome.o()
        bad = []
        comparisons = [compare_o(p, o, expected)]
        if p.lse:
            comparisons.append(compare_lse(p, outcome.lse().astype(np.float64), expected))
        for comparison in comparisons:
            self.lines.append(str(comparison))
            self.tolerance_used = max(comparison.worst, self.tolerance_used or 0.0)
            if not comparison.passed:
                bad.append(str(comparison))
        if (shift := mean_shift(p, o, expected)) is not None:
            self.lines.append(f"O: mean error {shift:+.2f} of a step of its format, away from 0")
            self.mean_shift = max(shift, self.mean_shift or 0.0, key=abs)
        if "nan_canary" in p.checks and (count := int(np.isnan(o).sum())):
            bad.append(f"{count} of {o.size} elements of O are NaN: something that no sequence owns was read")
        if "nonzero" in p.checks and (rows := all_zero_rows(o, expected)):
            bad.append(f"{rows} rows of O are all zero: a page was not read")
        bad += self.beside_the_numbers(outcome)
        if bad:
            self.wrong = outcome
            raise EndError("wrong", "; ".join(bad))

    def beside_the_numbers(self, outcome: LaunchOutcome) -> list[str]:
        """Errors in random values and between the rows of outputs."""
        p, bad = self.problem, []
        if p.p_drop and p.store_randval:
            bad += foreign_random_values(p, outcome.random_values())
        if "output_gaps" in p.checks:
            gaps = outcome.written_gaps().items()
            bad += [f"{count} elements between the rows of {name.upper()} were written" for name, count in gaps]
        return bad

    def same_bits(self, check: str, first: LaunchOutcome) -> None:
        """Launch the problems that must give the same bits, and compare. Raises EndError."""
        p = self.problem
        if check in BATCH_CHECKS:
            for label, other, places in other_batches(p, check):
                self._compare_bits(f"{check}{label}", first, other, places, self.kernel)
            return
        other = counterpart(p, check)
        if (key := self._matching_key(other)) is None:
            self.lines.append(f"{check}: not compared, the library has no such kernel")
            return
        self._compare_bits(check, first, other, {sequence: sequence for sequence in range(p.batch)}, key.name)

    def _compare_bits(
        self, check: str, first: LaunchOutcome, other: SuiteCase, places: Mapping[int, int], kernel: str
    ) -> None:
        """Launch the other problem, and compare each sequence with the one at its place. Raises EndError."""
        own_kernel = self.kernel
        second = self.run_launch(other, kernel)
        self.kernel = own_kernel
        left_rows, right_rows = _rows(self.problem, places.keys()), _rows(other, places.values())
        pairs = {"O": (first.o_bits()[left_rows], second.o_bits()[right_rows])}
        if self.problem.lse:
            pairs["LSE"] = (first.lse()[:, left_rows].view(np.uint32), second.lse()[:, right_rows].view(np.uint32))
        for name, (left, right) in pairs.items():
            different = int((left != right).sum())
            if different:
                position = tuple(int(at) for at in np.argwhere(left != right)[0])
                raise EndError(
                    "wrong", f"{check}: {different} of {left.size} elements of {name} differ, first {position}"
                )
        self.lines.append(f"{check}: same bits")

    def _matching_key(self, other: SuiteCase) -> Key | None:
        """The kernel that serves the other problem and differs least from this case's kernel."""
        own = self.bench.key(self.kernel)
        if own is None:
            return None
        wanted = dataclasses.replace(other, tile_rows=own.tile.bm0)
        rows = own.row()
        able = serving_kernels(self.bench.keys, wanted)
        return min(able, key=lambda key: sum(key.row()[name] != rows[name] for name in rows), default=None)


def _rows(p: SuiteCase, sequences: Iterable[int]) -> NDArray[np.int64]:
    """The rows of O of these sequences, one sequence after another."""
    ends = np.cumsum((0, *p.seqlens_q))
    return np.concatenate([np.arange(ends[sequence], ends[sequence + 1]) for sequence in sequences])


def foreign_random_values(p: SuiteCase, stored: Sequence[NDArray[Any]]) -> list[str]:
    """Report stored random bytes that the generator does not draw.

    Where no query sees a key, a byte may also be unchanged: the kernel leaves out tiles that no query sees.
    """
    bad = []
    for sequence, (values, want) in enumerate(zip(stored, drawn(p), strict=True)):
        seen = visible(p, p.seqlens_q[sequence], p.seqlens_k[sequence])
        other = (values != want) & (seen | (values != POISON))
        if count := int(other.sum()):
            head, row, column = (int(at) for at in np.argwhere(other)[0])
            bad.append(
                f"{count} of {other.size} random values of sequence {sequence} are not Philox's, first that of head "
                f"{head}, query {row}, key {column}"
            )
    return bad


def run_case(
    bench: CaseBench, problem: SuiteCase, variants: Sequence[Mapping[str, Any]] = ({},), signatures: Sequence[str] = ()
) -> Result:
    """Run a case once for each set of device options, and stop at the first failure.

    ``signatures`` are those of the case's known defect (ckpm/suites/signatures.py). A second signature is checked
    after the input that faults is removed.
    """
    case = _Case(bench, problem)
    bench.device.restart_addresses()  # a fault's text doesn't depend on the cases before it
    bench.device.reset_executed()
    signature = None
    try:
        outcome, message, fault = _run(case, variants)
    except EndError as end:
        outcome, message, fault = end.outcome, end.message, end.fault
    except HipError as error:
        lost = error.error in hip_api.INFRASTRUCTURE
        outcome, message, fault = ("infrastructure" if lost else "fault"), str(error), {}
    except MemoryError as error:
        outcome, message, fault = "infrastructure", f"out of memory: {error}", {}
    executed = bench.device.executed_ranges()
    try:
        if signatures and outcome in ("wrong", "fault"):
            signature = _why_not(case, outcome, variants, signatures)
    finally:
        if bench.device.has("granularity"):
            bench.device.configure()
    return Result(
        outcome=outcome,
        message=message,
        lines=tuple(case.lines),
        kernel=case.kernel,
        seconds=case.seconds,
        tolerance_used=case.tolerance_used,
        mean_shift=case.mean_shift,
        fault=fault,
        counters=case.counters,
        signature=signature,
        same_batches=tuple(check for check in BATCH_CHECKS if outcome == "passed" and check in problem.checks),
        executed=executed,
    )


def _why_not(case: _Case, outcome: str, variants: Sequence[Mapping[str, Any]], signatures: Sequence[str]) -> str | None:
    """Differences from the signatures; None if a fault's access is unknown."""
    name, *rest = signatures
    last, key = case.last, case.bench.key(case.kernel)
    if last is None or (outcome == "fault") != (name in FAULTS):
        return f"the case ended as {outcome}, but {name} describes another outcome"
    if outcome == "wrong":
        if case.wrong is not last:  # a choice of dispatch, a refusal, bits of two launches
            return "it failed otherwise than by its numbers"
        if key is None:
            return f"no kernel {case.kernel}"
        bad = [*case.beside_the_numbers(last), why_not_predicted(name, last, key)]
        return "; ".join(filter(None, bad))
    if not last.fault or "access" not in last.fault.fields:
        return None
    looked_at, without = FAULTS[name]
    other = without(case.problem)
    if (why := looked_at(last)) or other is None:
        return why
    again = run_case(case.bench, other, variants, rest)
    case.lines += [f"without {name}:", *again.lines]
    if again.outcome == "passed" and not rest:
        return ""
    return again.signature if rest and again.signature is not None else f"without it: {again.outcome}: {again.message}"


def outcome_of(fault: Fault) -> str:
    """The outcome of a fault: an instruction that the emulator lacks and a lost device are `infrastructure`."""
    if fault.kind == "hip":
        if fault.error == hip_api.TIMED_OUT:
            return "timeout"
        return "infrastructure" if fault.error in hip_api.INFRASTRUCTURE else "fault"
    return _OTHER_FAULTS.get(fault.kind, "fault")


def in_a_line(fault: Fault) -> str:
    """A fault in one line. The kernel's mangled name is left out: the result has its own."""
    lines = (line.strip() for line in fault.message.splitlines())
    return "; ".join(line for line in lines if not line.startswith("kernel "))


def _run(case: _Case, variants: Sequence[Mapping[str, Any]]) -> tuple[str, str, Mapping[str, Any]]:
    problem, bench = case.problem, case.bench
    placed = problem.placement != "default" or "freed_pages" in problem.checks
    if placed and not bench.device.has("placement"):
        return "unsupported", "this device doesn't place buffers", {}
    if problem.expect != "ok":
        return *_refusal(case), {}
    if reason := missing_kernel(bench.keys, problem):
        return "unsupported", reason, {}
    if not problem.tile_rows and not _able(case):
        return "unsupported", "dispatch takes this library's kernel for few blocks only", {}
    if "guard_page" in problem.checks and not bench.device.has("granularity"):
        case.lines.append("guard_page: this device maps the memory after a buffer")
    named = None
    if problem.tile_rows:
        named = serving_kernels(bench.keys, problem)[0].name
    firsts: list[LaunchOutcome] = []
    for options in variants:
        case.configure(options, ", ".join(f"{name} {value}" for name, value in options.items()))
        outcome = case.run_launch(problem, named)
        if named is None:
            _check_choice(case)
            named = case.kernel
        case.examine(outcome)
        if firsts and not np.array_equal(firsts[0].o_bits(), outcome.o_bits()):
            return "wrong", "O differs between two orders of the same waves: a race", {}
        firsts.append(outcome)
        for check in PAIRWISE:
            if check in problem.checks:
                case.same_bits(check, outcome)
        if "v3_off" in problem.checks:
            _without_v3(case)
    return "passed", "", {}


def _check_choice(case: _Case) -> None:
    """Check that dispatch chose a kernel that serves the problem, and the right tile.

    The right tile is the tile of the first kernel with the chosen kernel's load mode.
    """
    p, key = case.problem, case.bench.key(case.kernel)
    if key is None:
        raise EndError("wrong", f"the library chose '{case.kernel}', which its manifest doesn't list")
    if not serves(key, p):
        raise EndError("wrong", f"dispatch chose {key.name}: {missing_kernel([key], p)}")
    case.lines.append(f"dispatch chose {key.name}")
    first = next(candidate for candidate in _able(case) if candidate.load == key.load)
    if key.tile != first.tile:
        raise EndError("wrong", f"dispatch chose a tile of {key.tile.bm0} rows where {first.name} comes first")


def _without_v3(case: _Case) -> None:
    """Check that V2 is chosen, and is right, if V3 is turned off. Raises EndError."""
    off, own_kernel = dataclasses.replace(case.problem, v3="off"), case.kernel
    if missing_kernel(case.bench.keys, off):
        case.lines.append("v3_off: not compared, the library has no such kernel of V2")
        return
    outcome = case.run_launch(off, None)
    key = case.bench.key(case.kernel)
    if key is None or not serves(key, off):
        raise EndError("wrong", f"v3_off: dispatch chose {case.kernel}")
    case.examine(outcome)
    case.lines.append(f"v3_off: dispatch chose {key.name}")
    case.kernel = own_kernel


def _able(case: _Case) -> list[Key]:
    """Kernels that serve the problem and that dispatch may choose: some tiles are for few blocks alone."""
    p, bench = case.problem, case.bench
    shape = p.batch, p.nhead_q, max(p.seqlens_q), bench.device.compute_units
    return [key for key in serving_kernels(bench.keys, p) if is_tile_taken(key.tile.when, *shape)]


def _refusal(case: _Case) -> tuple[str, str]:
    """Check that a request without a kernel is refused with a reason, and that nothing is written."""
    p = case.problem
    case.configure({}, "")
    outcome = case.launch(p, None)
    status, reason = outcome.launch.status, outcome.launch.message
    case.lines.append(f"{status.name.lower()}: {reason}")
    allowed = (Status.BAD_PROBLEM,) if p.expect == "refused" else (Status.UNSUPPORTED, Status.BAD_PROBLEM)
    if status not in allowed:
        return "wrong", f"should be refused, but ended with {status.name.lower()} {reason} {case.kernel}".rstrip()
    if not reason:
        return "wrong", "refused without a reason"
    if not (outcome.outputs["o"] == POISON).all():
        return "wrong", "refused, but O was written"
    return "passed", ""

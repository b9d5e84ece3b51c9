"""A case for each kernel of a fwd or backward library: launches that dispatch sends to it, compared with float64.

A wrong number or a fault is a result of :func:`run_kernel`, as of checks.run_case, and not an exception.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ckpm.attention.launch import hip_api
from ckpm.attention.launch.c_abi import Library
from ckpm.attention.launch.device import Device
from ckpm.base.errors import HipError, InconclusiveError
from ckpm.kernels.abi import AppendKvArguments, BwdArguments, CheckedArguments, FwdArguments, Status
from ckpm.kernels.families.family import Scenario
from ckpm.kernels.families.libraries import host
from ckpm.kernels.families.table import FAMILIES
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.sessions import FAMILY_SUITE
from ckpm.suites import appendkv_cases, backward_cases, fwd_cases
from ckpm.suites.checks import CaseBench, EndError, Result, in_a_line, outcome_of
from ckpm.suites.fwd_cases import Ended
from ckpm.suites.suites import Case

_RUN: Mapping[type[CheckedArguments], Callable[[SuiteCase, Device, Library], Ended]] = {  # by the library's C ABI
    AppendKvArguments: appendkv_cases.run_case,
    BwdArguments: backward_cases.run_case,
    FwdArguments: fwd_cases.run_case,
}
_CHECKS = ("poison", "poison_memory", "late_loads", "lds_races")


@dataclass(slots=True)
class _Record:
    """Findings of a case until now."""

    lines: list[str] = field(default_factory=list)
    others: set[str] = field(default_factory=set)  # kernels that were chosen instead
    tolerance_used: float | None = None
    shows: frozenset[str] = frozenset()  # signatures of the ledger that the wrong numbers show


def cases(keys: Sequence[Key], glob: str = "*") -> tuple[Case, ...]:
    """Return a case for each kernel whose name, with or without the suite, fits ``glob``."""
    glob = glob.removeprefix(f"{FAMILY_SUITE}/")
    fitting = [key for key in keys if fnmatch.fnmatchcase(key.name, glob)]
    if not fitting:
        raise InconclusiveError(f"none of the library's {len(keys)} kernels fits '{glob}'.", kind="nothing-ran")
    return tuple(_case(key, keys) for key in fitting)


def _case(key: Key, keys: Sequence[Key]) -> Case:
    """The case of a kernel. It has the first launch's problem, because workers derive all launches from the key again.

    Its time limit follows from the number of variants: one for each launch.
    """
    scenarios = () if FAMILIES[key.family].not_laid_out(key) else _scenarios(key, keys)
    launches = [launch for scenario in scenarios for launch in (*scenario.candidates, scenario.candidates[0])]
    unknown = SuiteCase(name="", suite=FAMILY_SUITE, tier="full", group=key.family)
    problem = dataclasses.replace(launches[0] if launches else unknown, name=f"{FAMILY_SUITE}/{key.name}")
    return Case(problem=problem, variants=({},) * max(1, len(launches)))


def _scenarios(key: Key, keys: Sequence[Key]) -> tuple[Scenario, ...]:
    scenarios = FAMILIES[key.family].scenarios
    return () if scenarios is None else scenarios(key, keys)


def variants(device: Device, library: Library) -> tuple[Mapping[str, Any], ...]:
    """Device options to run a kernel with, the plain ones first; on the emulator then its checks."""
    if not device.has("checks"):
        return ({},)
    checks: dict[str, Any] = dict.fromkeys(_CHECKS, True)
    return ({}, {**checks, "lds_races": host(library.family).races, "wave_order": 1})


def run_kernel(bench: CaseBench, name: str, signatures: Sequence[str] = ()) -> Result:
    """Run each scenario of the kernel ``name``. The first that fails ends the case.

    ``signatures`` are those of its known defect, of which the failure must show the first.
    """
    key = next(key for key in bench.keys if name in (key.name, f"{FAMILY_SUITE}/{key.name}"))
    record = _Record()
    bench.device.restart_addresses()
    bench.device.reset_executed()
    fault: Mapping[str, Any] = {}
    try:
        outcome, message = _run_scenarios(bench, key, record)
    except EndError as end:
        outcome, message, fault = end.outcome, end.message, end.fault
    except MemoryError as error:
        outcome, message = "infrastructure", f"out of memory: {error}"
    finally:
        if bench.device.has("checks"):
            bench.device.configure()
    return Result(
        outcome=outcome,
        message=message,
        lines=tuple(record.lines),
        kernel=key.name,
        tolerance_used=record.tolerance_used,
        fault=fault,
        signature=_why_not(signatures, outcome, fault, record) if signatures else None,
        executed=bench.device.executed_ranges(),
    )


def _why_not(signatures: Sequence[str], outcome: str, fault: Mapping[str, Any], record: _Record) -> str | None:
    """The difference of a failure from the first signature; None if nothing failed or a fault's access is unknown."""
    if outcome not in ("wrong", "fault") or (outcome == "fault" and "access" not in fault):
        return None
    shows = record.shows if outcome == "wrong" else {"waves_race_in_lds"} if fault["kind"] == "race" else set()
    return "" if signatures[0] in shows else f"it does not show {signatures[0]}"


def _run_scenarios(bench: CaseBench, key: Key, record: _Record) -> tuple[str, str]:
    if reason := FAMILIES[key.family].not_laid_out(key):
        return "unsupported", f"needs what these suites don't provide yet: {reason}"
    wanted = _scenarios(key, bench.keys)
    if not wanted:
        return "unsupported", "the library has no first-stage kernel that leads to it and can be run"
    reached = [_scenario(bench, key, scenario, record) for scenario in wanted]
    if any(reached):  # dispatch may prefer another kernel in some scenarios (families/kernel_problems.py)
        return "passed", ""
    if record.others:
        return "unsupported", f"dispatch sends every candidate to {' or '.join(sorted(record.others))}"
    return "unsupported", "dispatch finds no kernel for any candidate"


def _scenario(bench: CaseBench, key: Key, scenario: Scenario, record: _Record) -> bool:
    """True if one of the candidates reached the kernel. Raises EndError: a launch failed, or its numbers are wrong."""
    for candidate in scenario.candidates:
        _configure(bench, {})
        first = _launch(bench, candidate, record)
        if key.name not in first.launch.kernels:
            record.others |= set(first.launch.kernels[:1])
            record.lines.append(f"{scenario.label}, {candidate}: {_elsewhere(first)}")
            continue
        record.lines.append(f"{scenario.label}, {candidate}: {' and '.join(first.launch.kernels)}")
        record.lines += first.lines
        if first.tolerance_used is not None:
            record.tolerance_used = max(first.tolerance_used, record.tolerance_used or 0.0)
        for options in variants(bench.device, bench.library)[1:]:
            _configure(bench, options)
            record.lines.append(", ".join(f"{name} {value}" for name, value in options.items()) + ":")
            try:
                again = _launch(bench, candidate, record)
            except EndError as end:  # a check may know why the numbers are wrong
                raise EndError(end.outcome, "; ".join((*first.wrong, end.message)), end.fault) from end
            record.lines += again.lines
            _examine(first, record)
            _examine(again, record)
            if not all(map(np.array_equal, first.outputs, again.outputs)):
                raise EndError("wrong", f"{scenario.label}: outputs differ between two orders of the same waves")
        _examine(first, record)
        return True
    return False


def _elsewhere(ended: Ended) -> str:
    if ended.launch.status == Status.OK:
        return f"dispatch chose {' and '.join(ended.launch.kernels)}"
    return f"{ended.launch.status.name.lower()}, {ended.launch.message}"


def _launch(bench: CaseBench, candidate: SuiteCase, record: _Record) -> Ended:
    """Launch the kernels that dispatch chooses, and compare. A launch without a kernel is returned, too.

    Raises EndError: a fault, a call of HIP that failed, or a problem that the library refuses as contradictory.
    """
    try:
        ended = _RUN[bench.library.arguments](candidate, bench.device, bench.library)
    except HipError as error:
        record.lines.append(str(candidate))
        lost = error.error in hip_api.INFRASTRUCTURE
        raise EndError("infrastructure" if lost else "fault", str(error)) from error
    if ended.fault is not None:
        kernels = " and ".join(ended.launch.kernels)
        record.lines.append(f"{candidate}: {kernels}" if kernels else str(candidate))
        raise EndError(outcome_of(ended.fault), in_a_line(ended.fault), dict(ended.fault.fields))
    if ended.launch.status == Status.HIP_ERROR:
        record.lines.append(f"{candidate}: {' and '.join(ended.launch.kernels)}")
        raise EndError("infrastructure", f"the launch failed: {ended.launch.message}")
    if ended.launch.status == Status.BAD_PROBLEM:
        raise EndError("infrastructure", f"{candidate}: the library refuses it: {ended.launch.message}")
    return ended


def _examine(ended: Ended, record: _Record) -> None:
    if ended.wrong:
        record.shows = ended.shows
        raise EndError("wrong", "; ".join(ended.wrong))


def _configure(bench: CaseBench, options: Mapping[str, Any]) -> None:
    if bench.device.has("checks"):
        bench.device.configure(**options)

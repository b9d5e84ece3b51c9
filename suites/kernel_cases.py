"""A case for each kernel of a library of fwd's or the backward families: what dispatch sends to it, against float64.

As checks.run_case, :func:`run_kernel` never raises for what a kernel did: a wrong number or a fault is the result.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ckpm.attention.launch import hip_api
from ckpm.attention.launch.c_abi import Library
from ckpm.attention.launch.device import Device
from ckpm.base.errors import HipError, InconclusiveError, LibraryError
from ckpm.kernels.abi import AppendKvArguments, BwdArguments, CheckedArguments, FwdArguments, Status
from ckpm.kernels.families.family import Scenario
from ckpm.kernels.families.fwd_appendkv import AppendRequest
from ckpm.kernels.families.libraries import host
from ckpm.kernels.families.table import FAMILIES
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import FAMILY_SUITE, SuiteCase
from ckpm.suites import appendkv_cases, backward_cases, fwd_cases
from ckpm.suites.checks import Result, in_a_line, outcome_of
from ckpm.suites.fwd_cases import Ended
from ckpm.suites.suites import Case

Request = SuiteCase | AppendRequest
_RUN: Mapping[type[CheckedArguments], Callable[[Any, Device, Library], Ended]] = {  # by the library's C ABI
    AppendKvArguments: appendkv_cases.run_case,
    BwdArguments: backward_cases.run_case,
    FwdArguments: fwd_cases.run_case,
}
_CHECKS = ("poison", "poison_memory", "late_loads", "lds_races")


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyBench:
    """A library of one of fwd's families on a device. ``keys`` are its kernels in its own order."""

    device: Device
    library: Library
    keys: tuple[Key, ...]


@dataclass(slots=True)
class _Record:
    """Findings of a case until now."""

    lines: list[str] = field(default_factory=list)
    others: set[str] = field(default_factory=set)  # kernels that were chosen instead
    tolerance_used: float | None = None


class _EndError(Exception):
    """Ends a case early with its outcome."""

    def __init__(self, outcome: str, message: str, fault: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.outcome, self.message, self.fault = outcome, message, fault or {}


def open_library(device: Device, path: Path, library: str) -> Library:
    """A built library by its name in libraries.py. Raises LibraryError: it can't be opened, or is another."""
    loaded = device.load(path, host(library).arguments)
    if loaded.family != library:
        raise LibraryError(f"{path}: it holds kernels of {loaded.family}, not of {library}. Ask for that --family.")
    return loaded


def cases(keys: Sequence[Key], glob: str = "*") -> tuple[Case, ...]:
    """A case for each kernel whose name, with or without the suite, fits ``glob``.

    Raises:
        InconclusiveError: none does.
    """
    glob = glob.removeprefix(f"{FAMILY_SUITE}/")
    fitting = [key for key in keys if fnmatch.fnmatchcase(key.name, glob)]
    if not fitting:
        raise InconclusiveError(f"none of the library's {len(keys)} kernels fits '{glob}'.", kind="nothing-ran")
    return tuple(_case(key, keys) for key in fitting)


def _case(key: Key, keys: Sequence[Key]) -> Case:
    """Make a case of the first problem and a variant for each launch, which bound its time. Workers derive it again."""
    scenarios = () if FAMILIES[key.family].not_laid_out(key) else _scenarios(key, keys)
    launches = [one for scenario in scenarios for one in (*scenario.candidates, scenario.candidates[0])]
    problems = [one for one in launches if isinstance(one, SuiteCase)]
    unknown = SuiteCase(name="", suite=FAMILY_SUITE, tier="full", group=key.family)
    problem = dataclasses.replace(problems[0] if problems else unknown, name=f"{FAMILY_SUITE}/{key.name}")
    return Case(problem=problem, variants=({},) * max(1, len(launches)))


def _scenarios(key: Key, keys: Sequence[Key]) -> tuple[Scenario, ...]:
    made = FAMILIES[key.family].scenarios
    return () if made is None else made(key, keys)


def variants(device: Device, library: Library) -> tuple[Mapping[str, Any], ...]:
    """Device options to run a kernel with, the plain ones first; on the emulator then its checks."""
    if not device.has("checks"):
        return ({},)
    checks: dict[str, Any] = dict.fromkeys(_CHECKS, True)
    return ({}, {**checks, "lds_races": host(library.family).races, "wave_order": 1})


def run_kernel(bench: FamilyBench, name: str) -> Result:
    """Run each scenario of the kernel ``name``. The first that fails ends the case."""
    key = next(key for key in bench.keys if name in (key.name, f"{FAMILY_SUITE}/{key.name}"))
    record = _Record()
    bench.device.restart_addresses()
    fault: Mapping[str, Any] = {}
    try:
        outcome, message = _run_scenarios(bench, key, record)
    except _EndError as end:
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
    )


def _run_scenarios(bench: FamilyBench, key: Key, record: _Record) -> tuple[str, str]:
    if reason := FAMILIES[key.family].not_laid_out(key):
        return "unsupported", f"needs what these suites don't provide yet: {reason}"
    wanted = _scenarios(key, bench.keys)
    if not wanted:
        return "unsupported", "this library has no first stage that leads to it and can be run"
    reached = [_scenario(bench, key, scenario, record) for scenario in wanted]
    if any(reached):
        return "passed", ""
    if record.others:
        return "unsupported", f"dispatch sends every candidate to {' or '.join(sorted(record.others))}"
    return "unsupported", "dispatch finds no kernel for any candidate"


def _scenario(bench: FamilyBench, key: Key, scenario: Scenario, record: _Record) -> bool:
    """True if one of the candidates reached the kernel. Raises _EndError if that went wrong."""
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
            except _EndError as end:  # a check may know why the numbers are wrong
                raise _EndError(end.outcome, "; ".join((*first.wrong, end.message)), end.fault) from end
            record.lines += again.lines
            _examine(first)
            _examine(again)
            if not all(map(np.array_equal, first.outputs, again.outputs)):
                raise _EndError("wrong", f"{scenario.label}: outputs differ between two orders of the same waves")
        _examine(first)
        return True
    return False


def _elsewhere(ended: Ended) -> str:
    if ended.launch.status == Status.OK:
        return f"dispatch chose {' and '.join(ended.launch.kernels)}"
    return f"{ended.launch.status.name.lower()}, {ended.launch.message}"


def _launch(bench: FamilyBench, candidate: Request, record: _Record) -> Ended:
    """Launch what dispatch chooses and compare. Raises _EndError for a fault; a refusal is returned."""
    try:
        ended = _RUN[bench.library.arguments](candidate, bench.device, bench.library)
    except HipError as error:
        record.lines.append(str(candidate))
        lost = error.error in hip_api.INFRASTRUCTURE
        raise _EndError("infrastructure" if lost else "fault", str(error)) from error
    if ended.fault is not None:
        kernels = " and ".join(ended.launch.kernels)
        record.lines.append(f"{candidate}: {kernels}" if kernels else str(candidate))
        raise _EndError(outcome_of(ended.fault), in_a_line(ended.fault), dict(ended.fault.fields))
    if ended.launch.status == Status.HIP_ERROR:
        record.lines.append(f"{candidate}: {' and '.join(ended.launch.kernels)}")
        raise _EndError("infrastructure", f"the launch failed: {ended.launch.message}")
    if ended.launch.status == Status.BAD_PROBLEM:
        raise _EndError("infrastructure", f"{candidate}: the library refuses it: {ended.launch.message}")
    return ended


def _examine(ended: Ended) -> None:
    if ended.wrong:
        raise _EndError("wrong", "; ".join(ended.wrong))


def _configure(bench: FamilyBench, options: Mapping[str, Any]) -> None:
    if bench.device.has("checks"):
        bench.device.configure(**options)

"""Every case of a benchmark, library by library: built, run, and written down one by one."""

from __future__ import annotations

import contextlib
import datetime
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ckpm.attention.launch.device import Device
from ckpm.attention.problems.shapes import from_shape
from ckpm.attention.sweeps.asked import Asked, request
from ckpm.attention.sweeps.cases import Case
from ckpm.attention.sweeps.cells import describe
from ckpm.attention.sweeps.launching import Bench, measure
from ckpm.attention.sweeps.layers import layers
from ckpm.attention.sweeps.stored.columns import Row
from ckpm.attention.sweeps.stored.record import FAULT, Results
from ckpm.attention.sweeps.tensors import not_laid_out
from ckpm.attention.timing.machine import Number, numbers
from ckpm.base.errors import HipError, InconclusiveError, LaunchError, NoKernelError, ProblemError, RecordError
from ckpm.kernels.abi import Status
from ckpm.kernels.families.libraries import host
from ckpm.kernels.library.command import run as build
from ckpm.kernels.library.manifest import MANIFEST, Manifest, check_library
from ckpm.kernels.library.request import LIBRARY
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import FAMILY_SUITE, TIERS, SuiteCase
from ckpm.matrix.problems.ledger import Ledger, read_ledger, source
from ckpm.matrix.problems.problem import launch_instructions

log = logging.getLogger(__name__)
_SECONDS = 2.0  # between two writes of the results

_REFUSED = (Status.UNSUPPORTED, Status.NO_KERNEL)


def libraries_of(asked: Asked, toolchain: str, work: Path, jobs: int) -> list[Path]:
    """The built libraries, in which each kernel can be launched. Raises as ckpm.kernels.library.command.run."""
    built = []
    for at, keys in enumerate(layers(asked.keys), start=1):
        place = work / f"layer-{at}"
        place.mkdir(parents=True, exist_ok=True)
        one = request(asked, keys, toolchain, place.resolve())
        tally = build(one, jobs=jobs)
        log.info(f"library {at}: {len(keys)} kernels, {tally.summary()}")
        built.append(one.work / one.folder / LIBRARY)
    return built


def open_bench(path: Path, device: Device, asked: Asked) -> Bench:
    """Raises LibraryError, RecordError."""
    manifest = Manifest.read(path.with_name(MANIFEST))
    check_library(path, manifest)
    by_name = {key.name: key for key in asked.keys}
    loaded = device.load(path, host(asked.library).arguments)
    keys: tuple[Key, ...] = tuple(by_name[name] for name in loaded.kernels)
    known: dict[str, Number] | None = None
    if device.kind == "emulator":
        with contextlib.suppress(InconclusiveError):  # an arch without figures has counts and no model
            known = numbers(device.arch)
    return Bench(device=device, library=loaded, manifest=manifest, keys=keys, known=known)


def resume(file: Path, asked: Asked) -> Results:
    """Results of an earlier run of the same question, or none yet.

    Raises:
        RecordError: the file is damaged, or answers another question.
    """
    fresh = Results(asked=asked.facts, kernels=len(asked.keys), cases=len(asked.cases))
    if not file.exists():
        return fresh
    earlier = Results.read(file)
    differing = [name for name, value in asked.facts.items() if earlier.asked.get(name) != value]
    if differing:
        raise RecordError(
            f"{file}: results of another run: {differing[0]} differs. Name another --work, or remove the file.",
            kind="benchmark",
        )
    known = {one.identity for one in asked.cases}
    rows = tuple(row for row in earlier.rows if (str(row["problem_name"]), str(row["kernel"])) in known)
    left_out = {key: why for key, why in earlier.left_out.items() if key in known}
    return replace(fresh, rows=rows, left_out=left_out)


def too_large(case: Case, most: int) -> str:
    """The reason why an emulator does not run it; "" if it does."""
    problem = from_shape(case.shape, case.key.family)
    return f"its wave-instructions are over --most-instructions {most}" if launch_instructions(problem) > most else ""


def _is_refusal(error: Exception) -> bool:
    """True if a library's dispatch has no kernel for a launch, and nothing ran."""
    return isinstance(error, LaunchError) and any(f": {one.name.lower()}: " in str(error) for one in _REFUSED)


class Progress:
    """Results as they come, written to ``file`` every few seconds and at the end."""

    def __init__(self, results: Results, file: Path) -> None:
        self.results, self._file, self._written = results, file, 0.0

    def done(self) -> set[tuple[str, str]]:
        """The cases that need not be run again."""
        ran = {(str(row["problem_name"]), str(row["kernel"])) for row in self.results.rows}
        return ran | set(self.results.left_out)

    def add(self, row: Row) -> None:
        self.results = replace(self.results, rows=(*self.results.rows, row))
        self._write()

    def leave_out(self, case: Case, why: str) -> None:
        self.results = replace(self.results, left_out={**self.results.left_out, case.identity: why})
        self._write()

    def _write(self) -> None:
        if time.monotonic() - self._written > _SECONDS:
            self.write()

    def write(self) -> None:
        """Raises DiskFullError, OutputError."""
        self.results.write(self._file)
        self._written = time.monotonic()


def sort_out(cases: Sequence[Case], progress: Progress, *, most: int | None) -> list[Case]:
    """The cases that are still to be run; those that can't be are left out with their reason.

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


def known_defect(asked: Asked, key: Key) -> str:
    """The ledger's entry for a kernel, "" without one. Raises CheckFailedError: it has expired."""
    problem = SuiteCase(name=f"{FAMILY_SUITE}/{key.name}", suite=FAMILY_SUITE, tier=TIERS[-1], group=key.family)
    ledger = read_ledger()
    entry = ledger.find(problem, source(asked.tree.name, asked.tree.dialect), asked.arch)
    if entry is None:
        return ""
    Ledger(file=ledger.file, entries=(entry,)).check_dates(datetime.date.today())
    return entry.name


def run_library(bench: Bench, cases: Sequence[Case], asked: Asked, progress: Progress, *, verify: bool) -> None:
    """Run the cases of the library's kernels. One that faults is left out with a reason that begins with FAULT.

    Raises:
        DeviceError: the device is lost. CheckFailedError: the ledger's entry for a kernel that is wrong has expired.
    """
    mine = {key.name for key in bench.keys}
    for case in cases:
        if case.key.name not in mine:
            continue
        try:
            cells = measure(bench, case, verify=verify)
        except (ProblemError, NoKernelError) as error:
            progress.leave_out(case, str(error).replace("\n", " "))
        except (LaunchError, HipError) as error:
            if error.kind == "other-kernel":
                progress.leave_out(case, str(error).replace("\n", " "))
                continue
            progress.leave_out(case, _end_text(error, case, known_defect(asked, case.key)))
            if bench.device.fault() is not None:
                bench.device.recover()
        else:
            wrong = known_defect(asked, case.key) if cells.get("agrees") is False else ""
            order = asked.order[case.key.name]
            progress.add({**describe(case), **cells, "dispatch_order": order, "known_defect": wrong})


def _end_text(error: LaunchError | HipError, case: Case, defect: str) -> str:
    """The reason of a launch that did not end well: a refusal, a known defect, or a fault."""
    why = str(error).partition("\n")[0]
    if _is_refusal(error):  # without library and kernel, so that equal reasons are counted together
        return why.rpartition(f"{case.key.name}: ")[2]
    return f"known defect {defect}: {why}" if defect else f"{FAULT}{why}"

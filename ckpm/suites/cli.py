"""``ckpm test --suite large-kv --arch gfx950``: run a suite, apply the ledger, report, write results.

``--suite kernels --family fwd`` runs every kernel of a library of one of fwd's families.

Exit code 0 only if every case passed, is a known defect, or is one that the library has no kernel for; and at least one
of them ran.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import logging
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ckpm.attention.launch.device import default_workers
from ckpm.base import junit, settings
from ckpm.base.display import show
from ckpm.base.errors import CheckFailedError, InconclusiveError, LibraryError, UnknownWordError, UsageError
from ckpm.base.outputs import demand_place
from ckpm.base.results import FOREIGN_LIBRARY, LIBRARY_SHA256, SOME_CASES, UNSUPPORTED, Results
from ckpm.base.rocm_choice import add_rocm_options
from ckpm.kernels.families.libraries import host, libraries, made_of
from ckpm.kernels.library.manifest import MANIFEST
from ckpm.kernels.library.request import folder_name
from ckpm.matrix.dialects import check_built_arch, check_upstream
from ckpm.matrix.options import DEFAULT_ARCH, add_library_options, chosen_upstream, split_words
from ckpm.matrix.problems.case import TIERS
from ckpm.matrix.problems.ledger import LEDGER, read_ledger, source
from ckpm.matrix.problems.pairs import legal, met
from ckpm.matrix.problems.tables import find
from ckpm.matrix.sessions import FAMILY_SUITE, sessions
from ckpm.suites import kernel_cases, suites
from ckpm.suites.coverage import Coverage, Covered, format_figure, format_share
from ckpm.suites.pool import ENVIRONMENT, CasePool, OtherMachines, WorkerPool, worker_command
from ckpm.suites.rounding import check_rounding
from ckpm.suites.suites import Case, JudgedCase, LocatedLibrary
from ckpm.suites.summary import SuiteProgress, details, summary
from ckpm.suites.unsupported import unsupported_line

log = logging.getLogger(__name__)
EVERY = "*"  # case names


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteOptions:
    """The options of a run. ``family`` is the library's name in ckpm/kernels/families/libraries.py.

    ``library`` is a file instead of the one in ``work``/build.
    """

    suite: str
    family: str
    arch: str
    upstream: str | None
    tier: str
    device: str
    case: str
    reproduce: str | None
    trace: Path | None
    workgroup: int
    wave: int
    output: Path | None
    hazards: bool
    work: Path
    library: Path | None
    ledger: Path
    jobs: int | None

    @property
    def of_tables(self) -> bool:
        """True if the cases come from tables, False if they are made from the library's kernels."""
        return host(self.family).table_problems


def _families() -> tuple[str, ...]:
    """The libraries whose problems are made from their kernels."""
    return tuple(library for library in libraries() if not host(library).table_problems)


def add_options(root: argparse.ArgumentParser) -> None:
    root.add_argument("--suite", required=True, help=", ".join(sessions().suites))
    root.add_argument(
        "--family", default=None, metavar="NAME", help=f"of suite {FAMILY_SUITE}: {', '.join(_families())}"
    )
    root.add_argument("--arch", default=DEFAULT_ARCH, help="(default: %(default)s)")
    add_library_options(root)
    root.add_argument("--tier", default="smoke", help=f"cases to run: {', '.join(TIERS)} (default: %(default)s)")
    add_rocm_options(root, "device")
    root.add_argument("--case", default=EVERY, metavar="GLOB", help="cases whose name fits, with or without the suite")
    root.add_argument("--reproduce", default=None, metavar="CASE", help="run one case, show everything, write a trace")
    root.add_argument("--trace", type=Path, default=None, metavar="FILE", help="of --reproduce (default: build/trace)")
    root.add_argument("--workgroup", type=int, default=0, help="whose instructions are traced (default: %(default)s)")
    root.add_argument("--wave", type=int, default=0, help="whose instructions are traced (default: %(default)s)")
    root.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="results as JSON (default: build/ARCH/UPSTREAM/SUITE.json), and beside it as JUnit, with the ending .xml",
    )
    root.add_argument(
        "--hazards", action="store_true", help="of the emulator: an instruction without its wait states is a fault"
    )
    root.add_argument("--work", type=Path, default=Path(), help="folder that holds build/ (default: here)")
    root.add_argument("--library", type=Path, default=None, metavar="FILE", help="instead of the one in build/")
    root.add_argument("--ledger", type=Path, default=LEDGER, metavar="FILE", help="known defects (default: ours)")
    root.add_argument("--jobs", "-j", type=int, default=None, help="workers (default: one a processor, one on a GPU)")
    root.set_defaults(run=lambda args: run(read_options(args)))


def read_options(args: argparse.Namespace) -> SuiteOptions:
    """Read and check the options of a command line."""
    if args.jobs is not None and args.jobs < 1:
        raise UsageError("--jobs must be at least 1")
    if args.hazards and args.device == "hip":
        raise UsageError("--hazards is an option of the emulator: leave out --rocm, or add --device emulator")
    if args.suite not in sessions().suites:
        raise UnknownWordError("suite", args.suite, sessions().suites)
    checked: dict[str, Any] = {"arch": check_built_arch(args.arch).name, "family": _family(args)}
    values = {
        field.name: checked[field.name] if field.name in checked else getattr(args, field.name)
        for field in fields(SuiteOptions)
    }
    return SuiteOptions(**values)


def run(options: SuiteOptions, connect: Callable[[], AbstractContextManager[OtherMachines]] | None = None) -> None:
    """Run a suite and write its results. Failed cases raise CheckFailedError.

    ``connect`` connects to other machines, which then run the cases.
    """
    started, o = time.monotonic(), options
    library = _library(o)
    manifest = library.manifest
    ledger, kind, spoken_of = read_ledger(o.ledger), o.device, source(manifest.upstream, manifest.dialect)
    ledger.check_dates(datetime.date.today())
    with connect() if connect else contextlib.nullcontext() as there:
        cases = suites.with_signatures(_cases(o, kind, library), ledger, spoken_of, o.arch)
        folder = folder_name(manifest.upstream, o.family)
        # a case run again does not replace its suite's results
        output = o.output or o.work / "build" / o.arch / folder / f"{'reproduced' if o.reproduce else o.suite}.json"
        junit.clear(output, library.library, library.library.with_name(MANIFEST))  # no report on an earlier run
        pool, description = _pool(o, kind, library, len(cases), there)
        log.info(f"{len(cases)} cases of {o.suite} on {kind} {o.arch}, {manifest.upstream}, {description}")
        unwaited = functools.cache(lambda: suites.unwaited_loads(library, o.arch))
        judged: list[JudgedCase] = []
        executed = Coverage()
        with SuiteProgress(len(cases)) as progress:
            for case, reply in pool.run(cases):
                executed.add(reply.get("executed", {}))
                checked_reply = check_rounding(reply, case.problem, manifest, o.arch)
                judged.append(suites.judge(case, checked_reply, ledger, spoken_of, o.arch, unwaited))
                progress.show(judged[-1])
    order = {case.name: index for index, case in enumerate(cases)}
    judged.sort(key=lambda result: order[result.case.name])
    commands = {case.name: _reproduce(o, library, kind, case.name) for case in cases}
    results = _results(o, library, kind, judged, commands)
    covered = executed.of_library(library, o.arch)
    figures = _measure_coverage(o, library, judged, covered)
    unexecuted = {
        coverage.kernel: [str(block) for block in some] for coverage in covered if (some := coverage.without_reason())
    }
    results = replace(results, facts={**results.facts, **figures}, unexecuted=unexecuted)
    results.write(output)
    junit.write_beside(results, output)
    for result in judged if o.reproduce else ():
        details(result)
    if o.reproduce and kind == "emulator" and o.of_tables:
        show(f"trace: {_trace_file(o)}")
    show(f"results: {output}")
    summary(f"{o.suite} {o.arch} {folder}", judged, commands, time.monotonic() - started)
    for name, description in figures.items():  # shares are for who adds cases
        (show if name == UNSUPPORTED else log.debug)(f"{name}: {description}")
    if FOREIGN_LIBRARY in library.file_facts:
        show(f"note: {library.library} is not the library that its manifest lists: the results hold its own sha256")
    _conclude(judged, o, figures.get(UNSUPPORTED, "the results file has the reasons"))


def _pool(
    o: SuiteOptions, kind: str, library: LocatedLibrary, count: int, there: OtherMachines | None
) -> tuple[CasePool, str]:
    """The pool that runs the cases, and its size in words."""
    size = min(o.jobs or default_workers(kind), count)
    setup: dict[str, Any] = {
        "device": kind, "arch": o.arch, "library": str(library.library), "manifest": str(library.manifest_file),
        "threads": 0 if there is None and size == 1 else 1, "hazards": o.hazards, "family": o.family,
        "sha256": library.file_facts[LIBRARY_SHA256],
    }  # fmt: skip
    if there is None:
        return WorkerPool(command=worker_command(setup), size=size, environment=ENVIRONMENT), f"{size} at once"
    return there.pool(setup, library.library), there.describe()


def _results(
    o: SuiteOptions, library: LocatedLibrary, kind: str, judged: Sequence[JudgedCase], commands: Mapping[str, str]
) -> Results:
    log.info("counting what the cases executed, and which kernels the unsupported ones lack")
    family, tier = ("", o.tier) if o.of_tables else (o.family, "every kernel")
    upstream = library.manifest.upstream
    rows = [
        suites.record_case(result, o.suite, o.arch, upstream, commands[result.case.name], family) for result in judged
    ]
    results = suites.results(rows, library, kind, tier, datetime.date.today())
    if o.case != EVERY or o.reproduce:
        results = replace(results, facts={**results.facts, SOME_CASES: o.reproduce or o.case})
    return results


def _measure_coverage(
    o: SuiteOptions, library: LocatedLibrary, judged: Sequence[JudgedCase], covered: Sequence[Covered]
) -> Mapping[str, str]:
    """Shares of the library's code that the cases executed, if the device observes it, and of the pairs of values.

    And what the kernels lack for unsupported cases.
    """
    figures = {}
    if covered:
        figures["basic blocks executed"] = format_figure(covered)
    if o.of_tables and not o.reproduce:
        ran = [result.case.problem for result in judged if result.outcome != "unsupported"]
        pairs = legal(ran, library.manifest.keys(tuple(library.manifest.kernels)))
        figures["legal pairs of values tried"] = format_share(len(met(ran) & pairs), len(pairs))
        if unsupported := [result.case.problem for result in judged if result.outcome == "unsupported"]:
            figures[UNSUPPORTED] = unsupported_line(unsupported, library.manifest, o.arch)
    return figures


def _conclude(judged: Sequence[JudgedCase], o: SuiteOptions, unsupported: str) -> None:
    bad = [result for result in judged if not result.verdict.good]
    if bad:
        raise CheckFailedError(f"{len(bad)} of {len(judged)} cases failed", kind="cases")
    if all(result.outcome == "unsupported" for result in judged):
        raise InconclusiveError(
            f"none of the {len(judged)} cases could be run by this library: {unsupported}.", kind="nothing-ran"
        )


def _family(args: argparse.Namespace) -> str:
    """The requested library, by its name in ckpm/kernels/families/libraries.py."""
    if args.suite != FAMILY_SUITE:
        if args.family is not None:
            raise UsageError(f"--family goes with --suite {FAMILY_SUITE}; suite {args.suite} is batch prefill's.")
        return next(library for library in libraries() if host(library).table_problems)
    families = set(split_words("--family", None if args.family is None else [args.family], []))
    for library in _families():
        if families == {library} or made_of(families) == library:
            return library
    raise UsageError(f"--suite {FAMILY_SUITE} needs the --family that was built: one of {', '.join(_families())}.")


def _library(o: SuiteOptions) -> LocatedLibrary:
    """Locate and check the library of a run."""
    upstream = chosen_upstream(o.upstream, settings.ck_root())
    if upstream != "checkout":
        check_upstream(upstream)
    if o.library is None:
        return suites.locate(o.work.absolute(), o.arch, upstream, o.family)
    named = suites.read_library(o.library.absolute(), foreign=True)
    manifest = named.manifest
    if o.arch not in manifest.archs:
        raise LibraryError(
            f"{o.library} is built for {', '.join(manifest.archs)}, not for {o.arch}.", kind="wrong-library"
        )
    if o.upstream and o.upstream != manifest.upstream:
        raise LibraryError(
            f"{o.library} is built from {manifest.upstream}, not from {o.upstream}.", kind="wrong-library"
        )
    return named


def _cases(o: SuiteOptions, kind: str, library: LocatedLibrary) -> tuple[Case, ...]:
    """The cases of the suite for this library, or the one to reproduce."""
    manifest = library.manifest
    if not o.of_tables:
        keys = suites.manifest_keys(library.manifest_file, tuple(manifest.kernels))
        return kernel_cases.cases(keys, o.reproduce or o.case)
    if not o.reproduce:
        cases, others = suites.select_cases(suites.cases(o.suite, o.tier, kind, o.case), manifest, o.arch)
        for reason, count in others.items():
            log.info(f"{count} cases are left out, {manifest.dialect} has no kernel for them: {reason}")
        return cases
    name = o.reproduce if "/" in o.reproduce else f"{o.suite}/{o.reproduce}"
    problem = find(name)
    case = next(case for case in suites.cases(problem.suite, problem.tier, kind) if case.name == name)
    if kind != "emulator":
        return (case,)
    file = _trace_file(o)
    demand_place(file)
    trace = {"file": str(file), "workgroup": o.workgroup, "wave": o.wave}
    return (Case(problem=problem, variants=tuple({**variant, "trace": trace} for variant in case.variants)),)


def _trace_file(o: SuiteOptions) -> Path:
    if o.trace is not None:
        return o.trace.absolute()
    return o.work.absolute() / "build" / "trace" / f"{(o.reproduce or '').replace('/', '-')}.txt"


def _reproduce(o: SuiteOptions, library: LocatedLibrary, kind: str, name: str) -> str:
    command = suites.reproduce_command(o.suite, o.arch, library.manifest.upstream, kind, name, o.family)
    if o.hazards:
        command += " --hazards"
    if o.library is not None:
        return f"{command} --library {shlex.quote(str(library.library))}"
    return command if o.work == Path() else f"{command} --work {shlex.quote(str(o.work))}"

"""``ckpm test --suite large-kv --arch gfx950``: run a suite, apply the ledger, report, write results.

``--suite kernels --family fwd`` runs every kernel of a library of one of fwd's families.

Exit code 0 only if every case passed, is a known defect, or is one that the library has no kernel for; and at least one
of them ran.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import functools
import logging
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckpm.attention.launch.device import CHOICES, default_workers, kind_of, unused_gpu
from ckpm.base import junit, settings
from ckpm.base.display import show
from ckpm.base.errors import CheckFailedError, InconclusiveError, LibraryError, UnknownWordError, UsageError
from ckpm.base.files import make_folder, sha256_of
from ckpm.base.results import FOREIGN_LIBRARY
from ckpm.cluster import command as cluster
from ckpm.kernels.families.libraries import host, libraries, made_of
from ckpm.kernels.library.manifest import MANIFEST
from ckpm.kernels.library.request import folder_name
from ckpm.matrix.dialects import check_built_arch, check_upstream
from ckpm.matrix.options import DEFAULT_ARCH, add_library_options, split_words
from ckpm.matrix.problems.case import FAMILY_SUITE, SUITES, TIERS
from ckpm.matrix.problems.ledger import LEDGER, read_ledger, source
from ckpm.matrix.problems.tables import find
from ckpm.suites import kernel_cases, suites
from ckpm.suites.pool import ENVIRONMENT, Pool, worker_command
from ckpm.suites.suites import Case, Judged, LocatedLibrary
from ckpm.suites.summary import Progress, details, summary

if TYPE_CHECKING:
    from ckpm.cluster.connection import Connection
    from ckpm.suites.remote import RemotePool

log = logging.getLogger(__name__)


def _families() -> tuple[str, ...]:
    """The libraries whose problems are made from their kernels."""
    return tuple(library for library in libraries() if not host(library).table_problems)


def add_options(root: argparse.ArgumentParser) -> None:
    root.add_argument("--suite", required=True, help=", ".join((*SUITES, FAMILY_SUITE)))
    root.add_argument(
        "--family", default=None, metavar="NAME", help=f"of suite {FAMILY_SUITE}: {', '.join(_families())}"
    )
    root.add_argument("--arch", default=DEFAULT_ARCH, help="(default: %(default)s)")
    add_library_options(root)
    root.add_argument("--tier", default="smoke", help=f"of tables: {', '.join(TIERS)} (default: %(default)s)")
    root.add_argument("--device", default="auto", choices=CHOICES, help="(default: a GPU of the arch if there is one)")
    root.add_argument(
        "--case", "--filter", default="*", metavar="GLOB", help="cases whose name fits, with or without the suite"
    )
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
    cluster.add_options(root)
    root.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Raises UnknownWordError, CheckFailedError, InconclusiveError and the errors of what it uses."""
    if args.jobs is not None and args.jobs < 1:
        raise UsageError("--jobs must be at least 1")
    if args.suite not in (*SUITES, FAMILY_SUITE):
        raise UnknownWordError("suite", args.suite, (*SUITES, FAMILY_SUITE))
    started = time.monotonic()
    arch = check_built_arch(args.arch).name
    family = _family(args)
    library = _library(args, arch, family)
    ledger = read_ledger(args.ledger)
    ledger.check_dates(datetime.date.today())
    with _machines(args, arch) as there:
        kind = _kind(args, arch, there)
        if args.hazards and kind == "hip":
            raise UsageError("--hazards is an option of the emulator: a GPU does what it does. Add --device emulator")
        cases = _cases(args, kind, library) if host(family).table_problems else _kernel_cases(args, library, family)
        upstream = library.manifest.upstream
        spoken_of = source(upstream, library.manifest.dialect)
        cases = suites.with_signatures(cases, ledger, spoken_of, arch)
        output = args.output or _results_file(args, arch, folder_name(upstream, family))
        junit.clear(output, library.library, library.library.with_name(MANIFEST))  # no report on an earlier run
        pool, words = _pool(args, kind, arch, library, family, len(cases), there)
        log.info(f"{len(cases)} cases of {args.suite} on {kind} {arch}, {upstream}, {words}")
        unwaited = functools.cache(lambda: suites.unwaited_loads(library, arch))
        judged: list[Judged] = []
        with Progress(len(cases)) as progress:
            for case, reply in pool.run(cases):
                judged.append(suites.judge(case, reply, ledger, spoken_of, arch, unwaited))
                progress.show(judged[-1])
    order = {case.name: index for index, case in enumerate(cases)}
    judged.sort(key=lambda one: order[one.case.name])
    commands = {case.name: _reproduce(args, arch, library, family, kind, case.name) for case in cases}
    _write(args, arch, library, family, kind, judged, commands, output)
    _show(args, kind, judged, family)
    show(f"results: {output}")
    summary(f"{args.suite} {arch} {folder_name(upstream, family)}", judged, commands, time.monotonic() - started)
    if FOREIGN_LIBRARY in library.file_facts:
        show(f"note: {library.library} is not the library that its manifest lists: the results hold its own sha256")
    _conclude(judged, family)


def _machines(args: argparse.Namespace, arch: str) -> contextlib.AbstractContextManager[Connection | None]:
    """The workers of other machines, None for this one alone. Raises UsageError."""
    if (machines := cluster.read_machines(args)) is None:
        return contextlib.nullcontext()
    if args.jobs is not None or args.reproduce:
        raise UsageError("--jobs and --reproduce are for this machine: leave --scheduler and --cluster out.")
    return cluster.connection(machines, args.work.absolute() / "build" / arch / "cluster")


def _kind(args: argparse.Namespace, arch: str, there: Connection | None) -> str:
    """The device that cases run on: workers say whether they have a GPU, and this machine need not have one."""
    if there is None or args.device != "auto":
        return kind_of(args.device, arch) if there is None else str(args.device)
    return "hip" if there.gpus else "emulator"


def _pool(
    args: argparse.Namespace,
    kind: str,
    arch: str,
    library: LocatedLibrary,
    family: str,
    count: int,
    there: Connection | None,
) -> tuple[Pool | RemotePool, str]:
    """The pool that runs the cases, and its size in words."""
    if there is not None:
        from ckpm.suites.remote import RemotePool

        setup = _setup(args, kind, arch, library, family, threads=1)
        remote = RemotePool(
            connection=there, setup=setup, library=library.library, library_sha256=sha256_of(library.library)
        )
        return remote, there.describe()
    size = min(args.jobs or default_workers(kind), count)
    setup = _setup(args, kind, arch, library, family, threads=0 if size == 1 else 1)
    pool = Pool(command=worker_command(setup), size=size, environment=ENVIRONMENT)
    return pool, f"{size} at once"


def _write(
    args: argparse.Namespace,
    arch: str,
    library: LocatedLibrary,
    family: str,
    kind: str,
    judged: Sequence[Judged],
    commands: Mapping[str, str],
    output: Path,
) -> None:
    """The results as JSON and JUnit."""
    tables, upstream = host(family).table_problems, library.manifest.upstream
    family_word = "" if tables else family
    rows = [suites.record_case(one, args.suite, arch, upstream, commands[one.case.name], family_word) for one in judged]
    results = suites.results(rows, library, kind, args.tier if tables else "every kernel", datetime.date.today())
    here = args.device == "auto" and cluster.read_machines(args) is None
    if here and kind == "emulator" and (why := unused_gpu(arch)):
        results = dataclasses.replace(results, facts={**results.facts, "GPU not used": why})
    results.write(output)
    junit.write_beside(results, output)


def _show(args: argparse.Namespace, kind: str, judged: Sequence[Judged], family: str) -> None:
    """Everything about the one case of --reproduce."""
    if not args.reproduce:
        return
    for one in judged:
        details(one)
    if kind == "emulator" and host(family).table_problems:
        show(f"trace: {_trace_file(args)}")


def _conclude(judged: Sequence[Judged], family: str) -> None:
    bad = [one for one in judged if not one.verdict.good]
    if bad:
        raise CheckFailedError(f"{len(bad)} of {len(judged)} cases are not in order", kind="cases")
    if all(one.outcome == "unsupported" for one in judged):
        more = (
            "Build more kernels: --tier full."
            if host(family).table_problems
            else "The results file contains the reasons."
        )
        raise InconclusiveError(
            f"none of the {len(judged)} cases could be run by this library. {more}", kind="nothing-ran"
        )


def _family(args: argparse.Namespace) -> str:
    """The wanted library, by its name in kernels/families/libraries.py.

    Raises:
        UsageError: ``--family`` with a suite of batch prefill, not with the one of families, or none of those.
    """
    if args.suite != FAMILY_SUITE:
        if args.family is not None:
            raise UsageError(f"--family goes with --suite {FAMILY_SUITE}; suite {args.suite} is batch prefill's.")
        return next(library for library in libraries() if host(library).table_problems)
    asked = set(split_words("--family", None if args.family is None else [args.family], []))
    for library in _families():
        if asked == {library} or made_of(asked) == library:
            return library
    raise UsageError(f"--suite {FAMILY_SUITE} needs the --family that was built: one of {', '.join(_families())}.")


def _library(args: argparse.Namespace, arch: str, family: str) -> LocatedLibrary:
    """Raises LibraryError, UnknownWordError."""
    upstream = settings.upstream(args.upstream, settings.ck_root())
    if upstream != "checkout":
        check_upstream(upstream)
    if args.library is None:
        return suites.locate(args.work.absolute(), arch, upstream, family)
    named = suites.read_library(args.library.absolute(), foreign=True)
    manifest = named.manifest
    if arch not in manifest.archs:
        raise LibraryError(
            f"{args.library} is built for {', '.join(manifest.archs)}, not for {arch}.", kind="wrong-library"
        )
    if args.upstream and args.upstream != manifest.upstream:
        raise LibraryError(
            f"{args.library} is built from {manifest.upstream}, not from {args.upstream}.", kind="wrong-library"
        )
    return named


def _cases(args: argparse.Namespace, kind: str, library: LocatedLibrary) -> tuple[Case, ...]:
    """The cases of the suite for this library, or the one to reproduce. Raises ProblemError, InconclusiveError."""
    if not args.reproduce:
        manifest = library.manifest
        cases, others = suites.select_cases(suites.cases(args.suite, args.tier, kind, args.case), manifest, args.arch)
        for reason, count in others.items():
            log.info(f"{count} cases are left out, {manifest.dialect} has no kernel for them: {reason}")
        return cases
    name = args.reproduce if "/" in args.reproduce else f"{args.suite}/{args.reproduce}"
    problem = find(name)
    case = next(case for case in suites.cases(problem.suite, problem.tier, kind) if case.name == name)
    if kind != "emulator":
        return (case,)
    file = _trace_file(args)
    make_folder(file.parent)
    trace = {"file": str(file), "workgroup": args.workgroup, "wave": args.wave}
    return (Case(problem=problem, variants=tuple({**variant, "trace": trace} for variant in case.variants)),)


def _kernel_cases(args: argparse.Namespace, library: LocatedLibrary, family: str) -> tuple[Case, ...]:
    """Cases of the kernels of a family's library, or the one to reproduce. Raises InconclusiveError, LibraryError."""
    keys = suites.manifest_keys(library.manifest_file, tuple(library.manifest.kernels))
    return kernel_cases.cases(keys, args.reproduce or args.case)


def _results_file(args: argparse.Namespace, arch: str, folder: str) -> Path:
    """One for each suite, arch and library; a case run again does not replace its suite's."""
    place: Path = args.work / "build" / arch / folder
    return place / f"{'reproduced' if args.reproduce else args.suite}.json"


def _trace_file(args: argparse.Namespace) -> Path:
    if args.trace is not None:
        return Path(args.trace).absolute()
    name: str = args.reproduce.replace("/", "-")
    return Path(args.work).absolute() / "build" / "trace" / f"{name}.txt"


def _setup(
    args: argparse.Namespace, kind: str, arch: str, library: LocatedLibrary, family: str, threads: int
) -> dict[str, Any]:
    """The setup of suites/worker.py."""
    return {
        "device": kind,
        "arch": arch,
        "library": str(library.library),
        "manifest": str(library.manifest_file),
        "threads": threads,
        "hazards": args.hazards,
        "family": family,
    }


def _reproduce(args: argparse.Namespace, arch: str, library: LocatedLibrary, family: str, kind: str, name: str) -> str:
    command = suites.reproduce_command(args.suite, arch, library.manifest.upstream, kind, name, family)
    if args.hazards:
        command += " --hazards"
    if args.library is not None:
        return f"{command} --library {shlex.quote(str(library.library))}"
    return command if args.work == Path() else f"{command} --work {shlex.quote(str(args.work))}"

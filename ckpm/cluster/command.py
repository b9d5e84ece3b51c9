"""Options for many machines: compilers of ``ckpm build`` and cases of ``ckpm test`` on them."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckpm.base import errors, settings
from ckpm.base.errors import CkPrefillError, UsageError
from ckpm.base.paths import data
from ckpm.base.processes import ended_by_signals
from ckpm.cluster.identity import BuildSources
from ckpm.cluster.site import Site, read_site
from ckpm.kernels.library import command as build_command
from ckpm.kernels.library.building import Elsewhere
from ckpm.kernels.library.request import BuildRequest

if TYPE_CHECKING:
    from ckpm.cluster.cases import CaseMachines
    from ckpm.cluster.connection import Connection

REQUIREMENTS = data("requirements-cluster.txt")
_MOST_JOBS = 1024  # threads of SCons that wait for workers


def add_build_options(parser: argparse.ArgumentParser) -> None:
    """Let ``ckpm build`` compile on many machines."""

    def run(args: argparse.Namespace, machines: Machines) -> None:
        if args.render or args.reproduce or args.built:
            raise UsageError("--render, --reproduce and --built are for this machine: leave out the machines.")
        if args.jobs is not None:
            raise UsageError("--jobs is for compilers on this machine. Workers have their own number of threads.")
        options = build_command.read_options(args)
        with compilers(machines, options.request) as elsewhere:
            build_command.build(options, elsewhere)

    _add_options(parser, run)


def add_test_options(parser: argparse.ArgumentParser) -> None:
    """Let ``ckpm test`` run its cases on many machines."""

    def run(args: argparse.Namespace, machines: Machines) -> None:
        from ckpm.suites import cli as test_command  # here: builds need neither NumPy nor the emulator

        if args.jobs is not None or args.reproduce:
            raise UsageError("--jobs and --reproduce are for this machine: leave --scheduler and --cluster out.")
        options = test_command.read_options(args)
        logs = options.work.absolute() / "build" / options.arch / "cluster"
        test_command.run(options, partial(_case_machines, machines, logs))

    _add_options(parser, run)


@contextlib.contextmanager
def _case_machines(machines: Machines, logs: Path) -> Iterator[CaseMachines]:
    with connection(machines, logs) as workers:
        from ckpm.cluster.cases import CaseMachines

        yield CaseMachines(workers)


def _add_options(parser: argparse.ArgumentParser, remote: Callable[[argparse.Namespace, Machines], None]) -> None:
    """Add the options that name machines. ``remote`` runs the command if a command line names some."""
    local: Callable[[argparse.Namespace], None] = parser.get_default("run")

    def run(args: argparse.Namespace) -> None:
        machines = read_machines(args)
        return remote(args, machines) if machines else local(args)

    parser.set_defaults(run=run)
    parser.add_argument("--scheduler", default=None, metavar="ADDRESS", help="run on the workers of a Dask scheduler")
    parser.add_argument("--cluster", choices=["slurm"], default=None, help="run on workers that are jobs of Slurm")
    parser.add_argument(
        "--workers", type=int, default=None, metavar="N", help="Slurm jobs, one worker each (default: 2)"
    )
    parser.add_argument("--partition", default=None, help="of --cluster (default: Slurm's)")
    parser.add_argument("--walltime", default=None, metavar="HH:MM:SS", help="of --cluster (default: 04:00:00)")
    parser.add_argument(
        "--cluster-file", type=Path, default=None, metavar="FILE", help="of --cluster: a file like docker/slurm.yaml"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The workers of the Dask scheduler at an address, or ``workers`` jobs of Slurm with the resources of ``site``."""

    scheduler: str
    site: Site | None
    workers: int


def read_machines(args: argparse.Namespace) -> Machines | None:
    """The machines of the options; None for this machine alone."""
    if empty := [name for name in ("scheduler", "partition", "walltime") if getattr(args, name) == ""]:
        raise UsageError(f"--{empty[0]} is empty: give a value, or leave the option out.")
    if args.scheduler and args.cluster:
        raise UsageError("--scheduler and --cluster exclude each other: one names workers, the other starts some.")
    options = [name for name in ("workers", "partition", "walltime", "cluster_file") if getattr(args, name) is not None]
    if options and not args.cluster:
        raise UsageError(f"--{options[0].replace('_', '-')} goes with --cluster.")
    if args.workers is not None and args.workers < 1:
        raise UsageError("--workers must be at least 1")
    if not (args.scheduler or args.cluster):
        return None
    site = read_site(args.cluster_file, args.partition, args.walltime) if args.cluster else None
    return Machines(scheduler=args.scheduler or "", site=site, workers=args.workers or 2)


@contextlib.contextmanager
def connection(machines: Machines, logs: Path) -> Iterator[Connection]:
    """Connect to the workers. At the end, every process of this command on them ends. Main thread only.

    SIGTERM and SIGHUP raise SystemExit.
    """
    _demand_packages(machines)
    from ckpm.cluster.connection import connection_to, patience
    from ckpm.cluster.slurm import slurm

    with ended_by_signals(), contextlib.ExitStack() as stack:
        if machines.site:
            address, credentials, hopeless = stack.enter_context(slurm(machines.site, machines.workers, logs))
        else:
            address, credentials, hopeless = machines.scheduler, "", patience(machines.scheduler)
        yield stack.enter_context(connection_to(address, credentials, hopeless))


def _demand_packages(machines: Machines) -> None:
    """Refuse machines that need a missing package."""
    modules = ("distributed", "dask_jobqueue") if machines.site else ("distributed",)
    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        hint = "" if REQUIREMENTS.is_file() else " (the file is in the repository)"
        raise errors.SetupError(
            f"--scheduler and --cluster need packages that are not installed here: {', '.join(missing)}. "
            f"Install them into this environment: pip install --require-hashes -r {REQUIREMENTS.name}{hint}",
            kind="packages",
        )


@contextlib.contextmanager
def compilers(machines: Machines, request: BuildRequest) -> Iterator[Elsewhere]:
    """Compilers on workers with the same code, toolchain and upstream."""
    folder = request.work / request.folder
    with connection(machines, folder / "cluster") as workers:
        from ckpm.cluster.compiling import Recipe
        from ckpm.cluster.remote_steps import NAME, RemoteBuild

        sources = BuildSources(
            toolchain=request.toolchain.name,
            upstream=request.tree.name,
            ck_root=str(request.tree.root) if request.tree.name == "checkout" else "",
        )
        identity = sources.identity(settings.cache_folder())
        workers.demand_same(identity, partial(sources_identity, sources))
        recipe = Recipe(
            sources=sources, archs=request.selection.archs, families=request.selection.families, identity=identity
        )
        RemoteBuild(
            scheduler=workers.address, credentials=workers.credentials, session=workers.session, recipe=recipe
        ).write(folder / NAME)
        yield Elsewhere(file=folder / NAME, description=workers.describe(), most_jobs=_MOST_JOBS, failure=failure)


def sources_identity(sources: BuildSources) -> Any:
    """Return this machine's code, toolchain and upstream; workers run this function."""
    return sources.identity(settings.cache_folder())


def failure(records: Sequence[Mapping[str, Any]]) -> CkPrefillError:
    """The failure of refused steps: the class of the first, and the messages of all."""
    classes = [item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, CkPrefillError)]
    error = next(item for item in classes if item.exit_code == records[0]["refused"])
    return error("\n".join(dict.fromkeys(str(record["output"]) for record in records)))

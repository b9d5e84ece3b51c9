"""Options that take a command to many machines, and ``python -m kernels build`` with them."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ckpm.base import settings
from ckpm.base.console import say
from ckpm.base.errors import CkPrefillError, UsageError
from ckpm.base.processes import ended_by_signals
from ckpm.cluster import errors
from ckpm.cluster.identity import Sources
from ckpm.cluster.packages import demand
from ckpm.cluster.site import read_site
from ckpm.kernels.library import command as build_command
from ckpm.kernels.library.command import Elsewhere
from ckpm.kernels.library.request import Request

if TYPE_CHECKING:
    from ckpm.cluster.connection import Connection

_MOST_JOBS = 1024  # threads of SCons that wait for workers


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of whatever runs on many machines."""
    parser.add_argument("--scheduler", default=None, metavar="ADDRESS", help="run on the workers of a Dask scheduler")
    parser.add_argument("--cluster", choices=["slurm"], default=None, help="run on workers that are jobs of Slurm")
    parser.add_argument("--workers", type=int, default=None, metavar="N", help="jobs of --cluster (default: 2)")
    parser.add_argument("--partition", default=None, help="of --cluster (default: Slurm's)")
    parser.add_argument("--walltime", default=None, metavar="HH:MM:SS", help="of --cluster (default: 04:00:00)")
    parser.add_argument(
        "--cluster-file", type=Path, default=None, metavar="FILE", help="of --cluster: as cluster/slurm.yaml"
    )


def is_asked_for(args: argparse.Namespace) -> bool:
    """Whether the command is to run on many machines. Raises UsageError: options that don't go together."""
    if args.scheduler and args.cluster:
        raise UsageError("--scheduler and --cluster exclude each other: one names workers, the other starts some.")
    given = [name for name in ("workers", "partition", "walltime", "cluster_file") if getattr(args, name) is not None]
    if given and not args.cluster:
        raise UsageError(f"--{given[0].replace('_', '-')} goes with --cluster.")
    if args.workers is not None and args.workers < 1:
        raise UsageError("--workers must be at least 1")
    return bool(args.scheduler or args.cluster)


@contextlib.contextmanager
def connection(args: argparse.Namespace, logs: Path, say: Callable[[str], None]) -> Iterator[Connection]:
    """The workers that options ask for; at the end nothing of this command is left on them. Main thread only.

    Raises:
        PackagesMissingError, SchedulerError, NoWorkersError, SlurmError, TableError.
        SystemExit: SIGTERM or SIGHUP came.
    """
    _demand_ready(args)
    from ckpm.cluster.connection import opened, patience
    from ckpm.cluster.slurm import slurm

    with ended_by_signals(), contextlib.ExitStack() as stack:
        if args.cluster:
            site = read_site(args.cluster_file, args.partition, args.walltime)
            address, credentials, hopeless = stack.enter_context(slurm(site, args.workers or 2, logs, say))
        else:
            address, credentials, hopeless = args.scheduler, "", patience(args.scheduler)
        yield stack.enter_context(opened(address, credentials, hopeless, say))


def _demand_ready(args: argparse.Namespace) -> None:
    """Refuse at once what would be refused later. Raises TableError: of a site's file; PackagesMissingError."""
    if args.cluster:
        read_site(args.cluster_file, args.partition, args.walltime)
    demand("distributed", *(["dask_jobqueue"] if args.cluster else []))


def build(args: argparse.Namespace) -> int:
    """``python -m kernels build``, here or on many machines. Exit code 0, or raises."""
    if not is_asked_for(args):
        return build_command.build(args)
    if args.jobs is not None:
        raise UsageError("--jobs is for compilers on this machine: the scheduler's workers say how many run there.")
    _demand_ready(args)
    return build_command.build(args, partial(_elsewhere, args))


def _elsewhere(args: argparse.Namespace, request: Request, console: Console) -> AbstractContextManager[Elsewhere]:
    return _compilers(args, request, lambda text: say(console, text))


@contextlib.contextmanager
def _compilers(args: argparse.Namespace, request: Request, say: Callable[[str], None]) -> Iterator[Elsewhere]:
    """The compilers of workers that have all said that they are this machine's. Raises ForeignWorkerError."""
    folder = request.work / request.folder
    with connection(args, folder / "cluster", say) as there:
        from ckpm.cluster.compiling import Recipe
        from ckpm.cluster.remote_steps import NAME, Place

        ck_root = settings.ck_root(args.ck_root) if request.tree.name == "checkout" else None
        sources = Sources(
            toolchain=request.toolchain.name,
            upstream=request.tree.name,
            ck_root=str(ck_root.absolute()) if ck_root else "",
        )
        identity = sources.identity(settings.cache_folder())
        there.demand_same(identity, partial(sources_identity, sources))
        recipe = Recipe(
            sources=sources, archs=request.selection.archs, families=request.selection.families, identity=identity
        )
        Place(scheduler=there.address, credentials=there.credentials, session=there.session, recipe=recipe).write(
            folder / NAME
        )
        yield Elsewhere(file=folder / NAME, words=there.words(), most_jobs=_MOST_JOBS, failure=failure)


def sources_identity(sources: Sources) -> Any:
    """Who this machine is; run on workers."""
    return sources.identity(settings.cache_folder())


def failure(records: Sequence[Mapping[str, Any]]) -> CkPrefillError:
    """The failure of steps that workers refused, of the kind of the first; every step is in the message."""
    every = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, CkPrefillError)]
    kind = next(one for one in every if one.exit_code == records[0]["refused"])
    return kind("\n".join(dict.fromkeys(str(record["output"]) for record in records)))

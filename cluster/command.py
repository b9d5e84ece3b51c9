"""Options for many machines, and ``ckpm build`` with them."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ckpm.base import errors, settings
from ckpm.base.errors import CkPrefillError, UsageError
from ckpm.base.processes import ended_by_signals
from ckpm.cluster.identity import Sources
from ckpm.cluster.site import read_site
from ckpm.kernels.library import command as build_command
from ckpm.kernels.library.command import Elsewhere
from ckpm.kernels.library.request import Request

if TYPE_CHECKING:
    from ckpm.cluster.connection import Connection

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements-cluster.txt"
_MOST_JOBS = 1024  # threads of SCons that wait for workers


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that run on many machines."""
    parser.add_argument("--scheduler", default=None, metavar="ADDRESS", help="run on the workers of a Dask scheduler")
    parser.add_argument("--cluster", choices=["slurm"], default=None, help="run on workers that are jobs of Slurm")
    parser.add_argument("--workers", type=int, default=None, metavar="N", help="jobs of --cluster (default: 2)")
    parser.add_argument("--partition", default=None, help="of --cluster (default: Slurm's)")
    parser.add_argument("--walltime", default=None, metavar="HH:MM:SS", help="of --cluster (default: 04:00:00)")
    parser.add_argument(
        "--cluster-file", type=Path, default=None, metavar="FILE", help="of --cluster: a file like cluster/slurm.yaml"
    )


def is_remote(args: argparse.Namespace) -> bool:
    """True if the command runs on many machines. Raises UsageError if options contradict each other."""
    if args.scheduler and args.cluster:
        raise UsageError("--scheduler and --cluster exclude each other: one names workers, the other starts some.")
    given = [name for name in ("workers", "partition", "walltime", "cluster_file") if getattr(args, name) is not None]
    if given and not args.cluster:
        raise UsageError(f"--{given[0].replace('_', '-')} goes with --cluster.")
    if args.workers is not None and args.workers < 1:
        raise UsageError("--workers must be at least 1")
    return bool(args.scheduler or args.cluster)


@contextlib.contextmanager
def connection(args: argparse.Namespace, logs: Path) -> Iterator[Connection]:
    """Connect to the workers of the options. At the end, every process of this command on them ends. Main thread only.

    Raises:
        SetupError, ServiceError, TableError.
        SystemExit: SIGTERM or SIGHUP came.
    """
    _demand_ready(args)
    from ckpm.cluster.connection import connection_to, patience
    from ckpm.cluster.slurm import slurm

    with ended_by_signals(), contextlib.ExitStack() as stack:
        if args.cluster:
            site = read_site(args.cluster_file, args.partition, args.walltime)
            address, credentials, hopeless = stack.enter_context(slurm(site, args.workers or 2, logs))
        else:
            address, credentials, hopeless = args.scheduler, "", patience(args.scheduler)
        yield stack.enter_context(connection_to(address, credentials, hopeless))


def _demand_ready(args: argparse.Namespace) -> None:
    """Check the site's file and the packages at once. Raises TableError, SetupError."""
    if args.cluster:
        read_site(args.cluster_file, args.partition, args.walltime)
    modules = ("distributed", "dask_jobqueue") if args.cluster else ("distributed",)
    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        place = "" if REQUIREMENTS.is_file() else " (the file is in the repository)"
        raise errors.SetupError(
            f"--scheduler and --cluster need packages that are not installed here: {', '.join(missing)}. "
            f"Install them into this environment: pip install --require-hashes -r {REQUIREMENTS.name}{place}",
            kind="packages",
        )


def build(args: argparse.Namespace) -> int:
    """Run ``ckpm build`` on many machines, and return exit code 0."""
    if args.jobs is not None:
        raise UsageError("--jobs is for compilers on this machine. Workers have their own number of threads.")
    _demand_ready(args)
    return build_command.build(args, partial(_elsewhere, args))


def _elsewhere(args: argparse.Namespace, request: Request, console: Console) -> AbstractContextManager[Elsewhere]:
    return _compilers(args, request)


@contextlib.contextmanager
def _compilers(args: argparse.Namespace, request: Request) -> Iterator[Elsewhere]:
    """The compilers of workers that have this machine's identity. Raises SetupError."""
    folder = request.work / request.folder
    with connection(args, folder / "cluster") as workers:
        from ckpm.cluster.compiling import Recipe
        from ckpm.cluster.remote_steps import NAME, RemoteBuild

        ck_root = settings.ck_root(args.ck_root) if request.tree.name == "checkout" else None
        sources = Sources(
            toolchain=request.toolchain.name,
            upstream=request.tree.name,
            ck_root=str(ck_root.absolute()) if ck_root else "",
        )
        identity = sources.identity(settings.cache_folder())
        workers.demand_same(identity, partial(sources_identity, sources))
        recipe = Recipe(
            sources=sources, archs=request.selection.archs, families=request.selection.families, identity=identity
        )
        RemoteBuild(
            scheduler=workers.address, credentials=workers.credentials, session=workers.session, recipe=recipe
        ).write(folder / NAME)
        yield Elsewhere(file=folder / NAME, words=workers.describe(), most_jobs=_MOST_JOBS, failure=failure)


def sources_identity(sources: Sources) -> Any:
    """The identity of this machine; workers run this function."""
    return sources.identity(settings.cache_folder())


def failure(records: Sequence[Mapping[str, Any]]) -> CkPrefillError:
    """The failure of refused steps: the class of the first, and the messages of all."""
    classes = [item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, CkPrefillError)]
    error = next(item for item in classes if item.exit_code == records[0]["refused"])
    return error("\n".join(dict.fromkeys(str(record["output"]) for record in records)))

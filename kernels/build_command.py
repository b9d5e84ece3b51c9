"""``python -m kernels build``: from options to a library, with progress, failures and a one-line result."""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from pathlib import Path

from rich.console import Console

from kernels import failures, settings
from kernels.build import LIBRARY, Request, clear_failures, discard_library, lock, prepare, scons_command
from kernels.errors import CompileError, DiskFullError, LinkError
from kernels.files import write_atomically
from kernels.jobs import job_count
from kernels.progress import Tally, follow
from kernels.toolchains import detect
from kernels.upstream import locate
from matrix.errors import UsageError
from matrix.options import selection_from


def run(request: Request, *, jobs: int, console: Console) -> Tally:
    """Build one library; returns what was compiled and what came from the cache.

    Raises:
        CompileError: units failed; the message holds every failing kernel and the compiler's words.
        LinkError: the library could not be linked or described.
    """
    with lock(request):
        plan, keys = prepare(request)
        clear_failures(request)
        units = sum(step.kind == "unit" for step in plan.steps)
        _say(console, f"{len(keys)} kernels in {units} units, {jobs} jobs, {request.toolchain.identity}")
        for name, group in plan.facts["left_out"].items():
            _say(
                console,
                f"left out: {len(group['kernels'])} kernels that this CK can't compile ({name}): {group['reason']}",
            )
        command = scons_command(f"{request.folder}/plan.json", jobs, request.object_cache)
        environment = {**os.environ, **plan.environment}
        with subprocess.Popen(
            command, cwd=request.work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as scons:
            assert scons.stdout is not None
            tally = follow(scons.stdout, plan.steps, console)
        if scons.returncode != 0:
            discard_library(request)
            _raise_failures(request, tally)
    return tally


def _raise_failures(request: Request, tally: Tally) -> None:
    records = failures.collect(request.work / request.folder)
    if full := next((record for record in records if "No space left on device" in str(record["output"])), None):
        raise DiskFullError(
            f"{full['label']}: no space left on the disk. Free some and build again; it goes on from here."
        )
    texts = [failures.describe(record, request.work) for record in records]
    if any(record["kind"] in ("unit", "host") for record in records):
        count = sum(len(failures.failing_kernels(record, request.work)) for record in records)
        raise CompileError(
            f"{len(records)} of the steps failed, {count} kernels at fault; everything else was compiled.\n"
            + "\n".join(texts)
        )
    words = "\n".join([*texts, *tally.other[-20:]])
    raise LinkError(f"{request.folder}/{LIBRARY} could not be made.\n{words}")


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of a build beyond the selection's."""
    parser.add_argument("--toolchain", default="auto", help="auto, embedded or rocm (default: auto)")
    parser.add_argument("--ck-root", type=Path, default=None, help="a CK checkout; default: CK_ROOT")
    parser.add_argument("--unit-size", type=int, default=8, help="kernels compiled together (default: 8)")
    parser.add_argument("--jobs", "-j", type=int, default=None, help="default: by processors and memory")
    parser.add_argument("--work", type=Path, default=Path(), help="folder that holds build/ (default: here)")
    parser.add_argument("--built", type=Path, default=None, metavar="FILE", help="write the manifest's path to FILE")
    parser.add_argument(
        "--no-cache", action="store_true", help="neither take objects from the shared cache nor add any"
    )


def request_from(args: argparse.Namespace, console: Console) -> Request:
    """What the options ask for; finds upstream and toolchain, downloading the former if need be."""
    if args.unit_size < 1 or (args.jobs is not None and args.jobs < 1):
        raise UsageError("--unit-size and --jobs must be at least 1")
    cache = settings.cache_folder()
    ck_root = args.ck_root or settings.ck_root()
    upstream = args.upstream or ("checkout" if ck_root else "aiter")
    tree = locate(upstream, cache=cache, ck_root=ck_root, say=lambda text: _say(console, text))
    if args.dialect not in (None, tree.dialect):
        raise UsageError(f"{tree.name} is of dialect {tree.dialect}, not {args.dialect}. Leave --dialect out.")
    args.dialect = tree.dialect
    _, selection = selection_from(args)
    return Request(
        selection=selection,
        tree=tree,
        toolchain=detect(args.toolchain, cache=cache),
        work=args.work.resolve(),
        object_cache=None if args.no_cache else cache / "objects",
        unit_size=args.unit_size,
    )


def build(args: argparse.Namespace) -> int:
    """The command. Exit code 0, or raises."""
    console = Console(stderr=False)
    started = time.monotonic()
    request = request_from(args, console)
    tally = run(request, jobs=job_count(args.jobs), console=console)
    what = f"{tally.compiled} compiled ({tally.kernels_compiled} kernels), {tally.retrieved} from the cache"
    if not tally.compiled and not tally.retrieved:
        what = "nothing to do"
    if args.built:
        write_atomically(args.built, f"{request.work / request.folder}/manifest.json\n".encode())
    _say(console, f"{request.folder}/{LIBRARY}: {what}, {time.monotonic() - started:.1f} s")
    return 0

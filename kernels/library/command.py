"""``ckpm build``: build a library, with progress, failures and a one-line result."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ckpm.base import rocm_places, settings, warming
from ckpm.base.console import PlainConsole, number, say
from ckpm.base.console import console as terminal
from ckpm.base.errors import CkPrefillError, CompileError, DiskFullError, ProcessLimitError, UsageError
from ckpm.base.files import make_folder, name_write_errors
from ckpm.base.jobs import job_count
from ckpm.base.processes import build_lock, ended_by_signals, group
from ckpm.base.trust import signing_key
from ckpm.kernels.code.toolchains import CHOICES, Toolchain, detect
from ckpm.kernels.families.libraries import whole
from ckpm.kernels.library import failures, leftovers
from ckpm.kernels.library.manifest import Manifest
from ckpm.kernels.library.plan import Plan
from ckpm.kernels.library.progress import Tally, follow
from ckpm.kernels.library.request import LIBRARY, Request, clear_failures, discard_library, prepare, scons_command
from ckpm.kernels.library.resources import show
from ckpm.kernels.library.signature_file import discard_foreign
from ckpm.kernels.upstream import headers
from ckpm.kernels.upstream.trees import locate
from ckpm.matrix.dialects import check_built_arch
from ckpm.matrix.options import DEFAULT_ARCH, selection_from, split_words

# Messages of compilers, zig and Python if the system refuses them a process or thread.
_NO_PROCESS = ("Resource temporarily unavailable", "SystemResources", "ThreadQuotaExceeded", "can't start new thread")


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Compilers that run on other machines. ``file`` names the machines for SConstruct, ``words`` for people.

    ``failure`` returns the error for failure records of steps that another machine refused.
    """

    file: Path
    words: str
    most_jobs: int
    failure: Callable[[Sequence[Mapping[str, Any]]], CkPrefillError]


def run(
    request: Request, *, jobs: int, console: Console, emulator: bool = False, elsewhere: Elsewhere | None = None
) -> Tally:
    """Build one library; return the counts of compiled and cached steps.

    With ``emulator`` the emulator's core is compiled meanwhile, because the library will run on it.

    Units are compiled here, ``jobs`` at once, or ``elsewhere``; the library is linked and described here. After a
    signal, SCons and the compilers end before this returns. Main thread only.

    Raises:
        CompileError: units failed; the message holds every failing kernel and the compiler's words.
        CompileError: the library could not be linked or described.
        DiskFullError, OutputError: something could not be written.
        ProcessLimitError: the system allows fewer processes than a build takes.
        SystemExit: SIGTERM or SIGHUP came.
    """
    with build_lock(request.work / request.folder / ".lock"), ended_by_signals():
        plan, keys = prepare(request)
        if discard_foreign(request.work / request.folder, signing_key(settings.cache_folder())):
            say(console, f"{request.folder}: restored, or damaged: no build of this user's wrote down what is in it, "
                          "so all of it is built again")  # fmt: skip
        temporary = _clear_temporary(request)
        if request.object_cache:
            make_folder(request.object_cache, "choose another cache folder with CKPM_CACHE, or --no-cache")
        units = sum(step.kind == "unit" for step in plan.steps)
        where = elsewhere.words if elsewhere else number(jobs, "job")
        what = f"{number(len(keys), 'kernel')} in {number(units, 'unit')}, {where}"
        say(console, f"{what}, {request.toolchain.identity}")
        for name, left in plan.facts["left_out"].items():
            what = number(len(left["kernels"]), "kernel")
            say(console, f"left out: {what} that this CK can't compile ({name}): {left['reason']}")
        with _warm_up(request, plan, temporary, emulator=emulator):
            tally, code = _scons(request, plan, jobs, console, temporary, elsewhere)
            if code != 0 and tally.unfit_to_link:
                # objects were damaged after they were finished; they are deleted now and made again
                again, code = _scons(request, plan, jobs, console, temporary, elsewhere)
                tally = tally.followed_by(again)
        if code != 0:
            discard_library(request)
            _raise_failures(request, tally, elsewhere)
    return tally


@contextmanager
def _warm_up(request: Request, plan: Plan, temporary: Path, *, emulator: bool) -> Iterator[None]:
    """Prepare meanwhile what a first build needs later; do nothing for a library that exists."""
    environment = {**os.environ, **plan.environment}
    linker = (*request.toolchain.linker, *request.toolchain.link_flags)
    with ExitStack() as stack:
        if not (request.work / request.folder / LIBRARY).exists():
            stack.enter_context(warming.libcxx(linker, temporary, environment))
        if emulator:
            stack.enter_context(warming.emulator_core(temporary, environment))
        yield


def _clear_temporary(request: Request) -> Path:
    """Return the output folder's empty folder for temporary files. Raises DiskFullError, OutputError."""
    folder = request.work / request.folder
    with name_write_errors(folder, "choose another folder with --work"):
        return leftovers.clear(folder)


def _scons(
    request: Request, plan: Plan, jobs: int, console: Console, temporary: Path, elsewhere: Elsewhere | None
) -> tuple[Tally, int]:
    """Run SCons on a plan; return the tally and SCons's exit code."""
    clear_failures(request)
    environment = {**os.environ, **plan.environment, "TMPDIR": str(temporary)}
    if elsewhere:
        jobs = min(len(plan.steps), elsewhere.most_jobs)  # each only waits: the scheduler chooses what runs
    cluster = str(elsewhere.file) if elsewhere else ""
    command = scons_command(f"{request.folder}/plan.json", jobs, request.object_cache, cluster)
    with group(command, cwd=request.work, environment=environment) as scons:
        assert scons.stdout is not None
        tally = follow(scons.stdout, plan.steps, console, linking=_link_message(request.toolchain))
    return tally, scons.returncode


def _link_message(toolchain: Toolchain) -> str:
    """The message about a link: zig builds its libc++ from source if its cache has none."""
    if warming.lacks_libcxx(toolchain.environment):
        return f"linking {LIBRARY}: the first time with this cache folder, once libc++ is built, too (a minute or more)"
    return f"linking {LIBRARY}"


def _raise_failures(request: Request, tally: Tally, elsewhere: Elsewhere | None) -> None:
    if header := headers.first_changed(request.work / request.folder):
        raise CompileError(
            f"{header}: this header changed while the build ran, and nothing that was compiled since is kept. Run the "
            "build again."
        )
    records = failures.collect(request.work / request.folder)
    if elsewhere and (refused := [record for record in records if record["refused"]]):
        raise elsewhere.failure(refused)
    words = [*(f"{record['label']}: {record['output']}" for record in records), *tally.other]
    if full := next((text for text in words if "No space left on device" in text), None):
        raise DiskFullError(
            f"{full.partition(':')[0]}: no space left on the disk. Free some and build again; it goes on from here."
        )
    if any(sign in text for text in words for sign in _NO_PROCESS):
        raise ProcessLimitError("compilers could not be started; what is compiled is kept")
    if reason := failures.common_reason(records):
        example = next(record for record in records if record["kind"] == "host")
        raise CompileError(
            f"{number(len(records), 'step')} failed, with and without kernels, and this is common to them: {reason}\n"
            f"The CK tree of {request.tree.name} in {request.tree.root} may be damaged: 'ckpm doctor' "
            f"examines it.\n{failures.describe(example, request.work)}"
        )
    texts = [failures.describe(record, request.work) for record in records]
    if any(record["kind"] in ("unit", "host") for record in records):
        count = sum(len(failures.failing_kernels(record, request.work)) for record in records)
        head = (
            f"{number(len(records), 'step')} failed, {number(count, 'kernel')} at fault; everything else was compiled."
        )
        raise CompileError("\n".join([head, *texts]))
    raise CompileError(
        "\n".join([f"{request.folder}/{LIBRARY} could not be made.", *texts, *tally.other[-20:]]), kind="link"
    )


def _runs_on_emulator(args: argparse.Namespace) -> bool:
    return bool(args.emulator) and not rocm_places.gpu_archs()


def add_compile_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that compiles a selection."""
    parser.add_argument("--toolchain", default="auto", choices=CHOICES, help="(default: auto)")
    parser.add_argument("--ck-root", type=Path, default=None, help="a CK checkout; default: CK_ROOT")
    parser.add_argument("--headers", type=Path, default=None, metavar="DIR", help="instead of our own headers (ckpm)")
    parser.add_argument("--unit-size", type=int, default=8, help="kernels compiled together (default: 8)")
    parser.add_argument("--jobs", "-j", type=int, default=None, help="default: by processors and memory")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a build besides the selection's."""
    add_compile_options(parser)
    parser.add_argument("--work", type=Path, default=Path(), help="folder that holds build/ (default: here)")
    parser.add_argument("--resources", action="store_true", help="then print the kernels with their registers and LDS")
    parser.add_argument("--emulator", action="store_true", help="compile its core meanwhile, unless there is a GPU")
    parser.add_argument(
        "--no-cache", action="store_true", help="neither take objects from the shared cache nor add any"
    )


def request_from(args: argparse.Namespace, console: Console, *, work: Path, cached: bool) -> Request:
    """Return the request of the options, built in ``work``. An upstream that is missing is downloaded."""
    if args.unit_size < 1 or (args.jobs is not None and args.jobs < 1):
        raise UsageError("--unit-size and --jobs must be at least 1")
    for arch in split_words("--arch", args.arch, [DEFAULT_ARCH]):
        check_built_arch(arch)
    cache = settings.cache_folder()
    ck_root = settings.ck_root(args.ck_root, [args.upstream] if args.upstream else [])
    upstream = settings.upstream(args.upstream, ck_root)
    headers = args.headers.resolve() if args.headers else None
    tree = locate(upstream, cache=cache, ck_root=ck_root, headers=headers)
    if args.dialect not in (None, tree.dialect):
        raise UsageError(f"{tree.name} is of dialect {tree.dialect}, not {args.dialect}. Leave --dialect out.")
    args.dialect = tree.dialect
    _, selection = selection_from(args)
    return Request(
        selection=replace(selection, families=whole(selection.families)),
        tree=tree,
        toolchain=detect(args.toolchain, cache=cache),
        work=work.resolve(),
        object_cache=cache / "objects" if cached else None,
        unit_size=args.unit_size,
    )


def build(
    args: argparse.Namespace,
    elsewhere: Callable[[Request, Console], AbstractContextManager[Elsewhere | None]] = lambda *_: nullcontext(),
) -> int:
    """Run the command; return exit code 0."""
    console = PlainConsole()
    started = time.monotonic()
    request = request_from(args, console, work=args.work, cached=not args.no_cache)
    with elsewhere(request, console) as there:
        tally = run(
            request, jobs=job_count(args.jobs), console=console, emulator=_runs_on_emulator(args), elsewhere=there
        )
    say(console, f"{request.folder}/{LIBRARY}: {tally.summary()}, {time.monotonic() - started:.1f} s")
    if args.resources:
        manifest = request.work / request.folder / "manifest.json"
        show(Manifest.read(manifest), terminal())
    return 0

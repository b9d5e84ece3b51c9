"""``ckpm build``: build a library, with progress, failures and a one-line result."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ckpm.base import rocm_places, settings, warming
from ckpm.base.console import number
from ckpm.base.display import show
from ckpm.base.errors import CkPrefillError, CompileError, DiskFullError, ProcessLimitError, UsageError
from ckpm.base.files import abandoned_drafts, make_folder, name_write_errors
from ckpm.base.jobs import job_count
from ckpm.base.outputs import demand_ours
from ckpm.base.processes import build_lock, ended_by_signals, group
from ckpm.base.trust import signing_key
from ckpm.kernels.code.toolchains import CHOICES, Toolchain, detect
from ckpm.kernels.families.libraries import whole
from ckpm.kernels.families.render import plan_units, render
from ckpm.kernels.families.words import features
from ckpm.kernels.library.finished import demand_plain
from ckpm.kernels.library.manifest import MANIFEST, Manifest
from ckpm.kernels.library.plan import Plan
from ckpm.kernels.library.progress import Tally, follow
from ckpm.kernels.library.request import LIBRARY, Request, discard_library, prepare, scons_command
from ckpm.kernels.library.resources import show as show_resources
from ckpm.kernels.library.run_step import FAILURE
from ckpm.kernels.library.signature_file import discard_foreign
from ckpm.kernels.upstream import headers
from ckpm.kernels.upstream.trees import locate
from ckpm.matrix.dialects import Dialect, check_built_arch
from ckpm.matrix.options import DEFAULT_ARCH, chosen_upstream, selection_from, split_words
from ckpm.matrix.selection import Selection, select_some

TEMPORARY = "tmp"  # in an output folder: the TMPDIR of compilers, whose files of a crash or an interrupt lie there
_ERROR = re.compile(r"[^\s:]+:\d+:\d+: (?:fatal )?error: .*")
_NOISE = re.compile(r"\s*(In file included from|from) ")
_LINES = 25  # lines of the compiler's message shown for each unit; the record keeps all
log = logging.getLogger(__name__)

# Messages of compilers, zig and Python if the system refuses them a process or thread.
_NO_PROCESS = ("Resource temporarily unavailable", "SystemResources", "ThreadQuotaExceeded", "can't start new thread")


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Compilers that run on other machines. ``file`` names them for SConstruct, ``words`` in messages.

    ``failure`` makes the error if a remote machine refused steps.
    """

    file: Path
    words: str
    most_jobs: int
    failure: Callable[[Sequence[Mapping[str, Any]]], CkPrefillError]


def run(request: Request, *, jobs: int, emulator: bool = False, elsewhere: Elsewhere | None = None) -> Tally:
    """Build one library; return the counts of compiled and cached steps.

    With ``emulator`` the emulator's core is compiled at the same time, because the library will run on it.

    Units are compiled here, ``jobs`` at once, or ``elsewhere``; the library is linked and described here. After a
    signal, SCons and the compilers end before this returns. Main thread only.
    """
    with build_lock(request.work / request.folder / ".lock"), ended_by_signals():
        plan, keys = prepare(request)
        demand_plain(request.work / request.folder)
        if discard_foreign(request.work / request.folder, signing_key(settings.cache_folder())):
            log.info(
                f"{request.folder}: not signed by a build of yours (copied, restored or damaged), so all of it is "
                "built again"
            )
        temporary = _clear_temporary(request)
        if request.object_cache:
            make_folder(request.object_cache, "choose another cache folder with CKPM_CACHE, or --no-cache")
        units = sum(step.kind == "unit" for step in plan.steps)
        where = elsewhere.words if elsewhere else number(jobs, "job")
        what = f"{number(len(keys), 'kernel')} in {number(units, 'unit')}, {where}"
        log.info(f"{what}, {request.toolchain.identity}")
        for name, left in plan.facts["left_out"].items():
            what = number(len(left["kernels"]), "kernel")
            log.info(f"left out: {what} that this CK can't compile ({name}): {left['reason']}")
        with _warm_up(request, plan, temporary, emulator=emulator):
            tally, code = _scons(request, plan, jobs, temporary, elsewhere)
            if code != 0 and tally.unfit_to_link:
                # objects were damaged after they were finished; they are deleted now and made again
                again, code = _scons(request, plan, jobs, temporary, elsewhere)
                tally = tally.followed_by(again)
        if code != 0:
            discard_library(request)
            _raise_failures(request, tally, elsewhere)
    return tally


@contextmanager
def _warm_up(request: Request, plan: Plan, temporary: Path, *, emulator: bool) -> Iterator[None]:
    """Build libc++ and the emulator's core while kernels compile; do nothing for a library that exists."""
    environment = {**os.environ, **plan.environment}
    linker = (*request.toolchain.linker, *request.toolchain.link_flags)
    with ExitStack() as stack:
        if not (request.work / request.folder / LIBRARY).exists():
            stack.enter_context(warming.libcxx(linker, temporary, environment))
        if emulator:
            stack.enter_context(warming.emulator_core(temporary, environment))
        yield


def _clear_temporary(request: Request) -> Path:
    """Remove temporary files, half-written objects and drafts of killed processes, under the folder's lock.

    Return the output folder's empty folder for temporary files.
    """
    folder = request.work / request.folder
    temporary = folder / TEMPORARY
    with name_write_errors(folder, "choose another folder with --work"):
        shutil.rmtree(temporary, ignore_errors=True)
        drafts = (draft for below in (folder, folder / "src", folder / "obj") for draft in abandoned_drafts(below))
        for left in (*(folder / "obj").glob("*.tmp"), *drafts):
            with suppress(OSError):
                left.unlink()
        temporary.mkdir(parents=True)
    return temporary


def _scons(request: Request, plan: Plan, jobs: int, temporary: Path, elsewhere: Elsewhere | None) -> tuple[Tally, int]:
    """Run SCons on a plan; return the tally and SCons's exit code."""
    for record in (request.work / request.folder).rglob(f"*{FAILURE}"):  # of earlier builds
        record.unlink()
    environment = {**os.environ, **plan.environment, "TMPDIR": str(temporary)}
    if elsewhere:
        jobs = min(len(plan.steps), elsewhere.most_jobs)  # each only waits: the scheduler chooses what runs
    cluster = str(elsewhere.file) if elsewhere else ""
    command = scons_command(f"{request.folder}/plan.json", jobs, request.object_cache, cluster)
    with group(command, cwd=request.work, environment=environment) as scons:
        assert scons.stdout is not None
        tally = follow(scons.stdout, plan.steps, linking=_link_message(request.toolchain))
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
    files = (request.work / request.folder).rglob(f"*{FAILURE}")
    records: list[Mapping[str, Any]] = sorted(
        (json.loads(file.read_text()) for file in files), key=lambda record: str(record["label"])
    )
    if elsewhere and (refused := [record for record in records if record["refused"]]):
        raise elsewhere.failure(refused)
    messages = [*(f"{record['label']}: {record['output']}" for record in records), *tally.other]
    if full := next((text for text in messages if "No space left on device" in text), None):
        raise DiskFullError(
            f"{full.partition(':')[0]}: no space left on the disk. Free some and build again; it goes on from here."
        )
    if any(sign in text for text in messages for sign in _NO_PROCESS):
        raise ProcessLimitError("compilers could not be started; what is compiled is kept")
    if reason := _common_reason(records):
        example = next(record for record in records if record["kind"] == "host")
        raise CompileError(
            f"{number(len(records), 'step')} failed, with and without kernels, and this is common to them: {reason}\n"
            f"The CK tree of {request.tree.name} in {request.tree.root} may be damaged: 'ckpm doctor' "
            f"examines it.\n{_describe(example, request.work)}"
        )
    texts = [_describe(record, request.work) for record in records]
    if any(record["kind"] in ("unit", "host") for record in records):
        count = sum(len(_failing_kernels(record, request.work)) for record in records)
        head = (
            f"{number(len(records), 'step')} failed, {number(count, 'kernel')} at fault; everything else was compiled."
        )
        raise CompileError("\n".join([head, *texts]))
    raise CompileError(
        "\n".join([f"{request.folder}/{LIBRARY} could not be made.", *texts, *tally.other[-20:]]), kind="link"
    )


def _common_reason(records: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the compiler's first error if all failed steps, with and without kernels, have the same one.

    No kernel is to blame for such an error: it is in a file that all steps include.
    """
    matches = {_ERROR.search(str(record["output"])) for record in records}
    reasons = {match[0] if match else "" for match in matches}
    if len(reasons) != 1 or not {"unit", "host"} <= {str(record["kind"]) for record in records}:
        return None
    return reasons.pop() or None


def _describe(record: Mapping[str, Any], folder: Path) -> str:
    """Describe a failed step: the kernels to blame, the command's exit code, the compiler's first lines."""
    kernels = _failing_kernels(record, folder)
    head = f"{record['label']}: {Path(record['argv'][0]).name} ended with {record['code']}"
    if kernels:
        head += f"; at fault: {len(kernels)} of {len(record['kernels'])} kernels of this unit"
    # include chains and CK's own path don't identify the kernel
    lines = [line for line in str(record["output"]).splitlines() if line.strip() and not _NOISE.match(line)]
    shown = lines[:_LINES] + ([f"... {len(lines) - _LINES} more lines"] if len(lines) > _LINES else [])
    return "\n".join([head, *(f"  {name}" for name in kernels), *(f"    {line}" for line in shown)])


def _failing_kernels(record: Mapping[str, Any], folder: Path) -> list[str]:
    """Return the kernels whose instance a compiler message points into, all of the unit's if there is none.

    A message about a template names the line of our source that uses it, and each instance has its own lines.
    """
    if not record["kernels"]:
        return []
    source = folder / str(record["source"])
    lines = source.read_text(encoding="utf-8").splitlines() if source.is_file() else []
    starts = [number for number, line in enumerate(lines, 1) if line.startswith("namespace ckpm::k")]
    pointed = [int(n) for n in re.findall(rf"{re.escape(source.name)}:(\d+)", str(record["output"]))]
    blamed = {sum(start <= line for start in starts) - 1 for line in pointed}
    names = list(record["kernels"])
    return [names[index] for index in sorted(blamed) if 0 <= index < len(names)] or names


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a build besides the selection's."""
    parser.add_argument("--toolchain", default="auto", choices=CHOICES, help="(default: auto)")
    parser.add_argument("--ck-root", type=Path, default=None, help="a CK checkout; default: CK_ROOT")
    parser.add_argument("--headers", type=Path, default=None, metavar="DIR", help="instead of our own headers (ckpm)")
    parser.add_argument("--unit-size", type=int, default=8, help="kernels compiled together (default: 8)")
    parser.add_argument("--jobs", "-j", type=int, default=None, help="default: by processors and memory")
    parser.add_argument("--work", type=Path, default=Path(), help="folder that holds build/ (default: here)")
    parser.add_argument("--resources", action="store_true", help="then print the kernels with their registers and LDS")
    parser.add_argument("--emulator", action="store_true", help="compile its core meanwhile, unless there is a GPU")
    parser.add_argument(
        "--no-cache", action="store_true", help="neither take objects from the shared cache nor add any"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """The options of ``ckpm build``: the library, and how it is built on this machine.

    ``jobs`` is the number of compilers, None for the default. With ``emulator`` the emulator's core is compiled
    meanwhile. ``resources`` prints the kernels at the end.
    """

    request: Request
    jobs: int | None = None
    emulator: bool = False
    resources: bool = False


def read_options(args: argparse.Namespace) -> BuildOptions:
    """Return the options of a command line. An upstream that is missing is downloaded."""
    if args.unit_size < 1 or (args.jobs is not None and args.jobs < 1):
        raise UsageError("--unit-size and --jobs must be at least 1")
    for arch in split_words("--arch", args.arch, [DEFAULT_ARCH]):
        check_built_arch(arch)
    work = settings.nameable(Path(os.path.realpath(args.work)), "Choose another folder with --work")
    make_folder(work, "choose another folder with --work")
    cache = settings.cache_folder()
    ck_root = settings.ck_root(args.ck_root, [args.upstream] if args.upstream else [])
    upstream = chosen_upstream(args.upstream, ck_root)
    headers = Path(os.path.realpath(args.headers)) if args.headers else None
    tree = locate(upstream, cache=cache, ck_root=ck_root, headers=headers)
    if args.dialect not in (None, tree.dialect):
        raise UsageError(f"{tree.name} is of dialect {tree.dialect}, not {args.dialect}. Leave --dialect out.")
    _, selection = selection_from(args, tree.dialect)
    request = Request(
        selection=replace(selection, families=whole(selection.families)),
        tree=tree,
        toolchain=detect(args.toolchain, cache=cache),
        work=work,
        object_cache=None if args.no_cache else cache / "objects",
        unit_size=args.unit_size,
    )
    emulator = args.emulator and not rocm_places.gpu_archs()
    return BuildOptions(request=request, jobs=args.jobs, emulator=emulator, resources=args.resources)


def build(options: BuildOptions, machines: AbstractContextManager[Elsewhere | None] | None = None) -> None:
    """Build the library of the options, with compilers on other ``machines`` if given."""
    request, started = options.request, time.monotonic()
    with machines or nullcontext() as elsewhere:
        jobs = job_count(options.jobs)
        tally = run(request, jobs=jobs, emulator=options.emulator, elsewhere=elsewhere)
    show(f"{request.folder}/{LIBRARY}: {tally.summary()}, {time.monotonic() - started:.1f} s")
    if options.resources:
        show_resources(Manifest.read(request.work / request.folder / MANIFEST))


def render_sources(dialect: Dialect, selection: Selection, unit_size: int, folder: Path) -> None:
    """Write a selection's sources, for any dialect, without a CK tree or a compiler.

    Sources of an earlier run that the selection lacks are removed, nothing else.
    """
    if unit_size < 1:
        raise UsageError("--unit-size must be at least 1")
    keys = select_some(dialect, replace(selection, families=whole(selection.families)))
    units = plan_units(keys, unit_size)
    demand_ours(folder / f"{name}.hip" for name in (*(unit.name for unit in units), "dispatch", "harness"))
    render(keys, units, dialect.name, features(dialect.name), folder)
    show(f"{folder}: {len(keys)} kernels in {len(units)} units, dispatch.hip, harness.hip ({dialect.name})")

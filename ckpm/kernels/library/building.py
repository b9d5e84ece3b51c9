"""Build a planned library: SCons, what is done meanwhile, and the failures of steps."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.base import settings, warming
from ckpm.base.console import number
from ckpm.base.errors import CkPrefillError, CompileError
from ckpm.base.files import abandoned_drafts, make_folder, name_write_errors
from ckpm.base.processes import build_lock, ended_by_signals, group, own_environment, tool_environment
from ckpm.base.trust import demand_trusted, signing_key, why_untrusted
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.library.failures import raise_failures, refused_steps
from ckpm.kernels.library.finished import RECORD, demand_plain, missing_outputs
from ckpm.kernels.library.manifest import MANIFEST
from ckpm.kernels.library.plan import BuildPlan
from ckpm.kernels.library.progress import Tally, follow
from ckpm.kernels.library.request import LIBRARY, BuildRequest, discard_library, prepare, scons_command
from ckpm.kernels.library.run_step import FAILURE
from ckpm.kernels.library.signature_file import discard_foreign

TEMPORARY = "tmp"  # in an output folder: the TMPDIR of compilers, whose files of a crash or an interrupt lie there
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Compilers that run on other machines. ``file`` names them for SConstruct, ``description`` in messages.

    ``failure`` makes the error if a remote machine refused steps.
    """

    file: Path
    description: str
    most_jobs: int
    failure: Callable[[Sequence[Mapping[str, Any]]], CkPrefillError]


def run(request: BuildRequest, *, jobs: int, emulator: bool = False, elsewhere: Elsewhere | None = None) -> Tally:
    """Build one library; return the counts of compiled and cached steps.

    With ``emulator`` the emulator's core is compiled at the same time, because the library will run on it.

    Units are compiled here, ``jobs`` at once, or ``elsewhere``; the library is linked and described here. After a
    signal, SCons and the compilers end before this returns. Main thread only.
    """
    with build_lock(request.work / request.folder / ".lock"), ended_by_signals():
        _discard_untrusted(request.work / request.folder)
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
        where = elsewhere.description if elsewhere else number(jobs, "job")
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
            if elsewhere and (refused := refused_steps(request)):
                raise elsewhere.failure(refused)
            raise_failures(request, tally)
        if missing := missing_outputs(plan, request.work):
            raise CompileError(
                f"{', '.join(missing)}: not there, or not of this build, although SCons ended well. Build again; if "
                f"that does not help, delete {request.work / request.folder} first.",
                kind="not-built",
            )
    return tally


def _discard_untrusted(folder: Path) -> None:
    """Delete what other users may have put into an output folder, and let them write there no more.

    Commands refuse to run such a library, and their remedy is to build it again. Raises TrustError: another user owns
    the folder.
    """
    instead = "Delete it, or choose another folder with --work"
    names = (LIBRARY, MANIFEST, RECORD, "src", "obj")
    inside = [file for name in names for file in (folder / name, *(folder / name).glob("*")) if os.path.lexists(file)]
    if not any(why_untrusted(path, folder, instead=instead) for path in (folder, *inside)):
        return
    with name_write_errors(folder, instead):
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode & ~0o022)
        demand_trusted(folder, folder, instead)
        for file in map(folder.joinpath, names):
            shutil.rmtree(file) if file.is_dir() and not file.is_symlink() else file.unlink(missing_ok=True)
    log.info(f"{folder}: other users could write there, so all of it is built again")


@contextmanager
def _warm_up(request: BuildRequest, plan: BuildPlan, temporary: Path, *, emulator: bool) -> Iterator[None]:
    """Build libc++ and the emulator's core while kernels compile; do nothing for a library that exists."""
    environment = tool_environment(plan.environment)
    linker = (*request.toolchain.linker, *request.toolchain.link_flags)
    with ExitStack() as stack:
        if not (request.work / request.folder / LIBRARY).exists():
            stack.enter_context(warming.libcxx(linker, temporary, environment))
        if emulator:
            stack.enter_context(warming.emulator_core(temporary, own_environment(plan.environment)))
        yield


def _clear_temporary(request: BuildRequest) -> Path:
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


def _scons(
    request: BuildRequest, plan: BuildPlan, jobs: int, temporary: Path, elsewhere: Elsewhere | None
) -> tuple[Tally, int]:
    """Run SCons on a plan; return the tally and SCons's exit code."""
    for record in (request.work / request.folder).rglob(f"*{FAILURE}"):  # of earlier builds
        record.unlink()
    environment = tool_environment({**plan.environment, "TMPDIR": str(temporary)})
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

"""Programs that run by themselves on the emulated device: their environment, and their decoder.

The core's library takes the place of ROCm's. The dynamic loader finds it in a folder, under the names that programs
were linked against (libamdhip64.so.5 to .7). Such a process has no Python: its settings are in the environment
(core/standalone/settings.h), and it reads programs of code objects from the cache. A missing one comes from a helper,
``python -m ckpm_emulator decode``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm_emulator import code_object, program_cache, toolchain
from ckpm_emulator.base.errors import CodeObjectError, DeviceError, InputError, OutputError
from ckpm_emulator.base.store import draft_folder
from ckpm_emulator.base.trust import keep_others_out
from ckpm_emulator.options import ARCHS, Options

VARIABLE = "CKPM_EMULATOR"
# Of ROCm 5, 6 and 7, and what programs open by themselves; SONAME is the core's own.
NAMES = ("libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so")
CHECKS = (
    *("poison", "poison_memory", "late_loads", "lds_races", "uninitialised", "hazards"),
    *("alignment", "barriers", "late_lds_reads", "lds_bounds"),
)
_ROOT = Path(__file__).resolve().parents[1]
_DECODE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from ckpm_emulator.cli import main; sys.exit(main())"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A program with its arguments, its device, and the file for its counters."""

    command: Sequence[str]
    options: Options
    counters: Path | None = None


def program(name: str) -> Path:
    """The file of a command, as a shell finds it. Raises InputError if it is missing or not executable."""
    if found := shutil.which(name):
        return Path(found).absolute()
    state = "is not an executable program" if Path(name).exists() else "is not there"
    raise InputError(f"{name} {state}. Give a path, or the name of a program in PATH.", kind="program")


def arch_of(file: Path) -> str | None:
    """The first emulated arch in a program's file; None if it has none."""
    try:
        targets = {target.partition(":")[0] for target, _ in code_object.code_objects(file)}
    except CodeObjectError:  # a script, a program whose code is in a library, or compressed
        return None
    return next((arch for arch in reversed(ARCHS) if arch in targets), None)


def environment(run: Run, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program that is run with ``run``'s settings.

    Raises SetupError, CompileError, TrustError: the core can't be built. OutputError: a path has
    the end of a line in it, or a link can't be made.
    """
    core = toolchain.library()
    folders = [str(library_folder(core))]
    if before := inherited.get("LD_LIBRARY_PATH"):
        folders.append(before)
    return {**inherited, "LD_LIBRARY_PATH": ":".join(folders), VARIABLE: settings(run)}


def settings(run: Run) -> str:
    """The settings as lines of name=value. Raises OutputError: one of them holds the end of a line."""
    lines = [f"option.{name}={value}" for name, value in run.options.integers().items()]
    lines += [f"text.{name}={text}" for name, text in run.options.texts().items()]
    hazards = ("--hazards",) if run.options.hazards else ()
    lines += [f"decoder={word}" for word in (sys.executable, "-P", "-c", _DECODE, str(_ROOT), "decode", *hazards)]
    lines.append(f"store={program_cache.folder()}")
    lines.append(f"makers={program_cache.makers(judged=run.options.hazards)}")
    lines.append(f"process={os.getpid()}")
    lines.append(f"faulted={DeviceError.exit_code}")
    if run.counters:
        lines.append(f"counters={run.counters.absolute()}")
    if broken := [line for line in lines if "\n" in line]:
        raise OutputError(f"{broken[0]!r}: a path with the end of a line in it. Name another place.")
    return "\n".join(lines)


def library_folder(core: Path) -> Path:
    """A folder with the core's library under all names; for an installed library, in the cache. Raises OutputError."""
    installed = core.is_relative_to(toolchain.INSTALLED)
    folder, target = core.parent, Path(core.name)
    if installed:
        keep_others_out()
        target, name = core, hashlib.sha256(bytes(core)).hexdigest()[:16]
        folder = toolchain.cache_folder() / f"names-{name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (*NAMES, core.name) if installed else NAMES:
            link = folder / name
            if link.is_symlink() and link.readlink() == target:
                continue
            with draft_folder(folder) as drafts:
                (drafts / name).symlink_to(target)
                (drafts / name).replace(link)
    except OSError as error:
        raise OutputError(f"{folder}: {error.strerror}. Set CKPM_CACHE to another folder.") from error
    return folder


def execute(run: Run) -> None:
    """Become the program: it keeps this process's number, streams and signals. Returns only by an error.

    Raises InputError: the system refuses to run it, and what ``environment`` raises.
    """
    file = program(run.command[0])
    mask = os.umask(0o077)
    os.umask(mask)
    variables = environment(run, os.environ)
    os.umask(mask)  # compiling the core changes it, and the program inherits it
    sys.stdout.flush()
    try:
        os.execve(file, list(run.command), variables)  # noqa: S606 - the user's program
    except OSError as error:
        raise InputError(
            f"{file} can't be run: {error.strerror}. Is it built for this machine?", kind="program"
        ) from error

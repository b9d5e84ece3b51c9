"""Programs that run by themselves on the emulated device: their environment, and their decoder.

The core's library takes the place of ROCm's. The dynamic loader finds it in a folder, under the names that programs
were linked against (libamdhip64.so.5 to .7). Such a process has no Python: its settings are in the environment
(core/standalone/settings.h), and it reads programs of code objects from the cache. A missing one comes from a helper,
``python -m ckpm_emulator decode``.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile

from ckpm_emulator import code_object, program_cache, toolchain
from ckpm_emulator.cache import cache_folder, draft_for
from ckpm_emulator.errors import CheckFailedError, CodeObjectError, DeviceError, InputError, OutputError
from ckpm_emulator.options import ARCHS, Options
from ckpm_emulator.trust import keep_others_out

VARIABLE = "CKPM_EMULATOR"
# Of ROCm 5, 6 and 7, and what programs open by themselves; SONAME is the core's own.
NAMES = ("libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so")
CHECKS = (
    *("poison", "poison_memory", "late_loads", "lds_races", "uninitialised", "hazards"),
    *("alignment", "barriers", "late_lds_reads", "global_races", "lds_bounds", "uninitialised_memory", "leaks"),
    *("open_rules", "unaligned", "heap", "stream_order"),
)
ALLOWED = ("unaligned",)  # by the hardware, and so not among all
OF_PROCESS = ("poison_memory", "hazards")  # of allocations and of translated code, whichever kernel runs
# Below the root of a distribution.
_LOADER = "lib64/ld-linux-x86-64.so.2"
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib", "opt/rocm/lib")
_ROOT = Path(__file__).resolve().parents[1]
_DECODE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from ckpm_emulator.cli import main; sys.exit(main())"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A program with its arguments, its device, the file for its counters, and the distribution it is from."""

    command: Sequence[str]
    options: Options
    counters: Path | None = None
    root: Path | None = None
    faults_expected: bool = False  # a program that ends well after one does so
    leaks_fail: bool = False  # one that has not freed memory does not end well
    error_exit: int = 0  # the exit code after a report of a check, whatever the program's own is; 0: theirs
    quiet: bool = False  # failures of calls are not reported, as the program provokes them


def program(name: str) -> Path:
    """The file of a command, as a shell finds it. It is refused if it is missing or not executable."""
    if path := shutil.which(name):
        return Path(path).absolute()
    state = "is not an executable program" if Path(name).exists() else "is not there"
    raise InputError(f"{name} {state}. Give a path, or the name of a program in PATH.", kind="program")


def arch_of(command: Sequence[str]) -> str | None:
    """The first emulated arch in the file of a program, or of the program that a command's dynamic loader starts; or
    None.
    """
    first = program(command[0])
    loaded = [Path(word) for word in command[1:] if Path(word).is_file()] if first.name.startswith("ld-") else []
    for file in (first, *loaded):
        try:
            targets = {target.partition(":")[0] for target, _ in code_object.code_objects(file)}
        except CodeObjectError:  # a script, a program whose code is in a library, or compressed
            continue
        if emulated_arch := next((arch for arch in reversed(ARCHS) if arch in targets), None):
            return emulated_arch
    return None


def command_of(run: Run, libraries: str) -> list[str]:
    """The command that starts a program. With ``root``, the loader there starts it, and finds ``libraries``, too."""
    file = program(run.command[0])
    if run.root is None:
        if why := _newer_library(file):
            near = next(
                (str(folder) for folder in file.parents if folder.parent != folder and (folder / _LOADER).exists()),
                "FOLDER",
            )
            raise InputError(f"{file} {why}. Name the root of its distribution: run --root {near}", kind="program")
        return list(run.command)
    root = run.root.absolute()
    if not (root / _LOADER).exists():
        raise InputError(f"{root} has no {_LOADER}: name the root file system of a distribution", kind="program")
    folders = ":".join((libraries, *(str(root / folder) for folder in _LIBRARIES if (root / folder).is_dir())))
    return [str(root / _LOADER), "--inhibit-cache", "--library-path", folders, str(file), *run.command[1:]]


def _newer_library(file: Path) -> str:
    """The reason why this machine's C library is too old for a program; '' if it is not."""
    here = (os.confstr("CS_GNU_LIBC_VERSION") or "").rpartition(" ")[2]
    try:
        with file.open("rb") as stream:
            section = ELFFile(stream).get_section_by_name(".gnu.version_r")
            needed = (
                [version.name for _, versions in section.iter_versions() for version in versions] if section else []
            )
    except (OSError, ELFError, ConstructError):  # a script
        return ""
    versions = [name.removeprefix("GLIBC_") for name in needed if re.fullmatch(r"GLIBC_[0-9.]+", name)]
    newest = max(versions, key=_numbers, default=here)
    return f"needs glibc {newest}; this machine has {here}" if here and _numbers(newest) > _numbers(here) else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part)


def environment(run: Run, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program that is run with ``run``'s settings."""
    core = toolchain.library()
    folders = [str(library_folder(core))]
    if ":" in folders[0]:
        raise OutputError(
            f"{folders[0]}: LD_LIBRARY_PATH can't name a folder with ':'. Set CKPM_CACHE to another folder."
        )
    if before := inherited.get("LD_LIBRARY_PATH"):
        folders.append(before)
    return {**inherited, "LD_LIBRARY_PATH": ":".join(folders), VARIABLE: settings(run)}


def settings(run: Run) -> str:
    """The settings as lines of name=value."""
    lines = [f"option.{name}={value}" for name, value in run.options.integers().items()]
    lines += [f"text.{name}={text}" for name, text in run.options.texts().items()]
    hazards = ("--hazards",) if run.options.hazards else ()
    lines += [f"decoder={word}" for word in (sys.executable, "-P", "-c", _DECODE, str(_ROOT), "decode", *hazards)]
    lines.append(f"store={program_cache.folder()}")
    lines.append(f"makers={program_cache.makers(judged=run.options.hazards)}")
    lines.append(f"process={os.getpid()}")
    lines.append(f"faulted={0 if run.faults_expected else DeviceError.exit_code}")
    lines.append(f"defective={CheckFailedError.exit_code}")
    lines.append(f"leaked={CheckFailedError.exit_code if run.leaks_fail else 0}")
    lines.append(f"unwritten={OutputError.exit_code}")
    lines += [f"error_exit={run.error_exit}", f"quiet={int(run.quiet)}"]
    if run.counters:
        lines.append(f"counters={run.counters.absolute()}")
    if broken := [line for line in lines if "\n" in line]:
        raise OutputError(f"{broken[0]!r}: a path with the end of a line in it. Name another place.")
    return "\n".join(lines)


def library_folder(core: Path) -> Path:
    """A folder with the core's library under all names; for an installed library, in the cache."""
    installed = core.is_relative_to(toolchain.INSTALLED)
    folder, target = core.parent, Path(core.name)
    if installed:
        keep_others_out()
        target, name = core, hashlib.sha256(bytes(core)).hexdigest()[:16]
        folder = cache_folder() / f"names-{name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (*NAMES, core.name) if installed else NAMES:
            link = folder / name
            if link.is_symlink() and link.readlink() == target:
                continue
            with draft_for(link, folder) as draft:
                draft.symlink_to(target)
    except OSError as error:
        raise OutputError(f"{folder}: {error.strerror}. Set CKPM_CACHE to another folder.") from error
    return folder


def execute(run: Run) -> None:
    """Become the program: it keeps this process's number, streams and signals. Returns only by an error."""
    file = program(run.command[0])
    mask = os.umask(0o077)
    os.umask(mask)
    variables = environment(run, os.environ)
    os.umask(mask)  # compiling the core changes it, and the program inherits it
    command = command_of(run, variables["LD_LIBRARY_PATH"])
    sys.stdout.flush()
    try:
        os.execve(file if run.root is None else command[0], command, variables)  # noqa: S606 - the user's program
    except OSError as error:
        raise InputError(
            f"{file} can't be run: {error.strerror}. Is it built for this machine?", kind="program"
        ) from error

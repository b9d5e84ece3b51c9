"""The interpreter's core as a shared library: the installed file, or in a clone what CMake builds on first use."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import logging
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ckpm_emulator.cache import adopt, cache_folder, checked_link, is_adopted
from ckpm_emulator.errors import CompileError, EmulatorError, SetupError, UsageError
from ckpm_emulator.options import processors
from ckpm_emulator.trust import demand_trusted, keep_others_out

INSTALLED = Path(__file__).parent / "core"  # a folder for each instruction set
PROJECT = Path(__file__).resolve().parents[1]
CORE = PROJECT / "core"
SONAME = "libamdhip64.so.7"  # what libraries linked against ROCm ask for

# Instruction sets, best first: flags of /proc/cpuinfo that a level needs (x86-64 psABI, micro-architecture levels).
_LEVELS: Mapping[str, tuple[str, ...]] = {
    "avx512": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma", "bmi2"),
    "avx2": ("avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"),
    "portable": (),
}
ISA_LEVELS = tuple(_LEVELS)
_TRIAL = "#include <bit>\n#include <span>\nint main() { return std::popcount(0u) + int(std::span<int>().size()); }\n"
_SHOWN_ERRORS = 20
# What compilers and CMake get of the user's variables: others, such as CXXFLAGS or CMAKE_BUILD_TYPE, steer them.
_KEPT = re.compile(
    r"PATH|HOME|USER|LANG|LC_\w+|TMPDIR|LD_LIBRARY_PATH|(ROCM|HIP)_PATH|NIX_\w+|CCACHE_\w+|PYTHON(USERBASE|HOME)"
)
_LOG = logging.getLogger("ckpm.emulator")  # ckpm's commands print the lines of all loggers below ckpm


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """A C++ compiler: its command, and the version that distinguishes it from another with the same command."""

    command: tuple[str, ...]
    identity: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the compiler."""
        command = [*self.command, *arguments]
        environment = tool_environment(self.environment)
        return subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")


def tool_environment(more: Mapping[str, str]) -> dict[str, str]:
    """The environment of a compiler or of CMake: the caller's variables that don't steer it, and ``more``."""
    kept = {name: value for name, value in os.environ.items() if _KEPT.fullmatch(name)}
    return {**kept, "PYTHONSAFEPATH": "1", **more}  # no ziglang.py of the current folder is run


def isa_level(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The best instruction set level of this machine."""
    if platform.machine() != "x86_64" or not cpuinfo.is_file():
        return "portable"
    lines = (line.partition(":")[2] for line in cpuinfo.read_text().splitlines() if line.startswith("flags"))
    flags = set(next(lines, "").split())
    return next(level for level, needed in _LEVELS.items() if flags.issuperset(needed))


def compilers(cache: Path | None = None) -> Iterator[Compiler]:
    """The compilers found, in order of preference: CXX, c++, g++, clang++, the ziglang package's."""
    if chosen := os.environ.get("CXX"):
        yield _with_version(_command_of(chosen))
    for name in ("c++", "g++", "clang++"):
        if path := shutil.which(name):
            yield _with_version((path,))
    if spec := importlib.util.find_spec("ziglang"):
        from importlib.metadata import version  # only here: it takes longer than anything else that a start imports

        yield Compiler(
            command=(sys.executable, "-m", "ziglang", "c++"),
            identity=f"ziglang {version('ziglang')}",
            environment=zig_folders(Path(str(spec.origin)).with_name("lib"), cache or cache_folder()),
        )


def zig_folders(lib: Path, cache: Path) -> dict[str, str]:
    """The variables with the folder of the zig that has ``lib``: others' notes have other inodes (as in ckpm)."""
    folder = str(cache.parent / "zig" / _hash(str(lib)))
    return {"ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}


def fit_compiler(cache: Path | None = None) -> Compiler:
    """The first compiler found that compiles C++20. Raises SetupError."""
    tried = []
    for compiler in compilers(cache):
        reason = _why_unfit(compiler)
        if not reason:
            return compiler
        tried.append(reason)
    tries = "; ".join(tried) or "neither CXX nor c++, g++, clang++ nor the Python package 'ziglang' is there"
    raise SetupError(
        f"no C++20 compiler for the emulator's core: {tries}. Try: pip install ziglang==0.17.0", kind="compiler"
    )


def library(*, isa: str | None = None, plain: bool = False, cache: Path | None = None) -> Path:
    """The path of the core's shared library; in a clone it is built if a source of it has changed.

    ``plain`` leaves out the short ways of the usual cases (isa/fast.h), to compare results and speed with. CKPM_JOBS
    compilers run at a time, else one for each processor.

    Raises:
        SetupError: no C++20 compiler was found.
        CompileError: the core doesn't compile, or no installed library is for this machine.
        TrustError: another user can write to the library.
    """
    level = isa or isa_level()
    if level not in _LEVELS:
        raise CompileError(f"unknown instruction set '{level}'. Known: {', '.join(ISA_LEVELS)}.", kind="core")
    if INSTALLED.is_dir():
        usable = [INSTALLED / name / SONAME for name in ISA_LEVELS[ISA_LEVELS.index(level) :]]
        if libraries := [file for file in usable if file.is_file() and not plain]:
            return libraries[0]
        built = ", ".join(sorted(folder.name for folder in INSTALLED.iterdir()))
        wanted = "without short ways" if plain else f"for {level} processors"
        raise CompileError(
            f"{INSTALLED} has no library {wanted}, only: {built}. Install ckpm-emulator again.", kind="core"
        )
    base = cache if cache is not None else cache_folder()
    # The first compiler may be unfit, which a trial for each call would take too long to find out.
    for compiler in compilers(base):
        build = _Build(compiler, level, plain, base)
        if build.is_finished():
            return build.result
    return _Build(fit_compiler(base), level, plain, base).run()


def finished_core(compiler: Compiler, level: str) -> Path | None:
    """The core that ``compiler`` has built of these sources in the user's cache, or None."""
    with contextlib.suppress(EmulatorError):
        build = _Build(compiler, level, False, cache_folder())
        return build.result if build.is_finished() else None
    return None


def _with_version(command: tuple[str, ...]) -> Compiler:
    compiler = Compiler(command=command, identity="")
    try:
        return replace(compiler, identity=compiler.run("--version").stdout.partition("\n")[0])
    except OSError as error:
        return replace(compiler, identity=f"broken {error}")  # its trial reports the reason


def _why_unfit(compiler: Compiler) -> str:
    """The reason why a compiler builds no C++20; '' if it does."""
    shown = shlex.join(compiler.command)
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder, "trial.cpp")
        trial.write_text(_TRIAL)
        try:
            run = compiler.run("-std=c++20", "-c", str(trial), "-o", str(trial.with_suffix(".o")))
        except OSError as error:
            return f"'{shown}' can't be started ({error.strerror})"
        return f"'{shown}' compiles no C++20 ({_first_error(run.stderr)})" if run.returncode else ""


def _first_error(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if "error" in line), text.strip().partition("\n")[0])


class _Build:
    """A build of the core: CMake's folder, one for each clone, and the library, one for each state of the sources."""

    def __init__(self, compiler: Compiler, level: str, plain: bool, cache: Path) -> None:
        self._compiler, self._cache, self._target = compiler, cache, f"core_{level}"
        self._options = [f"-DEMU_LEVELS={level}", f"-DEMU_PLAIN={'ON' if plain else 'OFF'}"]
        state = hashlib.sha256()
        sources = [PROJECT / "CMakeLists.txt", *sorted(file for file in CORE.rglob("*") if file.is_file())]
        for file in sources:
            state.update(f"\0{os.path.relpath(file, PROJECT)}\0".encode() + file.read_bytes())
        program, *arguments = compiler.command
        variant = (compiler.identity, level, str(plain))
        self._folder = cache / "build" / f"{level}-{_hash(program, *arguments, str(PROJECT), *variant)}"
        digest = _hash(Path(program).name, *arguments, *variant, self._target, state.hexdigest())
        self.result = cache / f"core-{level}-{digest}" / SONAME

    def is_finished(self) -> bool:
        """True if the library is there as it was built."""
        if self.result.exists():
            demand_trusted(self.result, self._cache)
        return is_adopted(self.result)

    def run(self) -> Path:
        """Build what has changed, and copy the library. It appears whole or not at all."""
        keep_others_out()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            demand_trusted(self._folder, self._cache)
            from filelock import FileLock  # only here: most starts find the library

            with FileLock(self._folder.with_suffix(".lock"), fallback_to_soft=False):
                if not self.is_finished():  # else another process was faster
                    _LOG.info("compiling the emulator's core for this processor, which takes minutes, once")
                    self._update()
                    adopt(self._folder / self._target.removeprefix("core_") / SONAME, self.result, self._cache)
        except OSError as error:
            raise CompileError(f"the emulator's core can't be built in {self._cache}: {error}", kind="core") from error
        return self.result

    def _update(self) -> None:
        """Run CMake; from nothing if the folder has changed since the last build, as it may hold damaged objects."""
        jobs, digest = str(_job_count()), self._folder.with_suffix(".sha256")
        if not digest.is_file() or digest.read_text() != _content(self._folder):
            shutil.rmtree(self._folder)
        zig = self._compiler.environment.get("ZIG_GLOBAL_CACHE_DIR")
        cmake, ninja = _cmake()
        try:
            with checked_link(Path(zig)) if zig else contextlib.nullcontext():
                self._run(
                    *(*cmake, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", "-S", str(PROJECT)),
                    *("-B", str(self._folder), f"-DCMAKE_CXX_COMPILER={';'.join(self._compiler.command)}"),
                    *self._options,
                )
                self._run(*cmake, "--build", str(self._folder), "--target", self._target, "--parallel", jobs)
        finally:
            digest.write_text(_content(self._folder))

    def _run(self, *command: str) -> None:
        environment = tool_environment(self._compiler.environment)
        run = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
        if run.returncode:
            shown = "\n  ".join(error_lines(f"{run.stdout}\n{run.stderr}")[:_SHOWN_ERRORS])
            raise CompileError(
                f"the emulator's core doesn't build:\n  {shown}\nCommand: {shlex.join(command)}", kind="core"
            )


def error_lines(output: str) -> list[str]:
    """The lines about errors of compilers, linkers and CMake, or all lines if there is none."""
    lines = output.splitlines()
    marks = re.compile(r"\berror:|CMake Error|\bundefined\b|multiple definition")
    return [line for line in lines if marks.search(line)] or lines


def _cmake() -> tuple[list[str], str]:
    """The commands of CMake and Ninja: from the Python packages, else from the machine."""
    programs: list[str | None] = []
    for name in ("cmake", "ninja"):
        beside = Path(sys.executable).with_name(name)
        programs.append(str(beside) if beside.is_file() else shutil.which(name))
    cmake, ninja = programs
    if cmake is None or ninja is None:
        raise SetupError(
            "the emulator's core is built by CMake and Ninja. Try: pip install cmake ninja", kind="compiler"
        )
    return [cmake], ninja


def _command_of(chosen: str) -> tuple[str, ...]:
    """The command that CXX contains."""
    try:
        command = tuple(shlex.split(chosen))
    except ValueError as error:
        raise UsageError(f"CXX={chosen}: {error}. Set it to a compiler's command, or unset it.") from error
    if not command:
        raise UsageError("CXX has blanks alone: set it to a compiler's command, or unset it.")
    return command


def _job_count() -> int:
    """CKPM_JOBS, else the number of processors."""
    chosen = os.environ.get("CKPM_JOBS", "")
    if not chosen:
        return processors()
    if not re.fullmatch("[0-9]{1,4}", chosen) or int(chosen) < 1:
        raise UsageError(f"CKPM_JOBS={shlex.quote(chosen)}: set it to a number of compilers, 1 or more, or unset it.")
    return int(chosen)


def _hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _content(folder: Path) -> str:
    """A hash of all files below a folder, with their names."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            digest.update(f"{file.relative_to(folder)}\0{file.stat().st_size}\0".encode())
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()

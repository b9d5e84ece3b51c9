"""The interpreter's core as a shared library: compiled with the host's C++ compiler when first needed.

``library()`` returns the path of ``libamdhip64.so.7``, built once for each state of the sources, compiler and
instruction set. Raises CompilerMissingError if there is no C++20 compiler, CoreBuildError if the core doesn't compile.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ckpm_emulator.base.store import adopt, draft_folder, is_adopted
from ckpm_emulator.base.trust import keep_others_out, why_untrusted
from ckpm_emulator.base.zig_cache import checked_link
from ckpm_emulator.errors import CompilerMissingError, CoreBuildError, OutputError, UntrustedFileError

CORE = Path(__file__).resolve().parents[1] / "core"
EXPORTS = CORE / "exports.map"
PRECOMPILED = CORE / "precompiled.h"
SONAME = "libamdhip64.so.7"  # what libraries linked against ROCm ask for

# Instruction sets, best first: flags of /proc/cpuinfo that a level needs (x86-64 psABI, micro-architecture levels).
_LEVELS: Mapping[str, tuple[str, ...]] = {
    "avx512": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma", "bmi2"),
    "avx2": ("avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"),
    "portable": (),
}
ISA_LEVELS = tuple(_LEVELS)
_GCC_ARCH = {"avx512": "x86-64-v4", "avx2": "x86-64-v3", "portable": "x86-64"}

# The interpreter switches the rounding mode and must not fuse what the ISA rounds twice.
_FLAGS = (
    *("-std=c++20", "-O3", "-fPIC", "-pthread", "-fvisibility=hidden", "-fvisibility-inlines-hidden"),
    *("-ffp-contract=off", "-frounding-math", "-fno-math-errno", "-fno-strict-aliasing"),
)
_PLAIN_FLAGS = ("-DEMU_PLAIN",)
_LINK_FLAGS = ("-Wl,-z,defs", "-Wl,-z,now", "-Wl,-Bsymbolic")
_ZIG_TARGET = ("-target", "x86_64-linux-gnu.2.28")
# In the tests: a new compiler's new warning must not stop a user. How vectors are passed depends on the instruction set
# (psabi), which doesn't matter within a file.
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-psabi")
_TRIAL = "#include <bit>\n#include <span>\nint main() { return std::popcount(0u) + int(std::span<int>().size()); }\n"
_SHOWN_ERRORS = 20
_WORTH_PRECOMPILING = 4  # files: parsing the common headers once takes about what it saves in two


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """A C++ compiler: how it is called, and what tells two of them apart."""

    command: tuple[str, ...]
    identity: str
    is_zig: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def target_flags(self, isa: str) -> tuple[str, ...]:
        """Flags for an instruction set."""
        if self.is_zig:  # its sanitizer and debug information are on by default; without a glibc it takes the newest
            base = ("-fno-sanitize=undefined", "-g0")
            if platform.machine() != "x86_64":
                return base
            return (*base, *_ZIG_TARGET, f"-mcpu={_GCC_ARCH[isa].replace('-', '_')}")
        if platform.machine() != "x86_64":
            return ()
        # GCC prefers 256-bit vectors for its generic x86-64-v4; clang knows the option too.
        width = ("-mprefer-vector-width=512",) if isa == "avx512" else ()
        return (f"-march={_GCC_ARCH[isa]}", *width)

    def link_flags(self) -> tuple[str, ...]:
        """Flags of the link. For zig the very ones kernels are linked with: it builds its libc++ for each target."""
        return ("-O2", *_ZIG_TARGET) if self.is_zig and platform.machine() == "x86_64" else ("-O2", "-pthread")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the compiler."""
        environment = {**os.environ, **self.environment}
        return subprocess.run([*self.command, *arguments], env=environment, capture_output=True, text=True)


def cache_folder() -> Path:
    """CKPM_CACHE, else the user's cache folder; in it, ``emulator``. Raises OutputError: neither is known."""
    base = os.environ.get("CKPM_CACHE")
    if base:
        return Path(base).absolute() / "emulator"
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not home.is_absolute():  # such are to be ignored (XDG Base Directory Specification)
        try:
            home = Path.home() / ".cache"
        except RuntimeError as error:
            raise OutputError("this user has no home folder for the cache: set CKPM_CACHE to a folder.") from error
    return home / "ck-prefill-matrix" / "emulator"


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
        yield from _with_version(tuple(shlex.split(chosen)))
    for name in ("c++", "g++", "clang++"):
        if path := shutil.which(name):
            yield from _with_version((path,))
    if importlib.util.find_spec("ziglang"):
        from importlib.metadata import version  # only here: it takes longer than anything else that a start imports

        caches = str((cache or cache_folder()).parent / "zig")
        yield Compiler(
            command=(sys.executable, "-m", "ziglang", "c++"),
            identity=f"ziglang {version('ziglang')}",
            is_zig=True,
            environment={"ZIG_GLOBAL_CACHE_DIR": caches, "ZIG_LOCAL_CACHE_DIR": caches},
        )


def library(
    *,
    isa: str | None = None,
    sources: Sequence[Path] | None = None,
    compiler: Compiler | None = None,
    cache: Path | None = None,
    jobs: int | None = None,
    plain: bool = False,
) -> Path:
    """The path of the core's shared library, built if needed.

    ``sources`` replaces core/*/*.cpp, for tests. Two processes that ask at once build it once. ``jobs`` compilers run
    at a time: CKPM_JOBS, else one a processor. ``plain`` leaves out the short ways of the usual cases (isa/fast.h), to
    compare results and speed with.
    """
    level = isa or isa_level()
    if level not in _LEVELS:
        raise CoreBuildError(f"unknown instruction set '{level}'. Known: {', '.join(ISA_LEVELS)}.")
    chosen = tuple(sources) if sources is not None else tuple(sorted(CORE.rglob("*.cpp")))
    base = cache if cache is not None else cache_folder()
    tried: list[str] = []
    for candidate in [compiler] if compiler else compilers(base):
        build = _Build(candidate, level, chosen, base, _PLAIN_FLAGS if plain else ())
        if build.is_sound():
            return build.result
        if reason := _why_unfit(candidate):
            tried.append(reason)
            continue
        return build.run(jobs or int(os.environ.get("CKPM_JOBS") or 0) or len(os.sched_getaffinity(0)))
    tries = "; ".join(tried) if tried else "neither CXX nor c++, g++, clang++ nor the Python package 'ziglang' is there"
    raise CompilerMissingError(f"no C++20 compiler for the emulator's core: {tries}. Try: pip install ziglang==0.17.0")


def _with_version(command: tuple[str, ...]) -> Iterator[Compiler]:
    try:
        run = subprocess.run([*command, "--version"], capture_output=True, text=True)
    except OSError as error:
        yield Compiler(command=command, identity=f"broken {error}")  # its trial will say so
        return
    yield Compiler(command=command, identity=run.stdout.partition("\n")[0], is_zig="ziglang" in " ".join(command))


def _why_unfit(compiler: Compiler) -> str:
    """Empty if the compiler builds C++20."""
    shown = shlex.join(compiler.command)
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder, "trial.cpp")
        trial.write_text(_TRIAL)
        try:
            run = compiler.run("-std=c++20", "-c", str(trial), "-o", str(trial.with_suffix(".o")))
        except OSError as error:
            return f"'{shown}' can't be started ({error.strerror})"
        return f"'{shown}' compiles no C++20 ({_first_line(run.stderr)})" if run.returncode else ""


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if "error" in line), text.strip().partition("\n")[0])


class _Build:
    """One library: its key, its place, its steps."""

    def __init__(
        self, compiler: Compiler, isa: str, sources: Sequence[Path], cache: Path, more_flags: Sequence[str] = ()
    ) -> None:
        self._compiler, self._sources, self._cache = compiler, sources, cache
        self._flags = (*_FLAGS, *compiler.target_flags(isa), *more_flags)
        headers = hashlib.sha256()
        for header in (EXPORTS, *sorted(CORE.rglob("*.h"))):
            headers.update(header.name.encode() + b"\0" + header.read_bytes())
        self._common = "\0".join((*self._flags, compiler.identity, " ".join(compiler.command), headers.hexdigest()))
        self._objects = [cache / "objects" / f"{self._key(source)}.o" for source in sources]
        whole = hashlib.sha256("\0".join(path.stem for path in self._objects).encode()).hexdigest()
        self.version = whole[:16]
        self.result = cache / f"core-{isa}-{whole[:16]}" / SONAME

    def _key(self, source: Path) -> str:
        return hashlib.sha256(f"{self._common}\0{source.name}\0{source.read_text()}".encode()).hexdigest()[:24]

    def run(self, jobs: int) -> Path:
        """Compile what is missing and link. Results appear whole or not at all."""
        keep_others_out()
        try:
            (self._cache / "objects").mkdir(parents=True, exist_ok=True)
            with _locked(self._cache / f"{self.version}.lock"):
                if not self.is_sound():  # else another process was faster
                    self._compile_missing(jobs)
                    self._link()
        except OSError as error:
            raise CoreBuildError(f"the emulator's core can't be built in {self._cache}: {error}") from error
        return self.result

    def is_sound(self) -> bool:
        """Whether the library is there as it was linked.

        Raises UntrustedFileError: others could have put it, or an object that it would be linked from, there.
        """
        for file in (self.result, *self._objects):
            if file.exists() and (why := why_untrusted(file, self._cache)):
                raise UntrustedFileError(why)
        return is_adopted(self.result)

    def _compile_missing(self, jobs: int) -> None:
        pairs = zip(self._sources, self._objects, strict=True)
        missing = sorted((pair for pair in pairs if not is_adopted(pair[1])), key=_longest_first)
        with self._common_headers(len(missing)) as included, ThreadPoolExecutor(max_workers=jobs) as pool:
            list(pool.map(lambda pair: self._compile(pair[0], pair[1], included), missing))

    @contextlib.contextmanager
    def _common_headers(self, files: int) -> Iterator[tuple[str, ...]]:
        """Options with which a file begins with the common headers, parsed already; none for a few files."""
        if files < _WORTH_PRECOMPILING:
            yield ()
            return
        with draft_folder(self._cache) as folder:
            header = folder / PRECOMPILED.name  # compilers take NAME.gch beside it in its place
            shutil.copyfile(PRECOMPILED, header)
            made = header.with_name(f"{header.name}.gch")
            self._run(PRECOMPILED.name, made, *self._flags, "-x", "c++-header", str(header))
            yield ("-include", str(header))

    def _compile(self, source: Path, made: Path, included: tuple[str, ...]) -> None:
        self._step(source.name, made, *self._flags, *included, "-I", str(CORE), "-c", str(source))

    def _link(self) -> None:
        self.result.parent.mkdir(exist_ok=True)
        words = ("-shared", f"-Wl,-soname,{SONAME}", *_LINK_FLAGS, f"-Wl,--version-script={EXPORTS}")
        kept = self._compiler.environment.get("ZIG_GLOBAL_CACHE_DIR")
        with checked_link(Path(kept)) if kept else contextlib.nullcontext():
            self._step(
                "the link", self.result, *self._compiler.link_flags(), *words, *(str(made) for made in self._objects)
            )

    def _step(self, what: str, made: Path, *arguments: str) -> None:
        with draft_folder(self._cache) as folder:
            partial = folder / made.name
            self._run(what, partial, *arguments)
            adopt(partial, made)

    def _run(self, what: str, made: Path, *arguments: str) -> None:
        """Raises CoreBuildError: the compiler failed, or made nothing."""
        run = self._compiler.run(*arguments, "-o", str(made))
        if run.returncode or not made.is_file():
            lines = run.stderr.splitlines()
            errors = [line for line in lines if "error" in line or "undefined" in line] or lines
            shown = "\n  ".join(errors[:_SHOWN_ERRORS])
            command = shlex.join([*self._compiler.command, *arguments])
            raise CoreBuildError(f"the emulator's core doesn't build ({what}):\n  {shown}\nCommand: {command}")


def _longest_first(pair: tuple[Path, Path]) -> tuple[bool, int]:
    """So that no processor waits at the end for one long file: the handlers take longest, then what is large."""
    source = pair[0]
    return source.parent.name != "ops", -source.stat().st_size


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock file; it goes away with the process that holds it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

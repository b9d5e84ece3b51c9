"""The cold path: the cost of a library, one suite and the gate on a runner without any cache.

One run with an empty cache folder builds libc++ and the emulator's core together with the kernels. Then libc++ and the
core are each built in an empty folder, to measure their shares in processor seconds. Installing the environment is left
out.
"""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base import jobs
from ckpm.base.errors import InconclusiveError
from ckpm.base.paths import PROJECT
from ckpm.base.processes import own_environment, python_command
from ckpm.bench.figures import Figure
from ckpm.kernels.code.toolchains import detect

ARCH = "gfx950"
_LIMIT_SECONDS = 120
_FETCH = "import sys; from pathlib import Path; from ckpm.kernels.upstream.trees import locate; " \
         "locate(sys.argv[1], cache=Path(sys.argv[2]))"  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of wall time, and of all processors."""

    wall: float
    processors: float

    def __str__(self) -> str:
        return f"{self.wall:.0f} s, {self.processors:.0f} processor seconds"


def measure(upstream: str, toolchain: str, folder: Path) -> list[Figure]:
    """Measure the whole path and its shares."""
    cache = folder / "cache"
    options = ["--upstream", upstream, "--work", str(folder)]
    emulated = ["--arch", ARCH, *options]
    parts = {
        "CK's package fetched": python(cache, "-c", _FETCH, upstream, str(cache)),
        "library, libc++ and the emulator's core": python(
            cache, "-m", "ckpm", "build", "--emulator", "--toolchain", toolchain, *emulated
        ),
        "suite large-kv": python(cache, "-m", "ckpm", "test", "--suite", "large-kv", "--device", "emulator", *emulated),
        "gate": python(cache, "-m", "ckpm", "gate", *emulated),
    }
    total = sum(part.wall for part in parts.values())
    core = python(folder / "core", "-m", "ckpm_emulator", "core")
    shares = {"libc++": _libcxx(toolchain, folder / "libcxx"), "core": core}
    return [
        Figure(
            f"library, suite large-kv and gate without any cache, on {jobs.processors()} processors",
            f"{total:.0f} s ({'; '.join(f'{name} {part}' for name, part in parts.items())})",
            f"< {_LIMIT_SECONDS} s on 2 processors",
            total < _LIMIT_SECONDS,
            total / _LIMIT_SECONDS,
        ),
        Figure(
            "libc++ and the emulator's core, each built alone, in processor seconds",
            ", ".join(f"{name} {part.processors:.0f}" for name, part in shares.items()),
            "reported",
            None,
        ),
    ]


def python(cache: Path, *arguments: str) -> Spent:
    """Run Python with a cache folder and measure it; a failure is an InconclusiveError."""
    return _spent(python_command(*arguments), {"CKPM_CACHE": str(cache)})


def _libcxx(toolchain: str, cache: Path) -> Spent:
    """Link an empty file, so that zig builds libc++. ROCm's toolchain uses the machine's libc++."""
    compiler = detect(toolchain, cache=cache)
    source = cache / "nothing.cpp"
    source.write_text("")
    command = [*compiler.linker, *compiler.link_flags, str(source), "-o", str(source.with_suffix(".so"))]
    return _spent(command, compiler.environment)


def _spent(command: Sequence[str], environment: Mapping[str, str]) -> Spent:
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command, cwd=PROJECT, env=own_environment(environment), capture_output=True, text=True, check=False
    )
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise InconclusiveError(f"{' '.join(command)} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}", kind="bench")
    return Spent(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

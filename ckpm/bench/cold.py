"""The cold path: the cost of a library, one suite and the gate on a runner without any cache.

One run with an empty cache folder builds libc++ and the emulator's core together with the kernels. Then libc++ and the
core are each built in an empty folder, to measure their shares in processor seconds. Installing the environment is left
out.
"""

from __future__ import annotations

from pathlib import Path

from ckpm.base import jobs
from ckpm.bench.figures import Figure, Spent, judge_most, python, spent
from ckpm.kernels.code.toolchains import detect

ARCH = "gfx950"
_LIMIT_SECONDS = 120
_FETCH = "import sys; from pathlib import Path; from ckpm.kernels.upstream.trees import locate; " \
         "locate(sys.argv[1], cache=Path(sys.argv[2]))"  # fmt: skip


def measure(upstream: str, toolchain: str, folder: Path) -> list[Figure]:
    """Measure the whole path and its shares."""
    cache = str(folder / "cache")
    options = ["--upstream", upstream, "--work", str(folder)]
    emulated = ["--arch", ARCH, *options]
    parts = {
        name: python(*command, cache=cache)
        for name, command in {
            "CK's package fetched": ("-c", _FETCH, upstream, cache),
            "library, libc++ and the emulator's core":
                ("-m", "ckpm", "build", "--emulator", "--toolchain", toolchain, *emulated),
            "suite large-kv": ("-m", "ckpm", "test", "--suite", "large-kv", "--device", "emulator", *emulated),
            "gate": ("-m", "ckpm", "gate", *emulated),
        }.items()
    }  # fmt: skip
    total = sum(part.wall for part in parts.values())
    core = python("-m", "ckpm_emulator", "core", cache=str(folder / "core"))
    shares = {"libc++": _libcxx(toolchain, folder / "libcxx"), "core": core}
    return [
        judge_most(
            f"library, suite large-kv and gate without any cache, on {jobs.processors()} processors",
            f"{total:.0f} s ({'; '.join(f'{name} {part}' for name, part in parts.items())})",
            f"< {_LIMIT_SECONDS} s on 2 processors",
            total / _LIMIT_SECONDS,
        ),
        Figure(
            "libc++ and the emulator's core, each built alone, in processor seconds",
            ", ".join(f"{name} {part.processors:.0f}" for name, part in shares.items()),
        ),
    ]


def _libcxx(toolchain: str, cache: Path) -> Spent:
    """Link an empty file, so that zig builds libc++. ROCm's toolchain uses the machine's libc++."""
    compiler = detect(toolchain, cache=cache)
    source = cache / "nothing.cpp"
    source.write_text("")
    command = [*compiler.linker, *compiler.link_flags, str(source), "-o", str(source.with_suffix(".so"))]
    return spent(command, compiler.environment)

"""A kernel compiled on demand, and the same one asked for again: whole processes, from the command to a loaded library.

The cache folder is a new one in which nothing is compiled; CK's tree, zig's libc++ and the emulator's core are those of
the user's, which the figures of cold.py are about.
"""

from __future__ import annotations

from pathlib import Path

from ckpm.base import settings
from ckpm.bench.cold import ARCH, python
from ckpm.bench.figures import Figure
from ckpm.kernels.upstream.trees import Tree
from ckpm.matrix.dialects import dialect
from ckpm.matrix.selection import Selection, select

_SHARED = ("upstream", "zig", "launchers", "emulator")
_WARM_RUNS = 3
_RATIO = 10


def figures(tree: Tree, toolchain: str, folder: Path) -> list[Figure]:
    """Cold and warm time and their ratio. Raises BenchError: a command failed."""
    cache = folder / "cache"
    cache.mkdir(parents=True)
    for name in _SHARED:
        if (there := settings.cache_folder() / name).is_dir():
            (cache / name).symlink_to(there)
    name = select(dialect(tree.dialect), Selection(archs=(ARCH,), tier="smoke"))[0].name
    command = ("-m", "ckpm.attention", "jit", name, "--arch", ARCH, "--upstream", tree.name)
    options = ("--toolchain", toolchain, "--device", "emulator")
    cold = python(cache, *command, *options)
    warm = min(python(cache, *command, *options).wall for _ in range(_WARM_RUNS))
    ratio = cold.wall / warm
    return [
        Figure("a kernel compiled on demand and loaded, nothing of it in the cache", str(cold), "reported", None),
        Figure(
            "the same one asked for again by another process, against that",
            f"{warm:.2f} s: {ratio:.0f} times faster",
            f">= {_RATIO} times",
            ratio >= _RATIO,
        ),
    ]

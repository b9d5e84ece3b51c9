"""A dispatcher's ``compile``: declared kernels of a call become a library when no built kernel serves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ckpm.attention.jit.compiling import compile_keys
from ckpm.attention.registry import Compile, Instance
from ckpm.base.logs import print_logs
from ckpm.kernels.families.libraries import library_with
from ckpm.kernels.library.request import LIBRARY


def on_demand(
    *, toolchain: str = "", ck_root: Path | None = None, headers: Path | None = None, jobs: int | None = None
) -> Compile:
    """Return a function for ``Dispatcher(..., compile=on_demand())``. Its options are those of compile_keys.

    attention.jit.orders chooses the other kernels of a chosen kernel's library. Progress is printed on stderr.
    """

    def compile_kernels(stages: Sequence[Instance]) -> tuple[Path, ...]:
        first = next(stage for stage in stages if library_with(stage.key.family) == stage.key.family)
        with print_logs("stderr"):
            folders = compile_keys(
                [first.key],
                first.arch,
                first.upstream,
                toolchain=toolchain,
                ck_root=ck_root,
                headers=headers,
                jobs=jobs,
            )
        return tuple(folder / LIBRARY for folder in folders)

    return compile_kernels

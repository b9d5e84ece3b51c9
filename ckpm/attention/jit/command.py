"""``ckpm jit NAME...``: compile kernels by name, load each, and print the seconds of each stage."""

from __future__ import annotations

import argparse
import time
from contextlib import closing
from pathlib import Path

from rich.table import Table

from ckpm.attention.cpp.declared import declarations, kernels_of
from ckpm.attention.jit.compiling import CompiledKernels, compile_each, where
from ckpm.attention.jit.loading import load
from ckpm.attention.launch import device as devices
from ckpm.base.console import console
from ckpm.base.display import show
from ckpm.base.errors import UsageError
from ckpm.base.rocm_choice import add_rocm_options
from ckpm.matrix.dialects import check_built_arch
from ckpm.matrix.keys import Key
from ckpm.matrix.options import DEFAULT_ARCH, DEFAULT_UPSTREAM


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="*", metavar="NAME", help="kernels, as `ckpm list` names them")
    parser.add_argument("--declared", type=Path, default=None, metavar="FILE", help="kernels that a C++ file declares")
    parser.add_argument("--arch", default=DEFAULT_ARCH, help="(default: %(default)s)")
    parser.add_argument(
        "--upstream",
        default=DEFAULT_UPSTREAM,
        help="of the kernels NAME (default: %(default)s); a declared kernel has its own",
    )
    parser.add_argument("--ck-root", type=Path, default=None, help="of upstream checkout; default: CK_ROOT")
    parser.add_argument("--headers", type=Path, default=None, metavar="DIR", help="instead of our own headers (ckpm)")
    parser.add_argument(
        "--jobs", "-j", type=int, default=None, help="parallel compilers (default: by processors, memory)"
    )
    add_rocm_options(parser, "toolchain", "device")
    parser.set_defaults(run=run, log_to="stderr")


def run(args: argparse.Namespace) -> int:
    """Compile the kernels and load each when it is finished.

    At the end print a row for each kernel, then the folders.
    """
    check_built_arch(args.arch)
    started = time.monotonic()
    rows: list[tuple[CompiledKernels, float]] = []
    device = None
    for upstream, keys in _keys_by_upstream(args).items():
        origin = where(upstream, toolchain=args.toolchain, ck_root=args.ck_root, headers=args.headers)
        libraries = compile_each(keys, args.arch, origin, jobs=args.jobs)
        with closing(libraries):
            for library in libraries:
                device = device or devices.choose(args.device, args.arch)
                begun = time.monotonic()
                load(library.folder, device)
                rows.append((library, time.monotonic() - begun))
    _show(rows, time.monotonic() - started)
    return 0


def _keys_by_upstream(args: argparse.Namespace) -> dict[str, list[str | Key]]:
    """The kernels to compile, by upstream: either NAME, or the kernels of ``--declared``."""
    if bool(args.name) == bool(args.declared):
        raise UsageError("name kernels, or with --declared a C++ file that declares them; one of the two")
    if args.declared is None:
        return {args.upstream: args.name}
    keys: dict[str, list[str | Key]] = {}
    for kernel_set in declarations(args.declared):
        keys.setdefault(kernel_set.upstream, []).extend(kernels_of(kernel_set, args.arch))
    return keys


def _show(rows: list[tuple[CompiledKernels, float]], seconds: float) -> None:
    """Print the seconds of each kernel by stage. ``compilers`` is the sum over parallel compilers during ``build``."""
    table = Table(box=None, pad_edge=False)
    table.add_column("kernel", overflow="fold", min_width=40)
    for column in ("render", "wait", "build", "compilers", "load"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for library, load_seconds in rows:
        figures = (library.render, library.wait, library.build, library.compilers, load_seconds)
        state = "compiled" if library.compiled else "was there"
        table.add_row(library.name, *(f"{figure:.2f}" for figure in figures), state)
    console(whole_rows=True).print(table)
    for library, _ in rows:
        show(str(library.folder))
    show(f"{len(rows)} loaded in {seconds:.2f} s")

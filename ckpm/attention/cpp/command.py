"""``ckpm cpp index|kernels|run``: index, declared kernels and execution of C++ programs."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from ckpm.base.display import show
from ckpm.base.outputs import refuse_inputs
from ckpm.base.rocm_choice import add_rocm_options
from ckpm.matrix.options import DEFAULT_ARCH


def add_index_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of a built library: build/<arch>/<upstream>")
    parser.add_argument("--output", type=Path, default=None, metavar="FILE", help="(default: FOLDER/kernels.txt)")
    parser.set_defaults(run=_index)


def _index(args: argparse.Namespace) -> None:
    """Write the index of a library, and print its path."""
    from ckpm.attention.cpp.index import write_index
    from ckpm.kernels.library.manifest import MANIFEST
    from ckpm.kernels.library.request import LIBRARY

    refuse_inputs(args.output, [args.folder / MANIFEST, args.folder / LIBRARY])
    show(str(write_index(args.folder, args.output)))


def add_declared_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="C++ with CKPM_KERNEL_SET in it")
    parser.add_argument("--arch", default=DEFAULT_ARCH, help="(default: %(default)s)")
    parser.set_defaults(run=_list_declared)


def _list_declared(args: argparse.Namespace) -> None:
    """Print a line for each kernel: set, upstream, name."""
    from ckpm.attention.cpp.declared import declarations, kernels_of

    for kernel_set in declarations(args.file):
        for key in kernels_of(kernel_set, args.arch):
            show(f"{kernel_set.name} {kernel_set.upstream} {key.name}")


def add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a C++ program that includes ckpm_dispatcher.hpp")
    parser.add_argument("words", nargs="*", metavar="WORD", help="what its main is given")
    parser.add_argument("--arch", default=DEFAULT_ARCH, help="(default: %(default)s)")
    add_rocm_options(parser, "toolchain", "device")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    """Compile and run the program, and return its exit code."""
    from ckpm.attention.cpp.running import build_program, run_program
    from ckpm.attention.launch import device as devices
    from ckpm.base import settings
    from ckpm.kernels.code.toolchains import detect

    toolchain = detect(args.toolchain, cache=settings.cache_folder())
    with tempfile.TemporaryDirectory(prefix="ckpm-") as folder:
        program = build_program(args.file, Path(folder) / "program.so", toolchain)
        device = devices.choose(args.device, args.arch)
        sys.stdout.flush()
        return run_program(program, device, args.words)

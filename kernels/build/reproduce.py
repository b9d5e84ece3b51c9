"""``python -m kernels reproduce``: build a selection twice, in two folders, with nothing shared; compare every byte.

Neither build takes objects from a cache, and each has a compiler's cache of its own, so that what the toolchain builds
for itself (zig its libc++) is compared, too. No artifact may hold the name of a folder of this machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console

from kernels.base import settings
from kernels.base.jobs import job_count
from kernels.build import command as build_command
from kernels.build.request import PROJECT, Request
from kernels.code.toolchains import Toolchain, detect
from kernels.errors import NotReproducibleError
from matrix.base.files import sha256_of
from matrix.options import add_selection_options

# Files that speak of the machine or of the run and are no artifacts. So do all hidden ones: a build's own memory of
# its locks, signatures, headers and outputs.
_OWN_TO_A_RUN = ("plan.json", "compile_commands.json")


def artifacts(folder: Path) -> dict[str, Path]:
    """Every artifact below an output folder, by relative path."""
    return {
        str(file.relative_to(folder)): file
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in _OWN_TO_A_RUN and not file.name.startswith(".")
    }


def differences(first: dict[str, str], second: dict[str, str]) -> list[str]:
    """One line for each artifact that is missing on one side or differs; both are sha256 by name."""
    lines = []
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second:
            lines.append(f"{name}: only in the {'first' if name in first else 'second'} build")
        elif first[name] != second[name]:
            lines.append(f"{name}: {first[name][:16]} in the first build, {second[name][:16]} in the second")
    return lines


def leaks(files: dict[str, Path], folders: Iterable[Path]) -> list[str]:
    """One line for each artifact that holds the name of a folder of this machine."""
    names = sorted({str(folder) for folder in folders} - {"/"})
    patterns = {name: re.compile(re.escape(name.encode()) + rb"(?![\w.-])") for name in names}
    complaints = []
    for artifact, file in files.items():
        data = file.read_bytes()
        complaints += [f"{artifact}: holds {name}" for name, pattern in patterns.items() if pattern.search(data)]
    return complaints


def build_twice(
    request: Request, toolchain: Callable[[Path], Toolchain], jobs: int, console: Console
) -> tuple[int, list[str]]:
    """Two builds in folders of different name and depth: (number of artifacts, differences and leaks).

    ``toolchain`` makes one that keeps what it needs between builds in a given folder.
    """
    with tempfile.TemporaryDirectory(prefix="ckpm-") as base:
        works = [Path(base) / name for name in ("first", "second/with a longer path")]
        sums, leaked, folders = [], [], (Path(base), Path.home(), settings.cache_folder(), request.tree.root, PROJECT)
        for number, work in enumerate(works):
            work.mkdir(parents=True)
            own = toolchain(Path(base) / f"cache{number}")
            once = dataclasses.replace(request, work=work, object_cache=None, toolchain=own)
            build_command.run(once, jobs=jobs, console=console)
            files = artifacts(work / request.folder)
            sums.append({name: sha256_of(file) for name, file in files.items()})
            leaked += leaks(files, folders)
    return len(sums[0]), [*differences(*sums), *dict.fromkeys(leaked)]


def add_options(parser: argparse.ArgumentParser) -> None:
    add_selection_options(parser, tier="smoke")
    build_command.add_compile_options(parser)


def run(args: argparse.Namespace) -> int:
    """The command. Raises NotReproducibleError if a byte differs or a folder's name leaks."""
    console = Console()
    request = build_command.request_from(args, console, work=Path(), cached=False)
    count, lines = build_twice(
        request, lambda cache: detect(args.toolchain, cache=cache), job_count(args.jobs), console
    )
    if lines:
        raise NotReproducibleError(
            f"two builds of {count} artifacts in two folders differ, or hold folders of this machine:\n  "
            + "\n  ".join(lines)
        )
    console.print(f"reproducible: {count} artifacts are equal byte for byte and hold no folder's name", highlight=False)
    return 0

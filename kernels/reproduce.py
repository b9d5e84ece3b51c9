"""``python -m kernels reproduce``: build a selection twice, in two folders, without cache; compare every byte."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import tempfile
from pathlib import Path

from rich.console import Console

from kernels import build_command
from kernels.build import Request
from kernels.errors import NotReproducibleError
from kernels.jobs import job_count

# Files that speak of the machine or of the run and are no artifacts.
_OWN_TO_A_RUN = ("compile_commands.json", ".lock", ".sconsign.dblite")


def artifacts(folder: Path) -> dict[str, str]:
    """sha256 of every artifact below an output folder, by relative path."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in _OWN_TO_A_RUN
    }


def differences(first: dict[str, str], second: dict[str, str]) -> list[str]:
    """One line for each artifact that is missing on one side or differs."""
    lines = []
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second:
            lines.append(f"{name}: only in the {'first' if name in first else 'second'} build")
        elif first[name] != second[name]:
            lines.append(f"{name}: {first[name][:16]} in the first build, {second[name][:16]} in the second")
    return lines


def build_twice(request: Request, jobs: int, console: Console) -> tuple[int, list[str]]:
    """(number of artifacts, differences) of two builds in folders of different name and depth."""
    found = []
    with tempfile.TemporaryDirectory(prefix="ckpm-") as base:
        for name in ("first", "second/with a longer path"):
            work = Path(base) / name
            work.mkdir(parents=True)
            once = dataclasses.replace(request, work=work, object_cache=None)
            build_command.run(once, jobs=jobs, console=console)
            found.append(artifacts(work / request.folder))
    return len(found[0]), differences(*found)


def run(args: argparse.Namespace) -> int:
    """The command. Raises NotReproducibleError if a byte differs."""
    console = Console()
    request = build_command.request_from(args, console)
    count, lines = build_twice(request, job_count(args.jobs), console)
    if lines:
        raise NotReproducibleError(
            f"{len(lines)} of {count} artifacts differ between two builds in two folders:\n  " + "\n  ".join(lines)
        )
    console.print(f"reproducible: {count} artifacts are equal byte for byte", highlight=False)
    return 0

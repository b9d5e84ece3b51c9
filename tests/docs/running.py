"""A page's commands, run as a reader would: in order, in one shell, in a copy of this clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import ROOT, Block, Command, apply_diff

_ENDED = "@@ended@@"  # a line that the shell prints after each command, with the exit code
_TAIL = 40  # lines of output that a complaint shows


@dataclass(frozen=True, slots=True)
class Place:
    """A clone and its environment, which has the packages of the environment that runs this test."""

    clone: Path
    bin: Path

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join((str(self.bin), str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        kept = {name: text for name, text in os.environ.items() if name not in ("CK_ROOT", "VIRTUAL_ENV")}
        return {**kept, "PATH": path, "COLUMNS": "200"}


def prepare(folder: Path) -> Place:
    """Make a clone with a commit of all present files, changed and new, on a branch ``main``."""
    clone = folder / "clone"
    _git(ROOT, "clone", "--quiet", "--shared", str(ROOT), str(clone))
    listed = _git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")
    for name in filter(None, listed):
        (clone / name).unlink(missing_ok=True)
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():  # ckpm/ has links to folders
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name, follow_symlinks=False)
    _git(clone, "checkout", "--quiet", "-B", "main")
    _git(clone, "add", "--all")
    who = ("-c", "user.name=reader", "-c", "user.email=reader@example.invalid")
    _git(clone, *who, "commit", "--quiet", "--allow-empty", "--message", "as it is here")
    if (ROOT / ".nox").is_dir():  # nox checks its environment and does not make it again
        (clone / ".nox").symlink_to(ROOT / ".nox")
    return Place(clone, _environment(folder / "environment"))


def _environment(folder: Path) -> Path:
    """Make an environment for ``pip install`` that borrows all other packages; return its folder of programs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next((folder / "lib").glob("python*/site-packages"))
    (packages / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    programs = folder / "bin"
    pip = programs / "pip"  # the pip of this Python, applied to that environment: installing another pip takes seconds
    pip.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip --python "{programs}/python" "$@"\n')
    pip.chmod(0o755)
    ckpm = programs / "ckpm"  # in the clone, as after `pip install`
    ckpm.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ckpm "$@"\n')
    ckpm.chmod(0o755)
    return programs


def run_page(page: Sequence[Block], copy: Place) -> list[str]:
    """Run a page's commands and apply its changes; return at most one complaint."""
    with _shell(copy) as shell:
        for block in page:
            if block.kind == "diff" and (complaint := apply_diff(block, copy.clone)):
                return [complaint]
            if block.kind == "console" and block.is_run:
                for command in block.commands():
                    if complaint := _complaint(command, *_run(shell, command.text)):
                        return [f"{block.page}:{command.line}: $ {command.text}\n{complaint}"]
    return []


def _shell(copy: Place) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["bash", "--noprofile", "--norc", "-o", "pipefail"],
        cwd=copy.clone,
        env=copy.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _run(shell: subprocess.Popen[str], text: str) -> tuple[list[str], int]:
    """Run a command in the shell; return its lines and exit code."""
    assert shell.stdin
    assert shell.stdout
    # braces: a command must not read the next commands from the shell's standard input
    shell.stdin.write(f"{{\n{text}\n}} < /dev/null\nprintf '\\n{_ENDED} %s\\n' $?\n")
    shell.stdin.flush()
    lines: list[str] = []
    for line in shell.stdout:
        if line.startswith(_ENDED):
            return lines, int(line.split()[1])
        lines.append(line.rstrip("\n"))
    return lines, -1  # the shell itself ended


def _complaint(command: Command, lines: Sequence[str], code: int) -> str:
    if code != command.exit_code:
        return "\n".join([f"ended with {code}, expected {command.exit_code}", *lines[-_TAIL:]])
    if missing := not_printed(command.output, lines):
        return "\n".join([f"did not print, in this order: {missing}", *lines[-_TAIL:]])
    return ""


def not_printed(shown: Sequence[str], lines: Sequence[str]) -> str:
    """Return the first shown line that is missing in the output, in order, or "". Spaces count as one."""
    left = iter([" ".join(line.split()) for line in lines])
    for line in shown:
        wanted = " ".join(line.split())
        if wanted and wanted != "..." and not any(wanted in printed for printed in left):
            return line
    return ""


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True).stdout

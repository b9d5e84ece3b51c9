"""Ctrl-C during the imports of a program: one line and exit code 130 at every import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = {"ckpm": "ckpm.commands", "ckpm_emulator": "ckpm_emulator.cli"}
# Python runs this first. Once the import of the module FIRST has begun, it counts modules that Python searches, and
# sends the signal at one of them.
HOOK = """
import os, signal, sys

class Counting:
    count = -1

    def find_spec(self, name, path=None, target=None):
        if name == os.environ["FIRST"] or self.count >= 0:
            self.count += 1
            if self.count == int(os.environ["MOMENT"]):
                os.kill(os.getpid(), signal.SIGINT)
            with open(os.environ["COUNTED"], "w") as file:
                file.write(str(self.count))

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if these tests run in the background
sys.meta_path.insert(0, Counting())
"""
NEVER = 10**6
MOMENTS = 5  # for each command


def interrupt(room: str, moment: int, folder: Path) -> tuple[subprocess.CompletedProcess[str], int]:
    """Run ``python -m ROOM --help`` with a SIGINT at an import. Return the process and the count of modules."""
    (folder / "sitecustomize.py").write_text(HOOK)
    path = os.pathsep.join((str(folder), str(ROOT), str(ROOT / "emulator")))
    more = {"PYTHONPATH": path, "FIRST": MODULES[room], "MOMENT": str(moment), "COUNTED": str(folder / "counted")}
    command = [sys.executable, "-m", room, "--help"]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **more}, capture_output=True, text=True, timeout=300)
    return done, int((folder / "counted").read_text())


@pytest.mark.parametrize("room", MODULES)
def test_interrupted_import_ends_with_line_and_exit_code(room: str, tmp_path: Path) -> None:
    undisturbed, count = interrupt(room, NEVER, tmp_path)
    assert undisturbed.returncode == 0
    assert undisturbed.stdout.startswith("usage: ")
    assert count > MOMENTS
    for moment in [*range(0, count, count // (MOMENTS - 1)), count]:
        done, _ = interrupt(room, moment, tmp_path)
        assert done.returncode == 130, (moment, done.stderr)
        assert done.stderr.startswith("error: interrupted; run the same command again")
        assert done.stderr.count("\n") == 1

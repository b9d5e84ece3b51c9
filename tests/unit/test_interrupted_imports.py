"""Ctrl-C while a program imports what it consists of: one line and exit code 130, at whatever import it comes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("matrix", "kernels", "reports", "emulator", "ckpm.suites")
# Python runs it first: from the import of a room's cli on, it counts the modules that are looked for, and sends the
# signal at one of them. What comes before is Python's own start.
HOOK = """
import os, signal, sys

class Counting:
    count = -1

    def find_spec(self, name, path=None, target=None):
        if name == os.environ["ROOM"] + ".cli" or self.count >= 0:
            self.count += 1
            if self.count == int(os.environ["MOMENT"]):
                os.kill(os.getpid(), signal.SIGINT)
            with open(os.environ["COUNTED"], "w") as file:
                file.write(str(self.count))

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if these tests run in the background
sys.meta_path.insert(0, Counting())
"""
NEVER = 10**6
MOMENTS = 5  # of each room


def interrupted(room: str, moment: int, folder: Path) -> tuple[subprocess.CompletedProcess[str], int]:
    """``python -m ROOM --help`` that is sent SIGINT at an import, and how many modules it looked for."""
    (folder / "sitecustomize.py").write_text(HOOK)
    path = os.pathsep.join((str(folder), str(ROOT)))
    more = {"PYTHONPATH": path, "ROOM": room, "MOMENT": str(moment), "COUNTED": str(folder / "counted")}
    command = [sys.executable, "-m", room, "--help"]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **more}, capture_output=True, text=True, timeout=300)
    return done, int((folder / "counted").read_text())


@pytest.mark.parametrize("room", ROOMS)
def test_an_interrupt_at_any_import_is_a_line_and_an_exit_code(room: str, tmp_path: Path) -> None:
    undisturbed, count = interrupted(room, NEVER, tmp_path)
    assert undisturbed.returncode == 0
    assert undisturbed.stdout.startswith("usage: ")
    assert count > MOMENTS
    for moment in [*range(0, count, count // (MOMENTS - 1)), count]:
        done, _ = interrupted(room, moment, tmp_path)
        assert done.returncode == 130, (moment, done.stderr)
        assert done.stderr.startswith("error: interrupted; run the same command again")
        assert done.stderr.count("\n") == 1

"""Copies of this project, and of a CK tree, to plant changes in; built and judged by the commands of a user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernels.build.request import PROJECT
from tests.build.real_kernel import NAME

PLAIN = NAME
MASKED = NAME.replace("_nmask_", "_mask_")
_BOTH = NAME.replace("_nmask_", "_*mask_")
_ROOMS = ("matrix", "kernels", "emulator", "reports")


class ProjectCopy:
    """``project`` may be edited. What its commands write goes to ``work``."""

    environment: Mapping[str, str] = {}

    def __init__(self, folder: Path, rooms: Sequence[str] = _ROOMS) -> None:
        self.project, self.work = folder / "project", folder / "work"
        for room in rooms:
            shutil.copytree(PROJECT / room, self.project / room, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(PROJECT / "SConstruct", self.project)

    def plant(self, file: Path, old: str, new: str) -> None:
        """Replace what stands in the file once."""
        text = file.read_text()
        assert text.count(old) == 1, f"{file} holds {text.count(old)} times: {old}"
        file.write_text(text.replace(old, new))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """``python -m ROOM ...`` of the copy."""
        command = [sys.executable, "-m", *words, "--work", str(self.work)]
        environment = {**os.environ, "PYTHONPATH": "", **self.environment}
        return subprocess.run(command, cwd=self.project, env=environment, capture_output=True, text=True, check=False)


class Copy(ProjectCopy):
    """With the upstream's tree in ``ck``, which may be edited, too."""

    def __init__(self, folder: Path, upstream: Path) -> None:
        super().__init__(folder)
        self.ck, self.baselines = folder / "ck", folder / "baselines"
        self.environment = {"CK_ROOT": str(self.ck)}
        shutil.copytree(upstream, self.ck)

    def build(self, *options: str) -> None:
        """Both kernels for gfx950, each in a unit of its own, so that they compile side by side."""
        words = ("--arch", "gfx950", "--toolchain", "embedded", "--filter", _BOTH, "--unit-size", "1", *options)
        done = self.run("kernels", "build", *words)
        assert done.returncode == 0, done.stdout + done.stderr

    def accept(self) -> None:
        done = self.run("reports", "accept", "--reason", "before any change", "--baselines", str(self.baselines))
        assert done.returncode == 0, done.stderr

    def gate(self) -> subprocess.CompletedProcess[str]:
        """``python -m reports gate`` of what was built: static and emulated."""
        return self.run("reports", "gate", "--baselines", str(self.baselines))

    @property
    def result(self) -> Path:
        return self.work / "build/gfx950/checkout/gate.json"

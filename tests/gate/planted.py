"""A copy of this project and of an upstream's tree for planted changes, built and checked by a user's commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.build.real_kernel import NAME
from tests.unit.shared import copy_rooms

PLAIN = NAME
MASKED = NAME.replace("_nmask_", "_mask_")
_BOTH = NAME.replace("_nmask_", "_*mask_")


class Copy:
    """``project`` and ``ck`` may be edited. The project's commands write into ``work``."""

    def __init__(self, folder: Path, upstream: Path) -> None:
        self.project, self.ck, self.work = folder / "project", folder / "ck", folder / "work"
        self.baselines = folder / "baselines"
        copy_rooms(self.project)
        shutil.copytree(upstream, self.ck)

    def plant(self, file: Path, old: str, new: str) -> None:
        """Replace a text that occurs once in the file."""
        text = file.read_text()
        assert text.count(old) == 1, f"{file} holds {text.count(old)} times: {old}"
        file.write_text(text.replace(old, new))

    def build(self, *options: str) -> None:
        """Build both kernels for gfx950, in units of their own, so that they compile in parallel."""
        arguments = ("--arch", "gfx950", "--toolchain", "embedded", "--filter", _BOTH, "--unit-size", "1", *options)
        done = self._run("build", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr

    def accept(self) -> None:
        done = self._run("accept", "--reason", "before any change", "--baselines", str(self.baselines))
        assert done.returncode == 0, done.stderr

    def gate(self) -> subprocess.CompletedProcess[str]:
        """``ckpm gate`` of what was built: static and emulated."""
        return self._run("gate", "--baselines", str(self.baselines))

    @property
    def result(self) -> Path:
        return self.work / "build/gfx950/checkout/gate.json"

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ckpm", *arguments, "--work", str(self.work)]
        environment = {**os.environ, "CK_ROOT": str(self.ck), "PYTHONPATH": ""}
        return subprocess.run(command, cwd=self.project, env=environment, capture_output=True, text=True, check=False)

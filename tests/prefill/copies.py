"""Libraries of ckpm's kernels from edited headers, built and run by a user's commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ckpm.base.errors import CheckFailedError
from ckpm.base.paths import PROJECT
from ckpm.base.results import CaseResult, Results
from ckpm.matrix.keys import Key
from ckpm.suites.suites import locate
from tests.prefill.defects import Edit
from tests.prefill.instead import ARCH, UPSTREAM

HEADERS = "kernels/include_prefill"


class PrefillCopy:
    """``headers`` is a copy of ours. The commands write into ``work``."""

    def __init__(self, folder: Path) -> None:
        self.headers, self.work = folder / "headers", folder / "work"
        shutil.copytree(PROJECT / HEADERS, self.headers)

    def build(self, keys: Sequence[Key], upstream: str = UPSTREAM) -> Path:
        """Build a library of these kernels, each in a unit of its own. Return its folder."""
        chosen = self.headers.with_name("chosen.py")
        chosen.write_text(
            f"NAMES = {sorted({key.name for key in keys})!r}\n\n\ndef keep(key):\n    return key.name in NAMES\n"
        )
        options = ("--tier", "full", "--filter-file", str(chosen), "--unit-size", "1", "--toolchain", "embedded")
        done = self._run(("build",), upstream, *options, "--headers", str(self.headers))
        assert done.returncode == 0, done.stdout + done.stderr
        return locate(self.work, ARCH, upstream).library.parent

    @contextmanager
    def edit(self, edits: Sequence[Edit]) -> Iterator[None]:
        """Edit the headers, and undo the edits at the end."""
        before: dict[Path, str] = {}
        for edit in edits:
            header = self.headers / edit.header
            text = header.read_text()
            assert text.count(edit.old) == 1, f"{edit.header} holds {text.count(edit.old)} times: {edit.old}"
            before.setdefault(header, text)
            header.write_text(text.replace(edit.old, edit.new))
        try:
            yield
        finally:
            for header, text in before.items():
                header.write_text(text)

    def case(self, whole: str, upstream: str = UPSTREAM) -> CaseResult:
        """Run one case, SUITE/NAME, on the emulator with the last library of the upstream."""
        suite, name = whole.split("/")
        output = self.work / f"{suite}.json"
        options = ("--suite", suite, "--tier", "full", "--case", name, "--device", "emulator", "--output", str(output))
        done = self._run(("test",), upstream, *options)
        assert done.returncode in (0, CheckFailedError.exit_code), done.stdout + done.stderr
        (case,) = Results.read(output).cases
        assert case.name == whole
        assert (done.returncode == 0) == (case.outcome == "passed"), done.stdout
        return case

    def _run(self, command: Sequence[str], upstream: str, *options: str) -> subprocess.CompletedProcess[str]:
        target = ("--arch", ARCH, "--upstream", upstream, "--work", str(self.work))
        line = [sys.executable, "-m", "ckpm", *command, *target, *options]
        environment = {name: value for name, value in os.environ.items() if name != "CK_ROOT"}
        return subprocess.run(line, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)

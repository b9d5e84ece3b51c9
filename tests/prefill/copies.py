"""A copy of this project whose kernels of ``ckpm`` are built and run by the commands of a user."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernels.base.results import Case, Results
from matrix.keys import Key
from tests.gate.planted import ProjectCopy
from tests.gpu.errors import CasesFailedError
from tests.prefill.instead import ARCH, UPSTREAM

_ROOMS = ("matrix", "kernels", "emulator", "tests/gpu")
_WORDS = ("--arch", ARCH, "--upstream", UPSTREAM)


class PrefillCopy(ProjectCopy):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, _ROOMS)
        (self.project / "tests" / "__init__.py").touch()

    def build(self, keys: Sequence[Key]) -> None:
        """A library of these kernels alone, each in a unit of its own."""
        chosen = self.work.with_name("chosen.py")
        chosen.write_text(
            f"NAMES = {sorted({key.name for key in keys})!r}\n\n\ndef keep(key):\n    return key.name in NAMES\n"
        )
        words = ("--tier", "full", "--filter-file", str(chosen), "--unit-size", "1", "--toolchain", "embedded")
        done = self.run("kernels", "build", *_WORDS, *words)
        assert done.returncode == 0, done.stdout + done.stderr

    def case(self, suite: str, name: str) -> Case:
        """The result of one case on the emulator."""
        output = self.work / f"{suite}.json"
        words = ("--suite", suite, "--tier", "full", "--case", name, "--device", "emulator", "--output", str(output))
        done = self.run("tests.gpu", *_WORDS, *words)
        assert done.returncode in (0, CasesFailedError.exit_code), done.stdout + done.stderr
        (case,) = Results.read(output).cases
        assert case.name == f"{suite}/{name}"
        assert (done.returncode == 0) == (case.outcome == "passed"), done.stdout
        return case

"""CK's example programs besides attention: compiled from the packaged tree, run with their own CPU verification."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from tests.programs.conformance.ck_tree import ARCH, build_program

EMULATOR = Path(__file__).parents[3] / "emulator"
TABLE = Path(__file__).parent / "ck_examples.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """The exit code and the text of a run whose results agree."""

    exit_code: int = 0
    prints: str = "valid:y"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One call of a program, which compares a kernel's result with the host's."""

    program: str
    sources: tuple[str, ...]
    flags: tuple[str, ...]
    arguments: str
    passed: Passed

    @property
    def name(self) -> str:
        return f"{self.program} {self.arguments}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The exit code of a program, its output with standard error, and True if the program accepted its result."""

    exit_code: int
    output: str
    valid: bool


@cache
def runs() -> dict[str, Run]:
    """The runs of the table, by name."""
    listed = [
        Run(
            program=row["program"],
            sources=tuple(row["sources"]),
            flags=tuple(row.get("flags", ())),
            arguments=arguments,
            passed=Passed(**row.get("passed", {})),
        )
        for row in yaml.safe_load(TABLE.read_text())["programs"]
        for arguments in row["runs"]
    ]
    return {run.name: run for run in listed}


def executable(run: Run) -> Path:
    """Build the program of a run."""
    return build_program(run.program, "example/ck_tile", run.sources, run.flags)


def verdict(run: Run, checks: str = "") -> Verdict:
    """Run a program on the emulated device."""
    program = [str(executable(run)), *run.arguments.split()]
    command = [sys.executable, "-m", "ckpm_emulator", "run", "--arch", ARCH, f"--checks={checks}", "--", *program]
    done = subprocess.run(
        command,
        cwd=EMULATOR,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    valid = done.returncode == run.passed.exit_code and run.passed.prints in done.stdout
    return Verdict(exit_code=done.returncode, output=done.stdout, valid=valid)

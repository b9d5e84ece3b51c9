"""Correct programs under ``--checks all``: a test is a run of one, and wrong if a check reports it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from conformance.gtests import ROOT
from conformance.stored import PASSED, WRONG, Outcome
from programs.program_builder import sample

TABLE = Path(__file__).with_name("checks.yaml")
INPUT = b"bytes of a program that reads its input\n"
_NO_REFUSAL = "emulator: never freed"  # memory that a program leaves to the system


def outcomes(arch: str, only: str | None = None) -> Iterator[tuple[str, Outcome]]:
    """The outcome of each run on an emulated device."""
    for program, runs in yaml.safe_load(TABLE.read_text()).items():
        for arguments in runs if only in (None, program) else ():
            yield " ".join((program, *arguments)), outcome(sample(program), arguments, arch)


def outcome(program: Path, arguments: Sequence[str], arch: str) -> Outcome:
    """The outcome of a program that ends with 0 without checks."""
    command = [sys.executable, "-m", "ckpm_emulator", "run", "--arch", arch]
    end = ["--", str(program), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for checks in ((), ("--checks", "all")):
        done = subprocess.run([*command, *checks, *end], env=environment, input=INPUT, capture_output=True, check=False)
        lines = done.stderr.decode().splitlines()
        reports = [line for line in lines if line.startswith("emulator: ") and not line.startswith(_NO_REFUSAL)]
        if done.returncode or reports:
            return WRONG, reports[0] if reports else f"ended with {done.returncode}"
    return PASSED, ""

"""Correct programs of this project: a test is a run of one, and wrong if it fails or a check reports it."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from conformance.gtests import ROOT, judge
from conformance.stored import PASSED, WRONG, Outcome
from programs.program_builder import sample

TABLE = Path(__file__).with_name("checks.yaml")
INPUT = b"bytes of a program that reads its input\n"


def outcomes(args: argparse.Namespace) -> Iterator[tuple[str, Outcome]]:
    """The outcome of each run by a suite's options."""
    for program, runs in yaml.safe_load(TABLE.read_text()).items():
        for arguments in runs if args.only in (None, program) else ():
            yield " ".join((program, *arguments)), outcome(sample(program), arguments, args)


def outcome(program: Path, arguments: Sequence[str], args: argparse.Namespace) -> Outcome:
    """The outcome of a program that ends with 0."""
    options = (f"--arch={args.arch}", f"--checks={args.checks}")
    command = [sys.executable, "-m", "ckpm_emulator", "run", *options, "--", str(program), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, input=INPUT, capture_output=True, check=False)
    outcome, report = judge("OK", done.stderr.decode())
    return (outcome, report) if outcome != PASSED or done.returncode == 0 else (WRONG, f"ended with {done.returncode}")

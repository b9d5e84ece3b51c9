"""``python -m tests.fuzz --seed N --inputs N``: hostile files for commands that read those of others.

Each input is a valid file of a command, changed at random. The command must end within 10 s and 500 MB, with
a known exit code and a message of one paragraph. ``--case`` runs one input again and prints the folder of its files.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ckpm.base.display import one_line, show
from tests.fuzz.commands import Command, commands, prepare
from tests.fuzz.running import VALID, Case, Finding, hostile_folder, known_codes, run_case, run_cases

_BATCH = 25  # inputs of a process, which makes them in a few seconds


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if there is no finding, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__, allow_abbrev=False)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="(default: another one each time)")
    parser.add_argument("--inputs", type=int, default=2000, help="inputs of all commands (default: %(default)s)")
    parser.add_argument("--command", default="", metavar="TEXT", help="only command lines that contain it")
    parser.add_argument("--case", type=int, default=None, metavar="N", help="the N-th input of --command alone")
    args = parser.parse_args(argv)
    chosen = [command for command in commands() if args.command in _line(command)]
    if not chosen:
        parser.error(f"no command line contains '{args.command}'")
    with tempfile.TemporaryDirectory(prefix="ckpm-fuzz-valid-") as folder:
        top = Path(folder)
        prepare(top)
        if args.case is not None:
            return _again(Case(chosen[0], args.case), args.seed, top)
        return _all(chosen, args.seed, args.inputs, top)


def _again(case: Case, seed: int, top: Path) -> int:
    folder = Path(tempfile.mkdtemp(prefix="ckpm-fuzz-"))
    show(f"{folder}: {hostile_folder(case, seed, top, folder)}\n{_line(case.command)}")
    what = run_case(case, folder, known_codes())
    show(what or "no finding")
    return bool(what)


def _all(chosen: Sequence[Command], seed: int, inputs: int, top: Path) -> int:
    show(f"seed {seed}, {inputs} inputs for {len(chosen)} command lines", flush=True)
    started = time.monotonic()
    hostile = [Case(command, number) for number in range(1, 1 - (-inputs // len(chosen))) for command in chosen][
        :inputs
    ]
    cases = [*(Case(command, VALID) for command in chosen), *hostile]
    cases.sort(key=lambda case: chosen.index(case.command))
    findings: list[Finding] = []
    for at in range(0, len(cases), _BATCH):
        for finding in run_cases(cases[at : at + _BATCH], seed, top):
            findings.append(finding)
            _show(finding, seed)
    counts, bad = (
        Counter(_line(case.command) for case in hostile),
        Counter(_line(finding.case.command) for finding in findings),
    )
    for line, count in counts.items():
        show(f"{count:6} inputs, {bad[line]:3} findings: {line}")
    show(f"seed {seed}: {len(hostile)} inputs, {len(findings)} findings, {time.monotonic() - started:.0f} s")
    return bool(findings)


def _show(finding: Finding, seed: int) -> None:
    line = _line(finding.case.command)
    show(f"{line}\n  {finding.how}\n  {one_line(finding.what[-1500:])}")
    show(f"  again: python -m tests.fuzz --seed {seed} --command '{line}' --case {finding.case.number}", flush=True)


def _line(command: Command) -> str:
    start = command.name if command.name.startswith("python") else "ckpm"
    return " ".join((start, *command.argv))


if __name__ == "__main__":
    sys.exit(main())

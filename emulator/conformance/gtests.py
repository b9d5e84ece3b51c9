"""Outcomes of the tests of googletest programs on the emulated device.

The programs may be in the root file system of another distribution, whose loader then starts them. After a fault all
calls fail. So the outcomes of a process count up to the emulator's first report, and the tests after it run again. A
failed test runs once more alone, because the process, not the test, reports functions that the emulator lacks.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

import ckpm_emulator
from ckpm_emulator.errors import UsageError
from conformance.stored import PASSED, UNSUPPORTED, WRONG, Outcome, compare

ROOT = Path(ckpm_emulator.__file__).parents[1]
ALL = "all"  # of --checks
LINES = 5  # of a compiler's complaint
SECONDS = 1200  # of one process: four times as long as the slowest
_BEGIN = re.compile(r"^\[ RUN      \] (\S+)$")
_END = re.compile(r"\[(       OK |  FAILED  |  SKIPPED )\] (\S+?),? (?:where .*)?\(\d+ ms\)$")
_LIST_OF_TYPES = re.compile(r"^Id\d+/")
_REPORT = re.compile(r"emulator: (?!never freed)")  # memory left to the system is refused by no check
_LACKS = re.compile(r"emulator: .*(?:the emulator lacks|for want of these functions:) (.*)$", re.MULTILINE)
_FAILURE = re.compile(r"^.*(?:Failure|HIP error|emulator: (?!never freed)).*$", re.MULTILINE)

Start = Callable[[Sequence[str]], str]  # a program's arguments -> its output


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Programs of googletest. ``smoke`` and ``full`` are filters of tests; ``never`` has tests and why none is started.

    The programs are in ``folder`` below a root, or are compiled from files with flags. ``large`` programs don't
    run under checks.
    """

    suite: str
    smoke: str
    full: str
    programs: Sequence[str] | Mapping[str, Mapping[str, Sequence[str]]]
    folder: str = ""
    never: Mapping[str, str] = field(default_factory=dict)
    large: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The output of a process for one test. ``ended`` is None if the process ended within that test."""

    test: str
    ended: str | None
    text: str


def read_programs(file: Path) -> Programs:
    """The programs of a suite's table."""
    return Programs(**yaml.safe_load(file.read_text()))


def add_options(arguments: argparse.ArgumentParser, function: Callable[[argparse.Namespace], int]) -> None:
    """Add the options of a suite that ``function`` runs."""
    arguments.add_argument("--root", type=Path, default=Path("/"), help="where its distribution is installed")
    arguments.add_argument("--arch", required=True, help="of the emulated device")
    arguments.add_argument("--checks", default="", choices=("", ALL), help="all: what a check reports counts as wrong")
    arguments.add_argument(
        "--tier", choices=("smoke", "full"), default="smoke", help="default: %(default)s; only it is stored"
    )
    arguments.add_argument("--only", metavar="PROGRAM", help="one program; nothing is compared")
    arguments.add_argument("--accept", action="store_true", help="store the outcomes of the run")
    arguments.set_defaults(function=function)


def finish(args: argparse.Namespace, file: Path, run: Callable[[], Mapping[str, Outcome]]) -> int:
    """Run a suite. Return 1 if it differs from the outcomes stored in a file."""
    part = bool(args.only) or args.tier != "smoke"
    if args.accept and part:
        raise UsageError("--accept stores the whole smoke tier: leave --only and --tier away.")
    seen = run()
    if part:
        return int(any(outcome not in (PASSED, UNSUPPORTED) for outcome, _ in seen.values()))
    return compare(file, args.arch, seen, accept=args.accept, checked=args.checks == ALL)


def print_each(outcomes: Iterable[tuple[str, Outcome]]) -> Mapping[str, Outcome]:
    """Print each outcome as it comes. Return the outcomes by name."""
    seen = {}
    for name, outcome in outcomes:
        seen[name] = outcome
        print(f"{name}: {': '.join(filter(None, outcome))}", flush=True)
    return seen


def run(args: argparse.Namespace, chosen: Programs, start: Callable[[str], Start]) -> Mapping[str, Outcome]:
    """Run the programs of a suite, or one. ``start`` makes a program's starter of its name."""
    seen = dict[str, Outcome]()
    names = [name for name in chosen.programs if not (args.checks and name in chosen.large)]
    for name in [args.only] if args.only else names:
        seen |= _outcomes(name, start(name), chosen, args.tier)
    return seen


def _outcomes(name: str, start: Start, chosen: Programs, tier: str) -> Mapping[str, Outcome]:
    """Run the tests of a program. Print those that did not pass, and their number. Names are program:test."""
    names = tests(start, chosen.smoke if tier == "smoke" else chosen.full)
    if tier == "smoke":
        names = first_of_each(names)
    seen = dict(outcomes(start, [test for test in names if test not in chosen.never]))
    seen |= {test: (UNSUPPORTED, chosen.never[test]) for test in names if test in chosen.never}
    for test, (outcome, detail) in seen.items():
        if outcome != PASSED:
            print(f"{name}:{test}: {outcome}: {detail}", flush=True)
    print(f"{name}: {sum(outcome == PASSED for outcome, _ in seen.values())} of {len(seen)} passed", flush=True)
    return {f"{name}:{test}": outcome for test, outcome in seen.items()}


def starter(program: Path, args: argparse.Namespace, root: Path, folder: Path = ROOT) -> Start:
    """Return a function that runs a program below ``root`` in ``folder``, with the device of a suite's options."""
    options = [f"--arch={args.arch}", f"--checks={args.checks}", *([f"--root={root}"] if root != Path("/") else [])]

    def start(arguments: Sequence[str]) -> str:
        command = [sys.executable, "-P", "-m", "ckpm_emulator", "run", *options, "--", str(program), *arguments]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired as late:
            return (late.output or b"").decode(errors="replace")
        return done.stdout

    return start


def compile_program(command: Sequence[Any], subject: str, remedy: str) -> None:
    """Run a compiler. Raises UsageError: it is not there, or refuses ``subject``."""
    try:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    except OSError as error:
        raise UsageError(f"{command[0]} can't be started ({error.strerror}): {remedy}.") from error
    if done.returncode:
        complaint = "\n  ".join(done.stderr.splitlines()[:LINES])
        raise UsageError(f"{subject} is refused:\n  {complaint}\nCommand: {' '.join(map(str, command))}")


def tests(start: Start, chosen: str) -> tuple[str, ...]:
    """The names of a program's tests that match a filter."""
    text = start(["--gtest_list_tests", f"--gtest_filter={chosen}"])
    names, suite = [], ""
    for line in text.splitlines():
        word = line.partition("#")[0].rstrip()
        if word.startswith("  "):
            names.append(suite + word.strip())
        elif word.endswith("."):
            suite = word
    assert names, f"no tests are listed:\n{text[-2000:]}"
    return tuple(names)


def first_of_each(names: Sequence[str]) -> tuple[str, ...]:
    """Keep the first of equal tests for several lists of types, as Id54/Suite/0.test and Id55/Suite/0.test."""
    kept = dict[str, str]()
    for name in names:
        kept.setdefault(_LIST_OF_TYPES.sub("", name), name)
    return tuple(kept.values())


def outcomes(start: Start, names: Sequence[str]) -> Mapping[str, Outcome]:
    """Run tests and return the outcome of each."""
    seen: dict[str, Outcome] = {}
    while left := [name for name in names if name not in seen]:
        text = start([f"--gtest_filter={':'.join(left)}"])
        counted = list(_until_report(sections(text)))
        assert counted, f"{left[0]} was not run:\n{text[-2000:]}"
        for section in counted:
            seen[section.test] = judge(section.ended, section.text)
        for name in [section.test for section in counted if seen[section.test][0] == WRONG and len(left) > 1]:
            alone = start([f"--gtest_filter={name}"])
            seen[name] = judge(next((section.ended for section in sections(alone)), None), alone)
    return seen


def sections(text: str) -> Iterator[Section]:
    """The tests of a process's output, in their order."""
    test, lines, ended = "", list[str](), None
    for line in text.splitlines():
        if begun := _BEGIN.match(line):
            test, lines, ended = begun[1], [], None
        lines.append(line)
        if test and (end := _END.search(line)) and end[2] == test:
            ended = end[1].strip()
            yield Section(test=test, ended=ended, text="\n".join(lines))
            test = ""
    if test:
        yield Section(test=test, ended=None, text="\n".join(lines))


def _until_report(sections: Iterator[Section]) -> Iterator[Section]:
    for section in sections:
        yield section
        if _REPORT.search(section.text):
            return


def judge(ended: str | None, text: str) -> Outcome:
    """The outcome of a test with the output ``text``. A test that prints OK after a fault has not passed."""
    if not _REPORT.search(text) and ended in ("OK", "SKIPPED"):
        return (PASSED, "") if ended == "OK" else (UNSUPPORTED, "skipped by the test itself")
    if lacking := _LACKS.search(text):
        return UNSUPPORTED, re.sub(r" \(\d+ calls?\)", "", lacking[1]).strip()
    failure = _FAILURE.search(text)
    return WRONG, failure[0].strip() if failure else f"ended with {ended or 'no result'}"

"""A command with hostile files in a process of its own, and what it must not do: hang, eat memory, break down."""

from __future__ import annotations

import importlib
import inspect
import io
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.commands import Command
from tests.fuzz.hostile import make_hostile

SECONDS = 10  # of a processor: how long that takes depends on what else the machine does
WAITING = 100  # by the clock, after which a command waits for something that never comes
MEMORY = 500 << 20  # bytes that a command may have more than the imported program has
VALID = 0  # the number of a command's valid files themselves
_LINES = 40  # of a message
_LARGEST = 1 << 30  # bytes of a file that somebody would list again
_LONGEST = 6000  # characters of it
_ERRORS = (
    *("ckpm.base.errors", "ckpm.base.errors", "ckpm.docker.errors", "ckpm.cluster.errors"),
    *("ckpm.reports.errors", "ckpm_emulator.errors", "ckpm.suites.errors", "ckpm.workflows.errors"),
    *("ckpm.attention.cpp.errors", "ckpm.attention.jit.errors"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One hostile input: ``number`` and the run's seed say what it is. VALID is none: its files are as they were."""

    command: Command
    number: int


@dataclass(frozen=True, slots=True)
class Finding:
    """What a command did that it must not, on which input."""

    case: Case
    how: str
    what: str


def known_codes() -> frozenset[int]:
    """Exit codes of all classes of errors, of success, and of a command whose result is no pass."""
    classes = [one for name in _ERRORS for _, one in inspect.getmembers(importlib.import_module(name), inspect.isclass)]
    return frozenset({0, *(one.exit_code for one in classes if hasattr(one, "exit_code"))})


def hostile_folder(case: Case, seed: int, top: Path, folder: Path) -> str:
    """A copy of the command's valid files with one of them made hostile; how, in words."""
    numbers = random.Random(f"{seed} {case.command.name} {' '.join(case.command.argv)} {case.number}")
    shutil.copytree(top / case.command.folder, folder, dirs_exist_ok=True)
    if case.number == VALID:
        return "valid files"
    name = numbers.choice(sorted(case.command.inputs))
    how = f"{name}: {make_hostile(folder / name, case.command.inputs[name], numbers)}"
    changed = (folder / name).is_file() and (folder / name).stat().st_size < _LARGEST
    if case.command.amend and numbers.random() < 0.5 and changed:
        case.command.amend(folder)
        how += ", hidden"
    return how


def complaints(code: int, text: str, printed: str, codes: frozenset[int]) -> str:
    """What is wrong with how a command ended: its exit code, what it wrote to standard error, and all it printed."""
    steering = sorted({ascii(one) for one in text + printed if not (one.isprintable() or one in "\n\t")})
    for wrong, words in (
        ("Traceback (most recent call last)" in text, text),
        (code not in codes, f"exit code {code}, which no error has: {text[-500:]}"),
        (bool(steering), f"prints {', '.join(steering)}"),
        (code != 0 and "error: " not in text and not printed, f"exit code {code} without a word"),
        ("\n\n" in text.strip() or text.count("\n") > _LINES, f"more than a paragraph: {text[:500]}"),
        (len(text) > _LONGEST, f"a message of {len(text)} characters: {text[:300]}"),
    ):
        if wrong:
            return words
    return ""


def run_cases(cases: Sequence[Case], seed: int, top: Path) -> Iterator[Finding]:
    """Run them one after the other in forked processes; a process that ends early is replaced for the rest."""
    codes = known_codes()
    rest = list(cases)
    while rest:
        done, findings, end = _batch(rest, seed, top, codes)
        yield from findings
        if done < len(rest):
            yield Finding(rest[done], _how(rest[done], seed, top), end)
        rest = rest[done + 1 :]


def _how(case: Case, seed: int, top: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="ckpm-fuzz-") as folder:
        return hostile_folder(case, seed, top, Path(folder))


def _batch(cases: Sequence[Case], seed: int, top: Path, codes: frozenset[int]) -> tuple[int, list[Finding], str]:
    """(cases that ended, findings, how the process ended if not all did)."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        _child(cases, seed, top, codes, theirs)
    os.close(theirs)
    with os.fdopen(ours, encoding="utf-8", errors="replace") as stream:
        said = stream.read().split("\0")[:-1]
    _, status = os.waitpid(child, 0)
    findings = []
    for case, text in zip(cases, said, strict=False):
        how, _, what = text.partition("\x01")
        if what:
            findings.append(Finding(case, how, what))
    number = os.waitstatus_to_exitcode(status)
    ends = {-signal.SIGPROF: f"took more than {SECONDS} s", -signal.SIGALRM: "waits without end"}
    return len(said), findings, ends.get(number, f"the process ended with {number}")


def _child(cases: Sequence[Case], seed: int, top: Path, codes: frozenset[int], pipe: int) -> None:
    """Run cases until one ends the process. Never returns: what the parent cleans up is not this process's."""
    try:
        for one in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(one, signal.SIG_DFL)
        soft = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (soft, soft))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for case in cases:
            # there it goes with the valid files if this process is ended
            with tempfile.TemporaryDirectory(prefix="case-", dir=top) as folder:
                how = hostile_folder(case, seed, top, Path(folder))
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
                signal.alarm(WAITING)
                what = run_case(case, Path(folder), codes)
                signal.setitimer(signal.ITIMER_PROF, 0)
                signal.alarm(0)
            os.write(pipe, f"{how}\x01{what.replace(chr(0), '?')}\0".encode("utf-8", "replace"))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def run_case(case: Case, folder: Path, codes: frozenset[int]) -> str:
    """What is wrong with how the command ended in this folder, '' if nothing."""
    here = Path.cwd()
    kept = sys.stdout, sys.stderr
    output, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    os.chdir(folder)
    sys.stdout, sys.stderr = output, errors
    try:
        code = case.command.main(list(case.command.argv))
    except SystemExit as end:  # argparse, for words that no command line here has
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        code = -1
        traceback.print_exc()
    finally:
        sys.stdout, sys.stderr = kept
        os.chdir(here)
    text, printed = (stream.buffer.getvalue().decode("utf-8", "replace") for stream in (errors, output))
    if case.number == VALID and code != case.command.ends:
        return f"exit code {code} instead of {case.command.ends} with valid files: {text[-500:]}"
    return complaints(code, text, printed, codes)

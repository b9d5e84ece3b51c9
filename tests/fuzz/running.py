"""Commands with hostile files, in processes of their own. They must not hang, exhaust memory or crash."""

from __future__ import annotations

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

from ckpm.base import errors
from tests.fuzz.commands import Command
from tests.fuzz.hostile import make_hostile

SECONDS = 10  # of processor time, which does not depend on the load of the machine
WAITING = 100  # by the clock: after that a command waits for an event that never comes
MEMORY = 500 << 20  # bytes that a command may use besides those of the imported program
VALID = 0  # the case number of the valid files
_LINES = 40  # of a message
_LARGEST = 1 << 30  # bytes of a file whose checksum is written again
_LONGEST = 6000  # characters of a message


@dataclass(frozen=True, slots=True)
class Case:
    """One hostile input, made from ``number`` and the run's seed. Number VALID stands for the unchanged files."""

    command: Command
    number: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A wrong behaviour of a command, and its input."""

    case: Case
    how: str
    what: str


def known_codes() -> frozenset[int]:
    """The exit codes of success and of all error classes."""
    classes = [each for _, each in inspect.getmembers(errors, inspect.isclass)]
    return frozenset({0, *(each.exit_code for each in classes if hasattr(each, "exit_code"))})


def hostile_folder(case: Case, seed: int, top: Path, folder: Path) -> str:
    """Copy the valid files of a command and make one of them hostile. Return a description of the change."""
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
    """Check the exit code of a command, its standard error ``text``, and its standard output. '' if all is right."""
    steering = sorted({ascii(letter) for letter in text + printed if not (letter.isprintable() or letter in "\n\t")})
    for wrong, complaint in (
        ("Traceback (most recent call last)" in text, text),
        (code not in codes, f"exit code {code}, which belongs to no error: {text[-500:]}"),
        (bool(steering), f"prints {', '.join(steering)}"),
        (code != 0 and "error: " not in text and not printed, f"exit code {code} without a message"),
        ("\n\n" in text.strip() or text.count("\n") > _LINES, f"more than a paragraph: {text[:500]}"),
        (len(text) > _LONGEST, f"a message of {len(text)} characters: {text[:300]}"),
    ):
        if wrong:
            return complaint
    return ""


def run_cases(cases: Sequence[Case], seed: int, top: Path) -> Iterator[Finding]:
    """Run cases in a forked process. If the process ends early, another one runs the rest."""
    codes = known_codes()
    rest = list(cases)
    while rest:
        done, findings, end = _batch(rest, seed, top, codes)
        yield from findings
        if done < len(rest):
            yield Finding(rest[done], _describe(rest[done], seed, top), end)
        rest = rest[done + 1 :]


def _describe(case: Case, seed: int, top: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="ckpm-fuzz-") as folder:
        return hostile_folder(case, seed, top, Path(folder))


def _batch(cases: Sequence[Case], seed: int, top: Path, codes: frozenset[int]) -> tuple[int, list[Finding], str]:
    """Run cases in one process. Return the number of cases that ended, the findings, and how the process ended."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _child(cases, seed, top, codes, write_end)
    os.close(write_end)
    with os.fdopen(read_end, encoding="utf-8", errors="replace") as stream:
        texts = stream.read().split("\0")[:-1]
    _, status = os.waitpid(child, 0)
    findings = []
    for case, text in zip(cases, texts, strict=False):
        how, _, what = text.partition("\x01")
        if what:
            findings.append(Finding(case, how, what))
    number = os.waitstatus_to_exitcode(status)
    ends = {-signal.SIGPROF: f"took more than {SECONDS} s", -signal.SIGALRM: "waits without end"}
    return len(texts), findings, ends.get(number, f"the process ended with {number}")


def _child(cases: Sequence[Case], seed: int, top: Path, codes: frozenset[int], pipe: int) -> None:
    """Run cases until one ends the process. Never returns: the parent's cleanup must not run here."""
    try:
        for alarm in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(alarm, signal.SIG_DFL)
        soft = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (soft, soft))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for case in cases:
            # in top, which is removed even if this process is killed
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
    """Run a command in a folder. Return a complaint, or ''."""
    here = Path.cwd()
    kept = sys.stdout, sys.stderr
    output, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    os.chdir(folder)
    sys.stdout, sys.stderr = output, errors
    try:
        code = case.command.main(list(case.command.argv))
    except SystemExit as end:  # of argparse
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

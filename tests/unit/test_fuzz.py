"""The fuzz session finds planted defects, and a seed repeats the changes of files."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz import running
from tests.fuzz.commands import EMULATOR, Command, commands
from tests.fuzz.hostile import BYTES, DOCUMENT, TEXT, make_hostile
from tests.fuzz.running import VALID, Case, complaints, known_codes, run_cases


def complain(text: str, code: int = 2) -> int:
    sys.stderr.write(text)
    return code


def hang() -> int:
    while True:
        pass


def wait() -> int:
    time.sleep(100)
    return 0


def devour() -> int:
    return len(bytearray(600 << 20)) & 0


def crash() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


DEFECTS: dict[str, tuple[Callable[[], int], str]] = {
    "traceback": (lambda: int("x"), "ValueError: invalid literal"),
    "memory": (devour, "MemoryError"),
    "hang": (hang, "took more than 1 s"),
    "wait": (wait, "waits without end"),
    "crash": (crash, "the process ended with -9"),
    "code": (lambda: complain("error: x", 77), "exit code 77, which belongs to no error"),
    "silence": (lambda: 2, "exit code 2 without a message"),
    "escape code": (lambda: complain("error: \x1b[31m"), "prints '\\x1b'"),
    "two paragraphs": (lambda: complain("error: a\n\nb\n"), "more than a paragraph"),
    "long message": (lambda: complain("error: " + "a" * 7000), "a message of 7007 characters"),
}
SOUND: dict[str, Callable[[], int]] = {
    "success": lambda: 0,
    "error": lambda: complain("error: f.json:3: no number. Correct it.\n"),
}


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The valid file of a command with a short time limit."""
    (tmp_path / "valid").mkdir()
    (tmp_path / "valid" / "f.json").write_text('{"a": [1, 2, {"b": "c"}]}')
    monkeypatch.setattr(running, "SECONDS", 1)
    return tmp_path


def command(run: Callable[[], int]) -> Command:
    return Command(name="x", main=lambda _: run(), argv=("f.json",), folder="valid", inputs={"f.json": DOCUMENT})


@pytest.mark.parametrize("name", DEFECTS)
def test_run_cases_find_defect_and_run_rest(name: str, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "WAITING", 2 if name == "wait" else running.WAITING)
    run, what = DEFECTS[name]
    cases = [Case(command(run), 1), *(Case(command(sound_run), 2) for sound_run in SOUND.values())]
    (finding,) = run_cases(cases, 1, top)
    assert finding.case == cases[0]
    assert what in finding.what
    assert finding.how.startswith("f.json: ")


def test_run_cases_with_valid_files_check_exit_code(top: Path) -> None:
    sound, refused = command(lambda: 0), command(lambda: complain("error: f.json: no number\n"))
    (finding,) = run_cases([Case(sound, VALID), Case(refused, VALID)], 1, top)
    assert (finding.case.command, finding.how) == (refused, "valid files")
    assert finding.what == "exit code 2 instead of 0 with valid files: error: f.json: no number\n"


def test_known_codes_include_errors() -> None:
    assert {0, 2, 3, 4, 8, 9} <= known_codes() < {*range(130)}
    assert complaints(0, "", "", known_codes()) == ""


@pytest.mark.parametrize("changes", [BYTES, TEXT, DOCUMENT])
def test_make_hostile_with_seed_is_repeatable(tmp_path: Path, changes: tuple[object, ...]) -> None:
    contents: list[list[bytes]] = []
    for name in ("one", "two"):
        contents.append([])
        for number in range(40):
            file = tmp_path / f"{name}{number}"
            file.write_bytes(b'{"a": [1, 2.5, "b"], "c": {"d": null}}\n')
            make_hostile(file, changes, random.Random(number))  # type: ignore[arg-type]
            plain = file.is_file() and not file.is_symlink() and file.stat().st_size < 1 << 20
            contents[-1].append(file.read_bytes() if plain else b"not a plain file")
    assert contents[0] == contents[1]
    assert len(set(contents[0])) > 25


def test_commands_include_every_reader() -> None:
    """docs/reference/security.md: tables, records, JUnit, code objects, results of other machines, bundles."""
    named = {fuzzed_command.name for fuzzed_command in commands()}
    assert named >= {"validate", "report", "workflows collect", "verify-bundle", EMULATOR}

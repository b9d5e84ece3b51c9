"""Standard output that is closed, a broken pipe, or without a character: no traceback, and the usual exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ckpm.base.paths import PYTHONPATH
from ckpm.base.results import CaseResult, Results
from tests.unit.manifests import document, write_library

ROOT = Path(__file__).parents[2]
CLOSED_PIPE = 141  # 128 plus SIGPIPE, as of `cat file | head -1`


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest, and results with a name that is not ASCII."""
    folder = tmp_path_factory.mktemp("files")
    write_library(folder, document({"k": {}}))
    Results((CaseResult(suite="s", classname="c", name="é\u202e", outcome="failed", message="✗"),)).write(
        folder / "r.json"
    )
    return folder


def command_line(name: str, files: Path) -> list[str]:
    return {
        "list": ["ckpm", "list", "--tier", "smoke"],
        "table": ["ckpm", "report", "--manifest", str(files / "manifest.json")],
        "summary": ["ckpm", "report", "--junit", str(files / "r.json"), "--output", str(files / "r.xml")],
        "attempt": ["ckpm.workflows.attempt", "exit 3"],
        "coverage": ["ckpm_emulator", "coverage", "--isa"],
    }[name]


def call(name: str, files: Path, **options: object) -> tuple[int, str, str]:
    """Run a command. Return its exit code, output and error output."""
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment = {**usual, "PYTHONPATH": PYTHONPATH, **options.pop("environment", {})}  # type: ignore[dict-item]
    command = [sys.executable, "-m", *command_line(name, files)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, **streams)  # type: ignore[call-overload]
    return done.returncode, (done.stdout or b"").decode(), done.stderr.decode()


@pytest.mark.parametrize("name", ["list", "table", "summary"])
def test_command_with_closed_pipe_ends_with_sigpipe_code(name: str, files: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        assert call(name, files, stdout=write_end) == (CLOSED_PIPE, "", "")
    finally:
        os.close(write_end)


@pytest.mark.parametrize("name", ["list", "table", "summary", "coverage"])
def test_command_with_closed_output_is_refused(name: str, files: Path) -> None:
    ended, _, complaints = call(name, files, preexec_fn=lambda: os.close(1), stdout=None)
    assert (ended, complaints) == (10, "error: standard output: it is closed. Send it to a file, or to /dev/null.\n")


@pytest.mark.parametrize("module", ["ckpm.base.entry", "ckpm_emulator.entry"])
@pytest.mark.parametrize(
    ("failure", "limit"),
    [
        ("MemoryError", "ulimit -v"),
        ("OSError(12, 'Cannot allocate memory')", "ulimit -v"),
        ('RuntimeError("can\'t start new thread")', "ulimit -u"),
    ],
)
def test_command_at_limit_of_system_names_it(module: str, failure: str, limit: str) -> None:
    program = f"def command():\n raise {failure}\nfrom {module} import exit_code\nraise SystemExit(exit_code(command))"
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 12
    assert done.stderr.startswith("error: ")
    assert limit in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("variable", "name", "code"), [("CKPM_FAILURES", "summary", 8), ("GITHUB_STEP_SUMMARY", "attempt", 3)]
)
def test_pipe_without_reader_is_not_waited_for(variable: str, name: str, code: int, files: Path) -> None:
    os.mkfifo(files / variable)
    assert call(name, files, environment={variable: str(files / variable)})[0] == code


def test_output_escapes_characters_not_in_encoding(files: Path) -> None:
    code, printed, complaints = call("summary", files, environment={"PYTHONIOENCODING": "ascii:strict"})
    assert code == 8
    assert printed.splitlines()[-1] == "failed: \\xe9\\u202e: \\u2717"
    assert complaints.startswith("error: 1 of 1 cases failed")
    code, printed, _ = call("summary", files, environment={"PYTHONIOENCODING": "utf-8:strict"})
    assert printed.splitlines()[-1] == "failed: é\\u202e: ✗"

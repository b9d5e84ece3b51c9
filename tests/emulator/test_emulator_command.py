"""``python -m ckpm_emulator`` ends like the other command lines, although it may not import their wrapper."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.base.entry import exit_code as others
from ckpm_emulator import tables
from ckpm_emulator.base.errors import CodeObjectError, OutputError
from ckpm_emulator.cli import exit_code, main
from ckpm_emulator.code_object import code_objects
from ckpm_emulator.lowering.translate import translate
from tests.emulator.emulator_small import small_library

ROOT = Path(__file__).parents[2]


def raising(error: BaseException) -> Callable[[], int]:
    def command() -> int:
        raise error

    return command


@pytest.mark.parametrize(("error", "code"), [(BrokenPipeError(), 141), (KeyboardInterrupt(), 130)])
def test_it_ends_like_the_others(error: BaseException, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    saved = os.dup(1)  # a closed pipe's output goes nowhere from then on
    try:
        assert exit_code(raising(error)) == others(raising(error)) == code
    finally:
        os.dup2(saved, 1)
        os.close(saved)
    assert "Traceback" not in capfd.readouterr().err


def test_a_file_that_the_system_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(raising(PermissionError(13, "Permission denied", "/some/file"))) == OutputError.exit_code
    assert capsys.readouterr().err == "error: /some/file: Permission denied. Name another place.\n"
    assert main(["inspect", "/nowhere", "--arch", "gfx950"]) == CodeObjectError.exit_code


def test_a_mistake_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        exit_code(raising(ZeroDivisionError()))


@pytest.mark.parametrize(("output", "code"), [("/dev/full", OutputError.exit_code), ("closed", 141)])
def test_an_output_that_takes_nothing(output: str, code: int) -> None:
    command = [sys.executable, "-m", "ckpm_emulator", "inspect", str(small_library()), "--arch", "gfx950"]
    if output == "closed":
        reading, writing = os.pipe()
        os.close(reading)
    else:
        writing = os.open(output, os.O_WRONLY)
    with os.fdopen(writing, "wb") as stream:
        done = subprocess.run(command, stdout=stream, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_the_helper_decodes_with_nothing_of_tinygrad_but_its_tables(tmp_path: Path) -> None:
    """With all of tinygrad, as here, the program is the same."""
    (_, code), *_ = code_objects(small_library())
    text = (
        "import sys\nfrom ckpm_emulator.cli import main\nmain(['decode'])\n"
        "print(*(name for name in sys.modules if name.startswith('tinygrad')), file=sys.stderr)"
    )
    environment = {**os.environ, "CKPM_CACHE": str(tmp_path)}  # where no program is kept
    done = subprocess.run(
        [sys.executable, "-c", text], input=code, capture_output=True, cwd=ROOT, env=environment, check=True
    )
    assert done.stdout == translate(code)
    imported = set(done.stderr.decode().split())
    assert "tinygrad.renderer.amd.dsl" in imported
    assert not imported & {"tinygrad.tensor", "tinygrad.device", "tinygrad.runtime.autogen.amd.rdna4.enum"}


def test_a_process_that_has_tinygrad_keeps_it() -> None:
    before = {name: module for name, module in sys.modules.items() if name.startswith("tinygrad")}
    assert "tinygrad.renderer.amd.dsl" in before
    tables.import_nothing_else()
    assert {name: module for name, module in sys.modules.items() if name.startswith("tinygrad")} == before

"""``python -m ckpm_emulator`` ends like the other command lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ckpm_emulator import image, standalone
from ckpm_emulator.cli import import_tables_only, main
from ckpm_emulator.code_object import code_objects
from ckpm_emulator.errors import CodeObjectError, DeviceError, OutputError
from ckpm_emulator.inspection import coverage
from ckpm_emulator.lowering.translate import translate
from emulator_small import small_library

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("command", [["inspect", "/nowhere", "--arch", "gfx950"], ["coverage", "/nowhere"]])
def test_missing_file_is_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command) == CodeObjectError.exit_code
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize(("output", "code"), [("/dev/full", OutputError.exit_code), ("closed", 141)])
def test_output_that_takes_nothing(output: str, code: int) -> None:
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


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ("--cus=0", "0: give 1 to 1024"), ("--threads=many", "many: give 1 to 1024"),
        ("--launch-count=-1", "-1: give 0 to"), ("--error-exitcode=256", "256: give 1 to 255"),
    ],
)  # fmt: skip
def test_number_out_of_range_is_refused_with_range(
    option: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["run", option, "--", "true"])
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--trace", "--counters"])
def test_run_refuses_file_that_takes_nothing(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program ran, and ended with 0 without its trace."""
    monkeypatch.setattr(standalone, "execute", lambda run: pytest.fail(f"{run.command} is run"))
    assert main(["run", option, "/dev/full", "--", "true"]) == OutputError.exit_code


def test_helper_imports_only_tables_of_tinygrad(tmp_path: Path) -> None:
    """The program is the same as with all of tinygrad, as here."""
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


def test_process_that_has_tinygrad_keeps_it() -> None:
    before = {name: module for name, module in sys.modules.items() if name.startswith("tinygrad")}
    assert "tinygrad.renderer.amd.dsl" in before
    import_tables_only()
    assert {name: module for name, module in sys.modules.items() if name.startswith("tinygrad")} == before


def test_unknown_check_has_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--checks", "haep", "--", sys.executable]) == DeviceError.exit_code
    assert "no such check: haep; did you mean 'heap'? Known: all, poison, " in capsys.readouterr().err


def test_unknown_arch() -> None:
    unknown = bytearray(dict(code_objects(small_library()))["gfx950"].replace(b"amdhsa--gfx950", b"amdhsa--gfx000"))
    unknown[48] = 0xFF  # e_flags: no machine of today
    with pytest.raises(CodeObjectError, match="it is for 'gfx000'"):
        image.read(bytes(unknown))


def test_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    library = small_library()
    covered = coverage.cover(library)
    assert (covered.kernels > 0, covered.missing) == (True, {})
    assert covered.opcodes["SOPP", "s_endpgm"] >= covered.kernels
    assert main(["coverage", str(library)]) == 0
    assert "nothing missing" in capsys.readouterr().out

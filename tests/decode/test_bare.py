"""The guard on Python files as people have them: which kernels it takes, what it asks for, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ckpm.base.errors import CheckFailedError, InputError
from ckpm.commands import main

HEAD = "import triton\nimport triton.language as tl\n"
SOFTMAX = f"""{HEAD}
@triton.jit
def largest(row):
    return tl.max(row, 0)

# softmax of each row
# guard: x=*fp32:16, out=*fp32:16, columns=i32
@triton.autotune([triton.Config({{"BLOCK": 256}}, num_warps=1), triton.Config({{"BLOCK": 4096}}, num_warps=1)], key=[])
@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr, TEMPERATURE: tl.constexpr = 2):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    row = tl.load(x + at, mask=inside, other=float("-inf")) / TEMPERATURE
    e = tl.exp(row - largest(row))
    tl.store(out + at, e / tl.sum(e, 0), mask=inside)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kernels_of_mine.py"


def guard(file: Path, *options: str) -> int:
    return main(["guard", str(file), *options])


def test_registers_of_every_configuration_on_both_archs(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tile of 4,096 floats by one wave is 64 registers of each lane; one of 256 floats is 4."""
    file.write_text(SOFTMAX)
    assert guard(file, "--budget", "vgpr=64") == 0
    output = capsys.readouterr().out
    flat = re.sub(r"\s+", " ", output)
    assert "4 configurations judged by the budget alone" in flat
    pruned = [line for line in output.splitlines() if line.startswith("pruned: ")]
    assert [line.split()[1:3] for line in pruned] == [["softmax", "gfx942"], ["softmax", "gfx950"]]
    assert all("BLOCK=4096" in line and "VGPRs, of which the budget allows 64" in line for line in pruned)
    assert "TEMPERATURE=2" in flat
    assert "largest" not in flat


def test_budget_is_gate(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(SOFTMAX)
    assert guard(file, "--arch", "gfx950", "--budget", "vgpr=64,waves=8") == 0
    assert guard(file, "--arch", "gfx950", "--budget", "vgpr=2") == CheckFailedError.exit_code
    assert "VGPRs, of which the budget allows 2" in capsys.readouterr().err
    assert guard(file, "--budget", "vgprs=2") == 2


def test_accepted_figures_are_ratchet(file: Path) -> None:
    file.write_text(SOFTMAX)
    assert guard(file, "--accept", "new") == 0
    assert guard(file) == 0
    file.write_text(SOFTMAX.replace('"BLOCK": 256', '"BLOCK": 512'))
    assert guard(file) == CheckFailedError.exit_code


def test_what_is_missing_is_said_of_all_kernels_at_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = "\n@triton.jit\ndef zero(y, n: tl.constexpr):\n    tl.store(y + tl.arange(0, n), 0.0)\n"
    file.write_text(SOFTMAX.replace("columns=i32", "colums=i32") + other)
    assert guard(file) == InputError.exit_code
    errors = capsys.readouterr().err
    assert "'# guard: columns=TYPE'" in errors
    assert "it has no argument colums" in errors
    assert "'# guard: y=TYPE, n=CONSTANT'" in errors
    signatures = ("softmax: x=*fp32:16, out=*fp32:16, columns=i32", "zero: y=*fp16, n=64")
    assert guard(file, *(word for signature in signatures for word in ("--signature", signature))) == 0
    assert guard(file, "--signature", "zero: y=*fp16, n=i32") == InputError.exit_code
    assert "n are tl.constexpr" in capsys.readouterr().err


@pytest.mark.parametrize("signature", ["zero", "zero: y", "zero: y=*fp16, n=many", "none: y=*fp16", "9: y=1"])
def test_signature_that_reports_nothing_is_refused(file: Path, signature: str) -> None:
    file.write_text(HEAD + "@triton.jit\ndef zero(y, n: tl.constexpr):\n    tl.store(y + tl.arange(0, n), 0.0)\n")
    assert guard(file, "--signature", signature) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import a_package_that_nobody_has\n", "imports a_package_that_nobody_has, which is not installed here"),
        ("import sys\nsys.exit(3)\n", "ends the process when it is imported (exit code 3)"),
        ("1 / 0\n", "can't be run: ZeroDivisionError: division by zero"),
        ("def f(:\n", "can't be run: SyntaxError"),
        ("x = 1\n", "no Triton kernel in this file"),
        ("import triton\nfrom triton.language.standard import softmax\n", "no Triton kernel in this file"),
    ],
)
def test_file_none_is_one_clear_error(file: Path, capsys: pytest.CaptureFixture[str], text: str, message: str) -> None:
    file.write_text(text)
    assert guard(file) == InputError.exit_code
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    file.unlink()
    assert guard(file) == InputError.exit_code


def test_neighbours_can_be_imported_as_python_would(file: Path) -> None:
    file.with_name("sizes_of_mine.py").write_text("COLUMNS = 64\n")
    file.write_text(
        f"{HEAD}from sizes_of_mine import COLUMNS\n# guard: y=*fp16\n@triton.jit\n"
        "def zero(y, n: tl.constexpr = COLUMNS):\n    tl.store(y + tl.arange(0, n), 0.0)\n"
    )
    assert guard(file) == 0


def test_compiler_s_complaint_is_its_reason(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Report the error of a function that the kernel calls, not the mark below a line of source."""
    file.write_text(
        f"{HEAD}@triton.jit\ndef part(y):\n    for _ in range(4):\n        y = 1.0\n    return y\n"
        "# guard: y=*fp16\n@triton.jit\ndef whole(y):\n    tl.store(y, part(y))\n"
    )
    assert guard(file, "--arch", "gfx950") == CheckFailedError.exit_code
    assert "Loop-carried variable y" in capsys.readouterr().err

"""The guard on Python files as people have them: which kernels it takes, what it asks for, and what it refuses."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from ckpm.base.errors import CheckFailedError, InputError
from tests.unit.shared import Run

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


@pytest.fixture
def guard(file: Path, run: Run) -> Run:
    """``guard("--budget", "vgpr=64")`` judges the file."""
    return functools.partial(run, "guard", file)


def test_registers_of_every_configuration_on_both_archs(file: Path, guard: Run) -> None:
    """A tile of 4,096 floats by one wave is 64 registers of each lane; one of 256 floats is 4."""
    file.write_text(SOFTMAX)
    code, output, _ = guard("--budget", "vgpr=64")
    assert code == 0
    flat = re.sub(r"\s+", " ", output)
    assert "4 configurations judged by the budget alone" in flat
    pruned = [line for line in output.splitlines() if line.startswith("pruned: ")]
    assert [line.split()[1:3] for line in pruned] == [["softmax", "gfx942"], ["softmax", "gfx950"]]
    assert all("BLOCK=4096" in line and "VGPRs, of which the budget allows 64" in line for line in pruned)
    assert "TEMPERATURE=2" in flat
    assert "largest" not in flat


def test_budget_is_gate(file: Path, guard: Run) -> None:
    file.write_text(SOFTMAX)
    assert guard("--arch", "gfx950", "--budget", "vgpr=64,waves=8")[0] == 0
    code, _, err = guard("--arch", "gfx950", "--budget", "vgpr=2")
    assert (code, "VGPRs, of which the budget allows 2" in err) == (CheckFailedError.exit_code, True)
    assert guard("--budget", "vgprs=2")[0] == 2


def test_accepted_figures_are_ratchet(file: Path, guard: Run) -> None:
    file.write_text(SOFTMAX)
    assert (guard("--accept", "new")[0], guard()[0]) == (0, 0)
    file.write_text(SOFTMAX.replace('"BLOCK": 256', '"BLOCK": 512'))
    assert guard()[0] == CheckFailedError.exit_code


def test_what_is_missing_is_said_of_all_kernels_at_once(file: Path, guard: Run) -> None:
    other = "\n@triton.jit\ndef zero(y, n: tl.constexpr):\n    tl.store(y + tl.arange(0, n), 0.0)\n"
    file.write_text(SOFTMAX.replace("columns=i32", "colums=i32") + other)
    code, _, errors = guard()
    assert code == InputError.exit_code
    assert "'# guard: columns=TYPE'" in errors
    assert "it has no argument colums" in errors
    assert "'# guard: y=TYPE, n=CONSTANT'" in errors
    signatures = ("softmax: x=*fp32:16, out=*fp32:16, columns=i32", "zero: y=*fp16, n=64")
    assert guard(*(word for signature in signatures for word in ("--signature", signature)))[0] == 0
    code, _, err = guard("--signature", "zero: y=*fp16, n=i32")
    assert (code, "n are tl.constexpr" in err) == (InputError.exit_code, True)


HEURISTICS = f"""{HEAD}
# guard: x=*bf16:16, n=i32, EVEN=True
@triton.heuristics({{"EVEN": lambda args: args["n"] % 16 == 0}})
@triton.autotune([triton.Config({{"BLOCK": 256}}), triton.Config({{"BLOCK": 512}})], key=["n"])
@triton.jit
def zero(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, 0.0, mask=at < n)
"""


def test_configurations_below_heuristics_are_judged(file: Path, guard: Run) -> None:
    file.write_text(HEURISTICS)
    code, output, _ = guard("--arch", "gfx950")
    assert (code, "2 configurations judged" in output) == (0, True)


def test_constants_that_json_lacks_are_accepted_by_name(file: Path, guard: Run) -> None:
    """A dtype and a tuple are constants, too. Accepted figures are found again, and those of another dtype are not."""
    text = (
        f"{HEAD}# guard: x=*fp32:16\n@triton.jit\n"
        "def twice(x, TYPE: tl.constexpr = tl.float16, SIZES: tl.constexpr = (64, 2)):\n"
        "    at = x + tl.arange(0, SIZES[0])\n    tl.store(at, (tl.load(at).to(TYPE) * SIZES[1]).to(tl.float32))\n"
    )
    file.write_text(text)
    assert [guard(*accept)[0] for accept in (("--accept", "new"), ())] == [0, 0]
    file.write_text(text.replace("float16", "bfloat16"))
    code, _, err = guard()
    assert (code, "gone: twice gfx950" in err, "TYPE=bf16" in err) == (CheckFailedError.exit_code, True, True)


@pytest.mark.parametrize(
    "head", [b"# -*- coding: latin-1 -*-\n# Gr\xfc\xdfe\n", b"\xef\xbb\xbf", b'TEXT = """\n\f\n"""\n']
)
def test_file_is_read_as_python_reads_it(file: Path, guard: Run, head: bytes) -> None:
    """Python files may have an encoding of their own, a byte order mark, and form feeds."""
    file.write_bytes(head + SOFTMAX.encode())
    assert guard("--arch", "gfx950")[0] == 0


@pytest.mark.parametrize("signature", ["zero", "zero: y", "zero: y=*fp16, n=many", "none: y=*fp16", "9: y=1"])
def test_signature_that_reports_nothing_is_refused(file: Path, guard: Run, signature: str) -> None:
    file.write_text(HEAD + "@triton.jit\ndef zero(y, n: tl.constexpr):\n    tl.store(y + tl.arange(0, n), 0.0)\n")
    assert guard("--signature", signature)[0] == 2


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
def test_file_none_is_one_clear_error(file: Path, guard: Run, text: str, message: str) -> None:
    file.write_text(text)
    code, _, error = guard()
    assert (code, message in error, "Traceback" in error) == (InputError.exit_code, True, False)
    file.unlink()
    assert guard()[0] == InputError.exit_code


def test_neighbours_can_be_imported_as_python_would(file: Path, guard: Run) -> None:
    file.with_name("sizes_of_mine.py").write_text("COLUMNS = 64\n")
    file.write_text(
        f"{HEAD}from sizes_of_mine import COLUMNS\n# guard: y=*fp16\n@triton.jit\n"
        "def zero(y, n: tl.constexpr = COLUMNS):\n    tl.store(y + tl.arange(0, n), 0.0)\n"
    )
    assert guard()[0] == 0


def test_compiler_s_complaint_is_its_reason(file: Path, guard: Run) -> None:
    """Report the error of a function that the kernel calls, not the mark below a line of source."""
    file.write_text(
        f"{HEAD}@triton.jit\ndef part(y):\n    for _ in range(4):\n        y = 1.0\n    return y\n"
        "# guard: y=*fp16\n@triton.jit\ndef whole(y):\n    tl.store(y, part(y))\n"
    )
    code, _, err = guard("--arch", "gfx950")
    assert (code, "Loop-carried variable y" in err) == (CheckFailedError.exit_code, True)

"""CK's example program, unmodified, takes every kernel's result on the emulated device for right."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from ckpm_emulator import code_object, image
from ckpm_emulator.lowering.decode import decode
from tests.programs.example_program import configurations, executable, verdict

_NOP = struct.pack("<I", 0xBF800000)  # s_nop 0 (ISA, SOPP)


@pytest.mark.parametrize("name", configurations())
def test_its_own_verification_passes(name: str) -> None:
    result = verdict(configurations()[name])
    assert result.valid, result.output


def without_a_matrix_instruction(program: Path, output: Path) -> Path:
    """A copy of a program in whose attention kernel one matrix instruction does nothing."""
    data = bytearray(program.read_bytes())
    for _, code in code_object.code_objects(program):
        read = image.read(code)
        at = code.index(read.text)
        matrix = [instruction for instruction in decode(read.text) if "MFMA" in instruction.name.upper()]
        if "FmhaFwdKernel" in read.kernels[0].name and matrix:
            instruction = matrix[len(matrix) // 2]
            start = bytes(data).index(code) + at + instruction.pc
            data[start : start + instruction.size] = _NOP * (instruction.size // 4)
            shutil.copy(program, output)
            output.write_bytes(data)
            return output
    raise AssertionError("no attention kernel in the program")


def test_its_verification_sees_wrong_kernel(tmp_path: Path) -> None:
    chosen = configurations()["d64"]
    result = verdict(chosen, program=without_a_matrix_instruction(executable(chosen), tmp_path / "wrong"))
    assert result.exit_code != 0
    assert "valid:n" in result.output


def test_what_no_kernel_serves_is_refused() -> None:
    result = verdict(configurations()["d64"], "-prec=bf16")
    assert result.exit_code != 0
    assert "not supported yet" in result.output


def test_enough_configurations() -> None:
    assert len(configurations()) >= 14
    assert len({configuration.arguments for configuration in configurations().values()}) == len(configurations())

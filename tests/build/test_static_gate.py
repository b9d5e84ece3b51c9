"""The static gate on a real library for two archs: nothing is blamed, and a wait taken out of its code is."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from emulator import code_object, image
from emulator.inspection.inspect import inspect
from emulator.lowering.decode import decode
from emulator.lowering.descriptor import refusal
from kernels.build.manifest import Manifest
from reports.errors import GateError
from reports.gates import static as static_gate
from reports.gates.comparing import compare, read_thresholds
from reports.verdicts import Gate

ARCHS = ("gfx942", "gfx950")
WAIT_FOR_ALL_LOADS = (0xBF8C0F70).to_bytes(4, "little")  # s_waitcnt vmcnt(0), as LLVM's assembler writes it
NOTHING = (0xBF800000).to_bytes(4, "little")  # s_nop 0


@pytest.mark.parametrize("arch", ARCHS)
def test_a_real_kernel_is_measured_and_not_blamed(built: Path, arch: str) -> None:
    manifest = Manifest.read(built / "manifest.json")
    figures = static_gate.figures(built / "libckpm.so", manifest, arch)
    assert set(figures) == set(manifest.kernels)
    for name, found in figures.items():
        assert found["vgpr"] == manifest.kernels[name].archs[arch].vgpr
        assert found["loop_mfma"] > 0
        assert found["loop_barriers"] > 0
        assert found["wait_hazards"] == 0
    again = static_gate.figures(built / "libckpm.so", manifest, arch)
    assert Gate.of(compare("static", figures, again, read_thresholds()), {}).verdict == "unchanged"


@pytest.mark.parametrize("arch", ARCHS)
def test_a_wait_taken_out_of_the_code_is_found(built: Path, tmp_path: Path, arch: str) -> None:
    whole = (built / "libckpm.so").read_bytes()
    assert WAIT_FOR_ALL_LOADS in whole
    damaged = tmp_path / "libckpm.so"
    damaged.write_bytes(whole.replace(WAIT_FOR_ALL_LOADS, NOTHING))
    assert all(kernel.hazards for kernel in inspect(damaged, arch))
    with pytest.raises(GateError, match="has other machine code in the library"):
        static_gate.figures(damaged, Manifest.read(built / "manifest.json"), arch)


def refusals(library: bytes, folder: Path) -> list[str]:
    """Why the kernels of a library can't be launched."""
    file = folder / "libckpm.so"
    file.write_bytes(library)
    reasons = []
    for _, elf in code_object.code_objects(file):
        read = image.read(elf)
        for kernel in read.kernels:
            start = kernel.function.address - read.text_address
            instructions = list(decode(read.text[start : start + kernel.function.size], start))
            found = refusal(kernel, instructions, {kernel.function.name: (0, len(instructions))})
            reasons += [found.reason] if found else []
    return reasons


def test_a_real_kernel_with_half_its_registers_or_an_odd_tuple_is_refused(built: Path, tmp_path: Path) -> None:
    whole = (built / "libckpm.so").read_bytes()
    assert refusals(whole, tmp_path) == []
    halved, odd = whole, whole
    for _, elf in code_object.code_objects(built / "libckpm.so"):
        (kernel,) = image.read(elf).kernels
        words = struct.pack("<3I", kernel.rsrc3, kernel.rsrc1, kernel.rsrc2)
        fewer = struct.pack("<3I", kernel.rsrc3, kernel.rsrc1 & ~0x3F | (kernel.rsrc1 & 0x3F) // 2, kernel.rsrc2)
        assert whole.count(words) == 1
        halved = halved.replace(words, fewer)
        code = kernel.function.code
        mfma = next(one for one in decode(code) if one.name.startswith("v_mfma"))
        damaged = bytearray(code)
        damaged[mfma.pc] ^= 1  # the number of the first register that it writes
        odd = odd.replace(code, bytes(damaged))
    beyond, misplaced = refusals(halved, tmp_path), refusals(odd, tmp_path)
    assert len(beyond) == len(misplaced) == 2
    assert all("vector registers of the kernel's descriptor" in reason for reason in beyond)
    assert all(re.match(r"v_mfma.*a tuple of 4 registers can't begin at", reason) for reason in misplaced)

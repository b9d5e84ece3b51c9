"""The static gate on a real library for two archs: nothing is blamed, and a wait taken out of its code is."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpm.base.errors import InconclusiveError
from ckpm.kernels.library.manifest import Manifest
from ckpm.reports.gates import static as static_gate
from ckpm.reports.gates.comparing import compare, read_thresholds
from ckpm.reports.verdicts import STATIC, Gate
from ckpm_emulator import code_object, image
from ckpm_emulator.inspection import hazards
from ckpm_emulator.inspection.hazard_rules import CLAUSE
from ckpm_emulator.inspection.inspect import inspect
from ckpm_emulator.lowering.decode import Instruction, decode
from ckpm_emulator.lowering.descriptor import refusal

ARCHS = ("gfx942", "gfx950")
WAIT_FOR_ALL_LOADS = (0xBF8C0F70).to_bytes(4, "little")  # s_waitcnt vmcnt(0), as LLVM's assembler writes it
NOTHING = (0xBF800000).to_bytes(4, "little")  # s_nop 0


@pytest.mark.parametrize("arch", ARCHS)
def test_real_kernel_is_measured_and_not_blamed(built: Path, arch: str) -> None:
    manifest = Manifest.read(built / "manifest.json")
    figures = static_gate.by_kernel(built / "libckpm.so", manifest, arch)
    assert set(figures) == set(manifest.kernels)
    for name, kernel_figures in figures.items():
        assert kernel_figures["vgpr"] == manifest.kernels[name].archs[arch].vgpr
        assert kernel_figures["loop_mfma"] > 0
        assert kernel_figures["loop_barriers"] > 0
        assert kernel_figures["wait_hazards"] == 0
    again = static_gate.by_kernel(built / "libckpm.so", manifest, arch)
    assert Gate.of(compare("static", figures, again, read_thresholds(STATIC)), {}).verdict == "unchanged"


@pytest.mark.parametrize("arch", ARCHS)
def test_wait_taken_out_of_code_is_found(built: Path, tmp_path: Path, arch: str) -> None:
    whole = (built / "libckpm.so").read_bytes()
    assert WAIT_FOR_ALL_LOADS in whole
    damaged = tmp_path / "libckpm.so"
    damaged.write_bytes(whole.replace(WAIT_FOR_ALL_LOADS, NOTHING))
    assert all(kernel.hazards for kernel in inspect(damaged, arch))
    with pytest.raises(InconclusiveError, match="has other machine code in the library"):
        static_gate.by_kernel(damaged, Manifest.read(built / "manifest.json"), arch)


def functions(library: Path) -> Iterator[tuple[str, image.KernelInfo, list[Instruction]]]:
    """Arch, kernel and instructions of each kernel."""
    for target, elf in code_object.code_objects(library):
        read = image.read(elf)
        for kernel in read.kernels:
            start = kernel.function.address - read.text_address
            code = read.text[start : start + kernel.function.size]
            yield target.partition(":")[0], kernel, list(decode(code, start))


def too_early(instructions: list[Instruction], arch: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(first, later) by index, of what would follow too early if every s_nop took no time."""
    index = {instruction.pc: at for at, instruction in enumerate(instructions)}
    shorter = [instruction for instruction in instructions if instruction.name != "s_nop"]
    with monkeypatch.context() as patch:
        patch.setattr(hazards, "wait_states", lambda instruction: int(instruction.name != "s_nop"))
        missing = hazards.missing_states(instructions, arch)
    rows = [row for row in hazards.missing_states(shorter, arch) if row.rule is CLAUSE]
    return [(index[row.first_pc], index[row.pc]) for row in (*missing, *rows)]


def is_spill(instructions: list[Instruction], at: int) -> bool:
    """True if an s_nop lies between moves of neighbouring scalars into a vector register.

    LLVM takes the first move for a write of all these scalars, and waits before the next.
    """
    before = [instruction.name for instruction in instructions[max(0, at - 3) : at]]
    return instructions[at + 1].name == "v_writelane_b32" and "v_writelane_b32" in before


def test_real_kernel_has_needed_wait_states_and_no_other_s_nop(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for arch, _, instructions in functions(built / "libckpm.so"):
        assert hazards.missing_states(instructions, arch) == []
        nops = [at for at, instruction in enumerate(instructions) if instruction.name == "s_nop"]
        assert len(nops) > 10
        pairs = too_early(instructions, arch, monkeypatch)
        needless = [at for at in nops if not any(first < at < later for first, later in pairs)]
        assert [hex(instructions[at].pc) for at in needless if not is_spill(instructions, at)] == []


def test_s_nops_without_their_counts_are_found(built: Path, tmp_path: Path) -> None:
    """Every ``s_nop N`` of the library as ``s_nop 0``: the static gate's figure counts them."""
    whole = (built / "libckpm.so").read_bytes()
    damaged = tmp_path / "libckpm.so"
    longer = [(0xBF800000 + count).to_bytes(4, "little") for count in range(1, 8)]
    assert any(whole.count(word) for word in longer)
    for word in longer:
        whole = whole.replace(word, NOTHING)
    damaged.write_bytes(whole)
    for arch in ARCHS:
        (kernel,) = inspect(damaged, arch)
        assert len(kernel.missing_states) > 10
        assert all("missing after pc" in message for message in kernel.missing_states)


def refusals(library: bytes, folder: Path) -> list[str]:
    """Reasons why the kernels of a library can't be launched."""
    file = folder / "libckpm.so"
    file.write_bytes(library)
    reasons = []
    for _, kernel, instructions in functions(file):
        refused = refusal(kernel, instructions, {kernel.function.name: (0, len(instructions))})
        reasons += [refused.reason] if refused else []
    return reasons


def test_real_kernel_with_half_its_registers_is_refused(built: Path, tmp_path: Path) -> None:
    whole = (built / "libckpm.so").read_bytes()
    assert refusals(whole, tmp_path) == []
    halved, odd = whole, whole
    for _, elf in code_object.code_objects(built / "libckpm.so"):
        (kernel,) = image.read(elf).kernels
        registers = struct.pack("<3I", kernel.rsrc3, kernel.rsrc1, kernel.rsrc2)
        fewer = struct.pack("<3I", kernel.rsrc3, kernel.rsrc1 & ~0x3F | (kernel.rsrc1 & 0x3F) // 2, kernel.rsrc2)
        assert whole.count(registers) == 1
        halved = halved.replace(registers, fewer)
        code = kernel.function.code
        mfma = next(instruction for instruction in decode(code) if instruction.name.startswith("v_mfma"))
        damaged = bytearray(code)
        damaged[mfma.pc] ^= 1  # the number of the first register that it writes
        odd = odd.replace(code, bytes(damaged))
    beyond, misplaced = refusals(halved, tmp_path), refusals(odd, tmp_path)
    assert len(beyond) == len(misplaced) == 2
    assert all("vector registers of the kernel's descriptor" in reason for reason in beyond)
    assert all(re.match(r"v_mfma.*a tuple of 4 registers can't begin at", reason) for reason in misplaced)

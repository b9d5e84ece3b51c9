"""Matrix instructions: all that LLVM has for an arch, where hardware looks for their values, and what is refused."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from tinygrad.runtime.autogen.amd.cdna import enum

from ckpm_emulator.inspection import isa
from ckpm_emulator.inspection.hazards import missing_states
from ckpm_emulator.lowering import matrix_table
from ckpm_emulator.lowering.decode import Instruction
from ckpm_emulator.lowering.lower import lower_one, missing_instructions
from ckpm_emulator.lowering.translate import translate
from emulator_assembly import assemble, instructions_of
from emulator_wave import run_wave
from oracle.machine import machine
from oracle.matrix_cases import matrix_cases
from oracle.suite import differences, expected_state

NAMES = {
    arch: [
        name for name in isa.instructions(arch) if name.startswith(("v_mfma_", "v_smfmac_")) and "ld_scale" not in name
    ]
    for arch in ("gfx942", "gfx950")
}
BITS = {"i8": 8, "fp8": 8, "bf8": 8, "f16": 16, "bf16": 16, "f32": 32, "xf32": 32, "f64": 64, "f8f6f4": 8}


def registers(first: int, count: int) -> str:
    return f"v[{first}:{first + count - 1}]" if count > 1 else f"v{first}"


def assembly(name: str) -> str:
    """The instruction with registers of the right number."""
    parts = name.split("_")
    shape = next(word for word in parts if "x" in word and word[0].isdigit())
    n, _, k = map(int, shape.split("x"))
    blocks = next((int(word[:-1]) for word in parts if word.endswith("b") and word[:-1].isdigit()), 1)
    bits = BITS[parts[-1]]
    factor, result = n * k * blocks * bits // 64 // 32, n * n * blocks // 64 * (2 if bits == 64 else 1)
    if "smfmac" in name:
        return f"{name} {registers(64, result)}, {registers(8, factor // 2)}, {registers(16, factor)}, v30\n"
    scales = ", v30, v31" if "scale" in name else ""
    d = registers(64, result)
    return f"{name} {d}, {registers(8, factor)}, {registers(16, factor)}, {d}{scales}\n"


@functools.cache
def assemble_all(arch: str) -> dict[str, list[Instruction]]:
    """Each instruction of the arch twice in a row: what follows one must not change how it reads."""
    return instructions_of({name: assembly(name) * 2 for name in NAMES[arch]}, arch)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_everything_that_llvm_assembles_is_read_and_executed(arch: str) -> None:
    other = "gfx950" if arch == "gfx942" else "gfx942"
    assert len(NAMES[arch]) == {"gfx942": 46, "gfx950": 68}[arch]  # LLVM, VOP3PInstructions.td
    for name, instructions in assemble_all(arch).items():
        own = name not in NAMES[other]
        assert [instruction.name for instruction in instructions] == [name, name, "s_endpgm"]
        operation, reason = lower_one(instructions[0], arch)
        assert (operation.name, reason) == (name, "")
        refused = lower_one(instructions[0], other)[1]
        assert refused.startswith(f"{other} has no {name}, {arch} has" if own else "")
        assert bool(refused) == own


def test_table_has_no_other_instruction() -> None:
    assert {name for names in NAMES.values() for name in names} == matrix_table.NAMES


def test_code_object_is_lowered_for_its_own_arch() -> None:
    instructions = assemble_all("gfx942")["v_mfma_f32_16x16x8_xf32"]
    assert missing_instructions(instructions, "gfx942") == {}
    assert list(missing_instructions(instructions, "gfx950")) == ["gfx950 has no v_mfma_f32_16x16x8_xf32, gfx942 has"]
    older = assemble("v_mfma_f32_32x32x8bf16_1k v[0:15], v[16:17], v[18:19], v[0:15]\ns_endpgm\n", "gfx90a")
    assert b"gfx90a has not the matrix instruction" in translate(older)


def test_fields_that_manual_leaves_undefined_are_refused() -> None:
    codes = {
        "cbsz:1 of": "v_mfma_f32_16x16x16_f16 v[0:3], v[8:9], v[10:11], v[0:3] cbsz:1\n",
        "abid:2 with": "v_mfma_f32_16x16x4_4b_f16 v[0:15], v[18:19], v[20:21], v[0:15] cbsz:1 abid:2\n",
    }
    for reason, instructions in instructions_of(codes, "gfx942").items():
        assert reason in lower_one(instructions[0], "gfx942")[1]


# --- broadcasts: ROCm/amd_matrix_instruction_calculator, README, "CBSZ and ABID" ---

BROADCASTS = [  # CBSZ and ABID of 16 blocks, and the block of A that each reads
    (0, 0, range(16)),
    (1, 1, [1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 11, 11, 13, 13, 15, 15]),
    (2, 1, [1] * 4 + [5] * 4 + [9] * 4 + [13] * 4),
    (4, 13, [13] * 16),
]


def broadcast_blocks(cbsz: int, abid: int, options: dict[str, int] | None = None) -> list[float]:
    """The block of A that each block of D comes from: A has the number of its block, B ones."""
    vectors = {8: (np.arange(64) // 4).astype(np.float32).view(np.uint32), 9: np.float32(1).view(np.uint32)}
    instruction = f"v_mfma_f32_4x4x1_16b_f32 v[0:3], v8, v9, 0 cbsz:{cbsz} abid:{abid}\n"
    after = run_wave(instruction, vectors, options=options)
    return [float(value) for value in after.vector[0, ::4].view(np.float32)]


@pytest.mark.parametrize(("cbsz", "abid", "blocks"), BROADCASTS)
def test_broadcast_reads_one_block_of_each_group(cbsz: int, abid: int, blocks: list[int]) -> None:
    assert broadcast_blocks(cbsz, abid) == list(blocks)


def test_check_refuses_broadcast_to_some_blocks() -> None:
    with pytest.raises(RuntimeError, match="sources disagree on which blocks"):
        broadcast_blocks(1, 1, {"open_rules": 1})
    for cbsz, abid, blocks in (BROADCASTS[0], BROADCASTS[-1]):
        assert broadcast_blocks(cbsz, abid, {"open_rules": 1}) == list(blocks)


# --- where the hardware looks: measured on MI350 ---


def test_scale_comes_from_lane_of_hardware() -> None:
    """Composable Kernel, test/mx_mfma_op/scale_mapping_16x16x128.txt: the lane whose scale a value of A in row 0 gets.

    The values are counted by lanes' registers: 32 of lane 0, 32 of lane 16, 32 of lane 32, 32 of lane 48.
    """
    seen = [0, 32, 0, 32, 16, 48, 16, 48]  # for 16 values each
    ones = {16 + register: np.where(np.arange(64) % 16 == 0, 0x38383838, 0) for register in range(8)}
    for at, lane in enumerate(seen):
        for value in (16 * at, 16 * at + 15):
            a: dict[int, Any] = {8 + register: 0 for register in range(8)}
            a[8 + value % 32 // 4] = np.where(np.arange(64) == 16 * (value // 32), 0x38 << 8 * (value % 4), 0)
            vectors = a | ones | {30: 127 + np.arange(64), 31: 127}
            after = run_wave(f"{SCALED} v[64:67], v[8:15], v[16:23], 0, v30, v31\n", vectors)
            assert after.vector[64, 0].view(np.float32) == 2.0**lane


SCALED = "v_mfma_scale_f32_16x16x128_f8f6f4"


@pytest.mark.parametrize("third", [0, 1])  # a bit without an operand: AITER's FP4 GEMMs set it
def test_scales_come_from_byte_that_op_sel_names(third: int) -> None:
    ones = dict.fromkeys(range(8, 24), 943208504)
    vectors = ones | {30: 0x83828180, 31: 0x7F7F7F7F}
    for byte in range(4):
        select = f"op_sel:[{byte & 1},0,{third}] op_sel_hi:[{byte >> 1},0,0]"
        after = run_wave(f"{SCALED} v[64:67], v[8:15], v[16:23], 0, v30, v31 {select}\n", vectors)
        assert after.vector[64, 0].view(np.float32) == 128 * 2.0 ** (byte + 1)


def test_sparse_values_meet_values_of_b_of_hardware() -> None:
    """16x16x128 of 8 bits, as measured: group q of four k has its indices in a nibble of lane 16 * group + row.

    In B, k = 32 * (e / 8) + 8 * g + e % 8 is byte e of lane group g.
    """
    for q, element in itertools.product(range(32), (0, 3)):
        lanes, nibble = 2 * (q // 16) + q // 4 % 2, 2 * (q // 8 % 2) + 4 * (q % 4 // 2) + q % 2
        k = 4 * q + element
        group, byte = k % 32 // 8, k // 32 * 8 + k % 8
        first, second = (0, 1) if element == 0 else (1, 3)
        a: dict[int, Any] = {8 + register: 0 for register in range(4)}
        at = 2 * nibble + (element == second)
        a[8 + at // 4] = np.where(np.arange(64) == 16 * lanes + 5, 3 << 8 * (at % 4), 0)
        b: dict[int, Any] = {16 + register: 0 for register in range(8)}
        b[16 + byte // 4] = np.where(np.arange(64) == 16 * group + 9, 7 << 8 * (byte % 4), 0)
        index = np.where(np.arange(64) == 16 * lanes + 5, (first | second << 2) << 4 * nibble, 0)
        vectors = a | b | {30: index} | {64 + register: 0 for register in range(4)}
        after = run_wave("v_smfmac_i32_16x16x128_i8 v[64:67], v[8:11], v[16:23], v30\n", vectors)
        assert after.vector[65, 16 + 9] == 21  # row 5 = 4 * 1 + 1, column 9
        assert np.count_nonzero(after.vector[64:68]) == 1


def test_two_exchanged_lanes_are_noticed() -> None:
    for name in ("V_MFMA_F32_4X4X4_16B_F16", "V_SMFMAC_F32_16X16X64_BF16", "V_MFMA_F64_16X16X4_F64"):
        case = next(matrix_cases(enum.VOP3POp[name], "gfx950"))
        got = machine().run(case)
        assert differences(case, expected_state(case), got) == []
        got.vector = got.vector.copy()
        row = next(r for r in range(512) if (got.vector[r] != case.state.vector[r]).any())
        got.vector[row, [3, 4]] = got.vector[row, [4, 3]]
        assert differences(case, expected_state(case), got) != []


# --- wait states ---

PASSES = {
    "sparse": ("v_smfmac_f32_16x16x64_f16 v[0:3], v[8:11], v[16:23], v30\n", 8),  # of 4 passes
    "sparse, 8 passes": ("v_smfmac_f32_32x32x32_f16 v[0:15], v[32:35], v[40:47], v30\n", 12),
    "scaled fp8": ("v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[8:15], v[16:23], v[0:3], v30, v31\n", 12),
    "scaled fp4": ("v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[8:11], v[16:19], v[0:3], v30, v31 cbsz:4 blgp:4\n", 8),
    "four blocks": ("v_mfma_f32_16x16x4_4b_bf16 v[0:15], v[18:19], v[20:21], v[0:15]\n", 12),
}


@pytest.mark.parametrize("name", PASSES)
def test_results_are_waited_for_by_their_passes(name: str) -> None:
    code, states = PASSES[name]
    (missing,) = missing_states(instructions_of({"": code + "v_mov_b32 v40, v0\n"}, "gfx950")[""], "gfx950")
    assert missing.missing == states


@pytest.mark.parametrize("register", ["v30", "v31"])
def test_scales_and_indices_are_read_by_instruction(register: str) -> None:
    code = f"v_mov_b32 {register}, 0\n" + PASSES["scaled fp8"][0]
    (missing,) = missing_states(instructions_of({"": code}, "gfx950")[""], "gfx950")
    assert (missing.rule.name, missing.missing) == ("MFMA reads a register that VALU wrote", 2)

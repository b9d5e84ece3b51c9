"""Modes of vector instructions: skipped by s_setvskip, indexed between s_set_gpr_idx_on and s_set_gpr_idx_off.

LLVM makes the latter of an array in registers with a variable index. The CDNA3 ISA, "VGPR indexing", adds the index in
M0[7:0] to the registers that the second operand of s_set_gpr_idx_on selects. Bit 0 is the first source, bit 3 the
destination.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tinygrad.renderer.amd.dsl import src
from tinygrad.runtime.autogen.amd.cdna import enum, ins

from ckpm_emulator.lowering.decode import decode
from ckpm_emulator.lowering.lower import lower
from ckpm_emulator.lowering.microop import name_hash
from oracle.cases import ALL, Case, fresh_state, generator
from oracle.machine import machine
from oracle.operands import EXEC, M0

SOURCE, DESTINATION = 1, 8
OFF = ins.SOPP(enum.SOPPOp.S_SET_GPR_IDX_OFF)


def on(uses: int, register: int = 20) -> Any:
    return ins.SOPC(enum.SOPCOp.S_SET_GPR_IDX_ON, ssrc0=src[register], ssrc1=src[uses])


def move(to: int, source: int) -> Any:
    return ins.VOP1(enum.VOP1Op.V_MOV_B32, vdst=src[256 + to], src0=src[source])


@pytest.mark.parametrize("mask", [ALL, 0x8001])
@pytest.mark.parametrize(
    ("uses", "source", "moved_from", "moved_to"),
    [
        (SOURCE, 256 + 30, 256 + 37, 10),
        (DESTINATION, 256 + 30, 256 + 30, 17),
        (SOURCE | DESTINATION, 256 + 30, 256 + 37, 17),
        (0, 256 + 30, 256 + 30, 10),
        (SOURCE, 129, 129, 10),  # a constant has no index
    ],
)
def test_index_is_added(uses: int, source: int, moved_from: int, moved_to: int, mask: int) -> None:
    state = fresh_state(generator(f"{uses} {source}"))
    state.set_pair(EXEC, mask)
    state.scalar[20], state.scalar[M0] = 0xFFFFFF07, 0xABCD60FF  # the lowest eight bits count
    got = machine().run(Case("", [on(uses), move(10, source), OFF, move(50, 256 + 30)], state))
    want = state.vector.copy()
    lanes = np.array([bool(mask >> lane & 1) for lane in range(64)])
    want[moved_to] = np.where(lanes, state.vector[moved_from - 256] if moved_from >= 256 else 1, want[moved_to])
    want[50] = np.where(lanes, state.vector[30], want[50])
    np.testing.assert_array_equal(got.vector, want)
    assert got.scalar[M0] == 0xABCD0007 | uses << 12


def test_index_is_added_to_source_of_sum() -> None:
    """AITER's latent attention adds so to addresses."""
    state = fresh_state(generator("sum"))
    state.scalar[20] = 7
    add = ins.VOP2(enum.VOP2Op.V_ADD_U32, vdst=src[266], src0=src[286], vsrc1=src[296])
    got = machine().run(Case("", [on(SOURCE), add, OFF], state))
    np.testing.assert_array_equal(got.vector[10], state.vector[37] + state.vector[40])


def test_index_can_change_in_between() -> None:
    state = fresh_state(generator("idx"))
    state.scalar[20], state.scalar[21] = 3, 5
    change = ins.SOP1(enum.SOP1Op.S_SET_GPR_IDX_IDX, ssrc0=src[21])
    mode = ins.SOPP(enum.SOPPOp.S_SET_GPR_IDX_MODE, simm16=DESTINATION)
    program = [on(SOURCE), move(10, 256 + 30), change, move(11, 256 + 30), mode, move(12, 256 + 30), OFF]
    got = machine().run(Case("", program, state))
    for to, source in ((10, 33), (11, 35), (17, 30)):
        np.testing.assert_array_equal(got.vector[to], state.vector[source])
    np.testing.assert_array_equal(got.vector[12], state.vector[12])


def test_index_after_last_register_stops() -> None:
    state = fresh_state(generator("far"))
    state.scalar[20] = 250
    with pytest.raises(RuntimeError, match="after the last vector register"):
        machine().run(Case("", [on(SOURCE), move(10, 256 + 30), OFF], state))


@pytest.mark.parametrize(
    "other",
    [
        ins.VOP2(enum.VOP2Op.V_ADD_F32, vdst=src[266], src0=src[276], vsrc1=src[286]),
        ins.SOPP(enum.SOPPOp.S_BRANCH, simm16=0),
    ],
    ids=["another instruction", "a branch"],
)
def test_what_index_is_not_followed_through_stops(other: Any) -> None:
    code = b"".join(inst.to_bytes() for inst in (on(SOURCE), other, OFF, move(10, 256 + 30)))
    lowered = lower(list(decode(code)))
    traps = [int(handler) == name_hash("trap") for handler in lowered.ops["handler"]]
    assert traps == [False, True, False, False]
    assert any("with indexed registers" in text for text in lowered.texts)


# s_setvskip: vector instructions that are not issued until it ends (CDNA3 ISA, "S_SETVSKIP": S0[S1[4:0]]).
_BITS, _ZERO = 20, 128  # a scalar register, and the inline constant 0


def setvskip(first: int, bit: int) -> Any:
    return ins.SOPC(enum.SOPCOp.S_SETVSKIP, ssrc0=src[first], ssrc1=src[_ZERO + bit])


@pytest.mark.parametrize(("bit", "skips"), [(0, False), (3, True), (35 - 32, True)])
def test_vector_instruction_is_skipped_by_bit(bit: int, skips: bool) -> None:
    state = fresh_state(generator("vskip"))
    state.scalar[_BITS] = 0b1000
    program = [setvskip(_BITS, bit), move(10, 256 + 30), setvskip(_ZERO, 0), move(11, 256 + 30)]
    got = machine().run(Case("", program, state))
    moved = state.vector[30]
    np.testing.assert_array_equal(got.vector[10], state.vector[10] if skips else moved)
    np.testing.assert_array_equal(got.vector[11], moved)


def test_scalar_instruction_while_skipping_stops() -> None:
    state = fresh_state(generator("vskip"))
    state.scalar[_BITS] = 1
    scalar = ins.SOP1(enum.SOP1Op.S_MOV_B32, sdst=src[4], ssrc0=src[_ZERO])
    with pytest.raises(RuntimeError, match="before the s_setvskip that ends it"):
        machine().run(Case("", [setvskip(_BITS, 0), scalar, setvskip(_ZERO, 0)], state))

"""s_setvskip: vector instructions that are not issued until it ends (CDNA3 ISA, "S_SETVSKIP": S0[S1[4:0]])."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tinygrad.renderer.amd.dsl import src
from tinygrad.runtime.autogen.amd.cdna import enum, ins

from oracle.cases import Case, fresh_state, generator
from oracle.machine import machine

_BITS, _ZERO = 20, 128  # a scalar register, and the inline constant 0


def setvskip(first: int, bit: int) -> Any:
    return ins.SOPC(enum.SOPCOp.S_SETVSKIP, ssrc0=src[first], ssrc1=src[_ZERO + bit])


def move(to: int) -> Any:
    return ins.VOP1(enum.VOP1Op.V_MOV_B32, vdst=src[256 + to], src0=src[256 + 30])


@pytest.mark.parametrize(("bit", "skips"), [(0, False), (3, True), (35 - 32, True)])
def test_vector_instruction_is_skipped_by_bit(bit: int, skips: bool) -> None:
    state = fresh_state(generator("vskip"))
    state.scalar[_BITS] = 0b1000
    got = machine().run(Case("", [setvskip(_BITS, bit), move(10), setvskip(_ZERO, 0), move(11)], state))
    moved = state.vector[30]
    np.testing.assert_array_equal(got.vector[10], state.vector[10] if skips else moved)
    np.testing.assert_array_equal(got.vector[11], moved)


def test_scalar_instruction_while_skipping_stops() -> None:
    state = fresh_state(generator("vskip"))
    state.scalar[_BITS] = 1
    scalar = ins.SOP1(enum.SOP1Op.S_MOV_B32, sdst=src[4], ssrc0=src[_ZERO])
    with pytest.raises(RuntimeError, match="before the s_setvskip that ends it"):
        machine().run(Case("", [setvskip(_BITS, 0), scalar, setvskip(_ZERO, 0)], state))

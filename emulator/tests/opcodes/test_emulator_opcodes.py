"""Every opcode of the emulator has the results of the ISA manual's pseudocode (emulator/tests/oracle).

The cases of an opcode and encoding have operands from VGPRs, SGPRs, inline constants and literals. Their values are
corner cases and random numbers, with full, partial and empty EXEC, in the rounding and denormal modes that matter. The
instruction is encoded with tinygrad's classes, decoded and lowered by the emulator, and run on one wave. Then all
registers, flags, LDS and memory are compared. An opcode in emulator/ckpm_emulator/lowering/opcodes.py for which the
oracle has no case fails here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tinygrad.renderer.amd.dsl import OPERANDS
from tinygrad.runtime.autogen.amd.cdna import enum, ins

from ckpm_emulator.inspection import isa
from ckpm_emulator.lowering import opcodes
from ckpm_emulator.lowering.opcodes import SUPPORTED, micro_op_name
from oracle.cases import Case, dpp_cases, sdwa_cases
from oracle.machine import machine
from oracle.suite import NoOracleError, cases_for, differences, expected_state

ENCODINGS = (
    *("VOP1", "VOP2", "VOP3", "VOP3P", "VOP3PX2", "VOP3SD", "VOPC", "SOP1", "SOP2", "SOPC", "SOPK", "SOPP"),
    *("DS", "GLOBAL", "FLAT", "SCRATCH", "MUBUF", "MTBUF", "SMEM"),
)
BY_INDEX = (name for name in SUPPORTED if name.endswith("_indexed"))
# Micro-ops that no CDNA encoding of tinygrad's table reaches; test_vector_modes.py has the last ones.
NO_MACHINE_OPCODE = {"trap", "v_mad_f32", "v_fmac_f16", *BY_INDEX}


def machine_name(op: Any) -> str:
    return str(op.name).lower().removesuffix("_e32").removesuffix("_e64")


def listed_opcodes() -> list[tuple[str, Any]]:
    """(encoding, opcode) of everything whose micro-op the emulator's table has."""
    return [
        (encoding, op)
        for encoding in ENCODINGS
        for op in dict(getattr(ins, encoding)._fields)["op"]._enum
        if micro_op_name(machine_name(op)) in SUPPORTED and machine_name(op) != "s_setvskip"  # test_vector_modes.py
    ]


def problems(cases: Iterator[Case]) -> list[str]:
    """The difference of the first case that differs, for a readable message."""
    case = None
    for case in cases:
        different = differences(case, expected_state(case), machine().run(case))
        if different:
            first = case.program[0]
            return [f"case {case.label}: {first} MODE {case.state.mode:#x} EXEC {case.state.exec:#x}", *different]
    return [] if case else ["there is no case"]


def identifier(value: Any) -> str:
    return value if isinstance(value, str) else machine_name(value)


# gfx942's 8-bit floats are fnuz. gfx950 alone has the scaled conversions.
FP8 = [(e, op) for e, op in listed_opcodes() if ("FP8" in op.name or "BF8" in op.name) and "SCALEF32" not in op.name]
OF_ARCHS = [*((*opcode, "gfx950") for opcode in listed_opcodes()), *((*opcode, "gfx942") for opcode in FP8)]


@pytest.mark.parametrize(("encoding", "op", "arch"), OF_ARCHS, ids=identifier)
def test_opcode(encoding: str, op: Any, arch: str) -> None:
    assert problems(cases_for(encoding, op, arch, machine().base)) == []


@pytest.mark.parametrize("loaded", ["DWORD", "DWORDX3", "DWORDX4", "USHORT", "UBYTE"])
def test_buffer_load_to_lds(loaded: str) -> None:
    from oracle.memory_cases import buffer_cases

    assert problems(buffer_cases(enum.MUBUFOp[f"BUFFER_LOAD_{loaded}"], "gfx950", machine().base, lds=True)) == []


def with_form(form: str, *encodings: str) -> list[tuple[str, Any]]:
    """The opcodes with operands that LLVM has in SDWA or DPP form."""
    have = isa.instructions("gfx950")
    return [
        (encoding, op)
        for encoding, op in listed_opcodes()
        if encoding in encodings and form in have.get(machine_name(op), ()) and op in OPERANDS
    ]


@pytest.mark.parametrize(("encoding", "op"), with_form("sdwa", "VOP1", "VOP2", "VOPC"), ids=identifier)
def test_sdwa_form(encoding: str, op: Any) -> None:
    assert problems(sdwa_cases(encoding, op, "gfx950")) == []


@pytest.mark.parametrize(("encoding", "op"), with_form("dpp", "VOP1", "VOP2"), ids=identifier)
def test_dpp_form(encoding: str, op: Any) -> None:
    assert problems(dpp_cases(encoding, op, "gfx950")) == []


# --- the guards ---


def test_every_micro_op_is_reached_by_machine_opcode() -> None:
    clamped = {f"{name}_clamp" for name in opcodes.CLAMPED}
    assert (
        SUPPORTED - {"s_setvskip"} - clamped - {micro_op_name(machine_name(op)) for _, op in listed_opcodes()}
        <= NO_MACHINE_OPCODE
    )


def test_opcode_without_pseudocode_has_no_oracle() -> None:
    with pytest.raises(NoOracleError, match="S_SETKILL"):
        cases_for("SOPP", enum.SOPPOp.S_SETKILL, "gfx950", 0)


SWAPPED = [
    ("VOP2", "V_ADD_F32", "V_SUB_F32"),
    ("VOP2", "V_ADD_U32", "V_SUB_U32"),
    ("VOPC", "V_CMP_LT_I32", "V_CMP_LE_I32"),
    ("SOP2", "S_ADD_U32", "S_ADD_I32"),
    ("VOP2", "V_LSHLREV_B32", "V_LSHRREV_B32"),
]


@pytest.mark.parametrize(("encoding", "right", "wrong"), SWAPPED)
def test_wrong_handler_is_noticed(encoding: str, right: str, wrong: str) -> None:
    """The expectation of one opcode against the execution of another on the same operands."""
    enumeration = getattr(enum, f"{encoding}Op")
    operation, other = enumeration[right], enumeration[wrong]
    noticed = False
    for case in cases_for(encoding, operation, "gfx950", machine().base):
        want = expected_state(case)
        case.program[0].op = other
        noticed = noticed or bool(differences(case, want, machine().run(case)))
    assert noticed


@pytest.mark.parametrize(("encoding", "right", "wrong"), SWAPPED)
def test_wrong_row_of_table_fails_its_opcode(
    monkeypatch: pytest.MonkeyPatch, encoding: str, right: str, wrong: str
) -> None:
    """The table gives an opcode another one's micro-op, as if the core's handler were wrong: its own test sees it."""
    monkeypatch.setitem(opcodes.ALIASES, right.lower(), wrong.lower())
    assert problems(cases_for(encoding, getattr(enum, f"{encoding}Op")[right], "gfx950", machine().base)) != []


def test_write_to_another_register_is_noticed() -> None:
    case = next(cases_for("VOP1", enum.VOP1Op.V_MOV_B32, "gfx950", 0))
    want, got = expected_state(case), machine().run(case)
    assert differences(case, want, got) == []
    got.vector = got.vector.copy()
    got.vector[77, 3] ^= 1
    assert differences(case, want, got)[0].startswith("v77[3]")

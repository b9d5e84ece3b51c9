"""Registers and text of the SDWA and DPP forms: what LLVM's assembler encoded is what the decoder names.

These forms keep src0 outside its field, and SDWA's S0 and S1 make the field of a vector register a scalar source's. The
expectation is the assembler's input; its encoder is LLVM's own.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import pytest

from ckpm_emulator.image import read
from ckpm_emulator.lowering.decode import Instruction, decode_function
from ckpm_emulator.lowering.registers import VECTOR, accesses
from emulator_assembly import assemble

# In the order of their encodings: ISA, VOP_SDWA, SRC0_SEL
SELECTORS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")


@dataclass(frozen=True, slots=True)
class Form:
    """An instruction as the assembler takes it, and the operands in the order of its text: the results first."""

    opcode: str
    operands: tuple[str, ...]
    modifiers: str
    results: int = 1

    @property
    def assembly(self) -> str:
        return f"{self.opcode} {', '.join(self.operands)} {self.modifiers}"

    def registers(self, which: slice) -> set[int]:
        """The registers of some operands, numbered as in registers.py."""
        return {number for operand in self.operands[which] for number in _numbers(operand)}


def _numbers(operand: str) -> range:
    """v5, s5 or s[4:5]; no register of a constant."""
    bank = {"v": VECTOR, "s": 0}.get(operand[0])
    if bank is None:
        return range(0)
    first, _, last = operand[1:].strip("[]").partition(":")
    return range(bank + int(first), bank + int(last or first) + 1)


def _sdwa(select: str) -> list[Form]:
    """Each with one selector: as first source, second and destination; vector, scalar and constant operands."""
    forms = []
    for first, second in (("v2", "v3"), ("s2", "v3"), ("v2", "s3"), ("v255", "s101"), ("7", "v3"), ("v2", "-16")):
        two = f"src0_sel:{select} src1_sel:{select}"
        forms.append(Form("v_and_b32_sdwa", ("v4", first, second), f"dst_sel:{select} dst_unused:UNUSED_PAD {two}"))
        forms.append(Form("v_cmp_gt_u32_sdwa", ("s[8:9]", first, second), two))
    for source in ("v2", "s2", "-16"):
        modifiers = f"dst_sel:{select} dst_unused:UNUSED_SEXT src0_sel:{select}"
        forms.append(Form("v_mov_b32_sdwa", ("v4", source), modifiers))
    return forms


DPP = [
    Form("v_mov_b32_dpp", ("v4", "v2"), "quad_perm:[0,2,1,3] row_mask:0xf bank_mask:0xf"),
    Form("v_add_f32_dpp", ("v4", "v2", "v3"), "row_shr:1 row_mask:0xf bank_mask:0xf"),
]


@functools.cache
def encodings() -> dict[Form, Instruction]:
    """Every form as LLVM encodes it and our decoder reads it: one run of the assembler."""
    forms = [*itertools.chain(*map(_sdwa, SELECTORS)), *DPP]
    image = read(assemble("".join(f"{form.assembly}\n" for form in forms)))
    return dict(zip(forms, decode_function(image, image.functions[0]), strict=True))


def _as_ours(operand: str) -> str:
    """The assembler's v5 is written v[5] by the decoder; ranges and constants are the same."""
    return f"{operand[0]}[{operand[1:]}]" if operand[1:].isdigit() and operand[0] in "vs" else operand


@pytest.mark.parametrize("select", SELECTORS)
def test_sdwa_names_vector_and_scalar_sources(select: str) -> None:
    for form in _sdwa(select):
        instruction = encodings()[form]
        assert accesses(instruction).reads == form.registers(slice(form.results, None)), form.assembly
        assert accesses(instruction).writes == form.registers(slice(form.results)), form.assembly


@pytest.mark.parametrize("select", SELECTORS)
def test_text_of_sdwa_is_what_assembler_was_given(select: str) -> None:
    number = SELECTORS.index(select)
    for form in _sdwa(select):
        _, operands = encodings()[form].text.split(" ", 1)
        assert operands.startswith(", ".join(map(_as_ours, form.operands))), form.assembly
        assert ("src0_sel:" in operands) == (number > 0)
        assert number == 0 or f"src0_sel:{number}" in operands
        assert "s0:" not in operands
        assert "s1:" not in operands


@pytest.mark.parametrize("form", DPP, ids=lambda form: form.opcode)
def test_dpp_reads_what_it_moves(form: Form) -> None:
    instruction = encodings()[form]
    assert accesses(instruction).reads == form.registers(slice(1, None))
    assert instruction.text.split(" ", 1)[1].startswith(", ".join(map(_as_ours, form.operands)))

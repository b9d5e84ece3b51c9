"""An instruction recognised by its shape is the one that tinygrad's tables recognise, with the same operands.

The decoder uses the tables once for each shape. Here every instruction is decoded alone, by a decoder that has
learned nothing, and by one that has learned much.
"""

from __future__ import annotations

import contextlib
import functools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tinygrad.renderer.amd import decode_inst
from tinygrad.renderer.amd.dsl import Inst

from ckpm_emulator.image import read
from ckpm_emulator.lowering import decode as decoder
from ckpm_emulator.lowering import registers, shapes
from emulator_assembly import assemble, instructions_of

# One of each format, and those whose fields decide about others: literals, markers, addresses that may be left out.
CODE = """
v_mov_b32 v1, s2
v_mov_b32 v1, 0x12345
v_add_f32 v1, v2, v3
v_add_f32 v1, 1.0, v3
v_fmamk_f32 v1, v2, 0x41000000, v3
v_cmp_lt_u32 vcc, s2, v3
v_and_b32_sdwa v1, v2, s3 src0_sel:BYTE_1
v_and_b32_sdwa v1, v2, 5 src0_sel:BYTE_1
v_cmp_eq_u32_sdwa s[4:5], v2, v3 src0_sel:WORD_1 src1_sel:DWORD
v_mov_b32_dpp v1, v2 row_shr:1 row_mask:0xf bank_mask:0xf
v_mad_u64_u32 v[2:3], vcc, v4, s5, v[6:7]
v_fma_f32 v1, -v2, |s3|, v4
v_cmp_lt_u32 s[4:5], s2, v3
v_readlane_b32 s5, v6, 3
v_pk_mul_f32 v[2:3], v[4:5], s[6:7]
v_accvgpr_write_b32 a3, v4
v_mfma_f32_16x16x16_f16 a[0:3], v[2:3], v[4:5], a[0:3]
s_mov_b32 s3, s4
s_mov_b64 exec, s[4:5]
s_add_u32 s3, s4, 0x12345
s_cmp_lt_u32 s4, 7
s_movk_i32 s4, 0x77
s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 3
s_waitcnt vmcnt(3)
s_branch 5
s_load_dwordx4 s[4:7], s[2:3], 0x10
s_load_dword s4, s[2:3], s5
ds_read_b64 v[2:3], v4 offset:16
ds_read_b32 a2, v4
ds_write2_b32 v1, v2, v3 offset1:1
buffer_load_dwordx4 v[4:7], v1, s[8:11], 0 offen offset:32
buffer_load_dword v4, v[2:3], s[8:11], s6 idxen offen
buffer_load_dword v1, s[8:11], s6 offen lds
buffer_store_dword a4, v1, s[8:11], 0 offen
global_load_dwordx2 v[2:3], v[4:5], off
global_load_dwordx2 v[2:3], v4, s[6:7] offset:-8
global_atomic_add v1, v2, v3, s[4:5] sc0
flat_load_dword v1, v[2:3]
scratch_load_dword v1, off, s33 offset:4
scratch_store_dword v2, v1, off
"""


@functools.cache
def encodings() -> tuple[bytes, ...]:
    image = read(assemble(CODE))
    instructions = decoder.decode_function(image, image.functions[0])
    return tuple(image.text[instruction.pc : instruction.pc + instruction.size] for instruction in instructions)


def _unlearn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shapes, "_layouts", {})
    patch.setattr(decoder, "_encodings", {})


def _alone(code: bytes) -> decoder.Instruction:
    """The instruction, decoded by a decoder without shapes."""
    with pytest.MonkeyPatch.context() as patch:
        _unlearn(patch)
        return next(decoder.decode(code))


def _text(instruction: decoder.Instruction) -> str:
    """A register number that there is not, as in some of the altered ones, has no text."""
    with contextlib.suppress(RuntimeError):
        return instruction.text
    return "none"


def test_all_have_text() -> None:
    texts = [next(decoder.decode(code)).text for code in encodings()]
    assert "s_setreg_imm32_b32" in " ".join(texts)


@st.composite
def altered_codes(draw: st.DrawFn) -> bytes:
    """An encoding of CODE in which some bits are others, and zeros after it."""
    code = draw(st.sampled_from(encodings()))
    flips = draw(st.lists(st.integers(0, 8 * len(code) - 1), max_size=10))
    raw = functools.reduce(lambda bits, bit: bits ^ 1 << bit, flips, int.from_bytes(code, "little"))
    return raw.to_bytes(16, "little")


def _is_beyond_the_tables(code: bytes) -> bool:
    """MTBUF and gfx90a's buffer_wbinvl1, which the decoder reads by itself (test_typed_buffers, test_gfx90a)."""
    first = int.from_bytes(code[:4], "little")
    return first >> 26 == 0b111010 or (first >> 26 == 0b111000 and first >> 18 & 0x7E == 0x3E)


@given(altered_codes())
@settings(max_examples=500, deadline=None)
def test_what_was_learned_changes_nothing(code: bytes) -> None:
    assume(not _is_beyond_the_tables(code))
    for encoding in encodings():
        list(decoder.decode(encoding))
    learned, alone = next(decoder.decode(code)), _alone(code)
    try:
        record = decode_inst(code, "cdna")
    except (ValueError, AssertionError, KeyError, RuntimeError):
        assert learned.record is None
        return
    assert (type(learned.record), learned.record.to_bytes()) == (type(record), record.to_bytes())
    assert (learned.size, learned.name, learned.format) == (alone.size, alone.name, alone.format)
    assert _text(learned) == _text(alone)
    assert registers.accesses(learned) == registers.accesses(alone)


def test_instructions_of_one_shape_ask_tables_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []

    def decode_alone(code: bytes, arch: str) -> Inst:
        decoded.append(code)
        return decode_inst(code, arch)

    monkeypatch.setattr(decoder, "decode_inst", decode_alone)
    _unlearn(monkeypatch)
    body = "".join(f"v_add_f32 v{n}, s{n}, v{n + 9}\nds_read_b32 v{n}, v1 offset:{n}\n" for n in range(50))
    instructions = list(decoder.decode(read(assemble(body)).text))
    assert len({instruction.encoding.raw for instruction in instructions}) >= 100
    assert len(decoded) <= 5  # the two, and what fills the section's end


@pytest.mark.parametrize("form", ["src0_sel:BYTE_1", "row_shr:1"])
def test_what_stands_after_marker_is_read_of_each(form: str) -> None:
    """Forms SDWA and DPP have a marker in the field of the first source, the same for all registers."""
    name = "v_and_b32_sdwa" if "sel" in form else "v_and_b32_dpp"
    texts = [next(decoder.decode(read(assemble(f"{name} v1, v{i}, v3 {form}\n")).text)).text for i in (4, 5)]
    assert texts[1] == texts[0].replace("v[4]", "v[5]").replace("v4", "v5") != texts[0]


# ---- SDWA and DPP keep src0 outside its field, and SDWA's S0 and S1 make the field of a vector register a scalar
# source's. The expectation is the assembler's input; its encoder is LLVM's own.

# In the order of their encodings: ISA, VOP_SDWA, SRC0_SEL
SELECTORS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
PAIRS = ("v2, v3", "s2, v3", "v2, s3", "v255, s101", "7, v3", "v2, -16")
TWO = "src0_sel:{select} src1_sel:{select}"
# opcode and result, sources, modifiers
FORMS = [
    *(("v_and_b32_sdwa v4", pair, f"dst_sel:{{select}} dst_unused:UNUSED_PAD {TWO}") for pair in PAIRS),
    *(("v_cmp_gt_u32_sdwa s[8:9]", pair, TWO) for pair in PAIRS),
    *(("v_mov_b32_sdwa v4", source, "dst_sel:{select} src0_sel:{select}") for source in ("v2", "s2", "-16")),
    ("v_mov_b32_dpp v4", "v2", "quad_perm:[0,2,1,3] row_mask:0xf bank_mask:0xf"),
    ("v_add_f32_dpp v4", "v2, v3", "row_shr:1 row_mask:0xf bank_mask:0xf"),
]


@functools.cache
def sdwa_instructions() -> dict[str, list[decoder.Instruction]]:
    """Every form with every selector, by its assembly: one run of the assembler."""
    codes = (f"{start}, {sources} {modifiers}\n" for start, sources, modifiers in FORMS)
    return instructions_of({code: code for form in codes for code in {form.format(select=s) for s in SELECTORS}})


def numbers(operand: str) -> set[int]:
    """The registers of v5, s5 or s[4:5], numbered as in registers.py; none of a constant."""
    if operand[0] not in "vs":
        return set()
    first, _, last = operand[1:].strip("[]").partition(":")
    bank = registers.VECTOR if operand[0] == "v" else 0
    return set(range(bank + int(first), bank + int(last or first) + 1))


def as_text(operand: str) -> str:
    """The assembler's v5 is written v[5] by the decoder; ranges and constants are the same."""
    return f"{operand[0]}[{operand[1:]}]" if operand[1:].isdigit() and operand[0] in "vs" else operand


@pytest.mark.parametrize(("start", "sources", "modifiers"), FORMS)
@pytest.mark.parametrize("number", range(len(SELECTORS)))
def test_registers_and_text_are_those_of_assembly(start: str, sources: str, modifiers: str, number: int) -> None:
    code = f"{start}, {sources} {modifiers}\n".format(select=SELECTORS[number])
    instruction, _ = sdwa_instructions()[code]
    result, operands = start.split()[1], sources.split(", ")
    assert registers.accesses(instruction).reads == set().union(*map(numbers, operands))
    assert registers.accesses(instruction).writes == numbers(result)
    text = instruction.text.split(" ", 1)[1]
    assert text.startswith(", ".join(map(as_text, (result, *operands))))
    if "select" in modifiers:
        assert ("src0_sel:" in text) == (number > 0)
        assert number == 0 or f"src0_sel:{number}" in text
        assert "s0:" not in text
        assert "s1:" not in text

"""Lowering of scalar instructions: SOP1, SOP2, SOPC, SOPK, SOPP, SMEM."""

from __future__ import annotations

from ckpm_emulator.lowering import microop as m
from ckpm_emulator.lowering.decode import Instruction
from ckpm_emulator.lowering.operands import Form, MicroOp, Source, scalar_destination, source

_B32 = Form(32, "B32")
_WITHOUT_SOURCE = ("s_getpc_b64",)


def lower_sop(instruction: Instruction, op: MicroOp) -> None:
    """SOP1, SOP2 and SOPC, with or without literal."""
    record, name = instruction.record, instruction.name
    shapes = instruction.forms
    literal = getattr(record, "literal", None)
    for i, field in enumerate(("ssrc0", "ssrc1")):
        if hasattr(type(record), field) and not (field == "ssrc0" and name in _WITHOUT_SOURCE):
            shape = shapes.get(field, _B32)
            op.src[i] = source(op, getattr(record, field).offset, shape, literal)
            op.words[i] = shape.words
    if "sdst" in shapes:
        op.dst = scalar_destination(record.sdst.offset)
        op.words[3] = shapes["sdst"].words
    if name in ("s_getpc_b64", "s_swappc_b64"):
        op.offset = instruction.pc + instruction.size
    if name == "s_set_gpr_idx_on":
        op.src[1], op.control = Source(), record.ssrc1.offset  # the field itself is the set of uses


def lower_sopk(instruction: Instruction, op: MicroOp) -> None:
    """SOPK: the 16-bit constant becomes the literal, the destination the first source where it is read."""
    record, name = instruction.record, instruction.name
    constant = record.simm16
    signed = constant - 0x10000 if constant & 0x8000 else constant
    if name == "s_call_b64":
        op.dst = scalar_destination(record.sdst.offset)
        op.literal = instruction.pc + instruction.size
        op.target = instruction.pc + instruction.size + 4 * signed
        return
    if name in ("s_setreg_b32", "s_setreg_imm32_b32", "s_getreg_b32"):
        op.control = constant
        if name == "s_getreg_b32":
            op.dst = scalar_destination(record.sdst.offset)
        elif name == "s_setreg_b32":
            op.src[0] = Source(scalar_destination(record.sdst.offset))
        else:
            op.src[0], op.literal = Source(m.LITERAL), record.literal
        return
    register = scalar_destination(record.sdst.offset)
    unsigned = name.endswith("_u32")
    op.literal = (constant if unsigned else signed) & 0xFFFFFFFF
    if name == "s_movk_i32":
        op.src[0] = Source(m.LITERAL)
    else:
        op.src[0], op.src[1] = Source(register), Source(m.LITERAL)
    if not name.startswith("s_cmpk"):
        op.dst = register


def lower_sopp(instruction: Instruction, op: MicroOp) -> None:
    """SOPP: branches get the pc of their target, s_waitcnt its counts."""
    constant = instruction.record.simm16
    if instruction.name in ("s_branch",) or instruction.name.startswith("s_cbranch"):
        signed = constant - 0x10000 if constant & 0x8000 else constant
        op.target = instruction.pc + instruction.size + 4 * signed
    op.control = constant


def lower_smem(instruction: Instruction, op: MicroOp) -> None:
    """Scalar loads, stores and atomics: base, offset register, data in src[2]; immediate offset."""
    record, name = instruction.record, instruction.name
    if "dcache" in name or "probe" in name:
        return
    data, words = scalar_destination(record.sdata.offset), record.op_regs.get("sdata", 1)
    if "store" in name or "atomic" in name:
        op.src[2], op.words[2] = Source(data), words
        op.flags |= m.WRITES | m.RETURN * ("atomic" in name and record.glc)
    else:
        op.dst, op.words[3] = data, words
    if name in ("s_memtime", "s_memrealtime"):
        return
    op.src[0] = Source(m.SCALAR + record.sbase.offset)
    op.words[0] = 4 if "buffer" in name else 2
    if record.imm:
        op.offset = record.offset - (1 << 21) if record.offset & (1 << 20) else record.offset
    if record.soffset_en:
        op.src[1] = Source(m.SCALAR + record.soffset.offset)
    elif not record.imm:
        op.src[1] = Source(m.SCALAR + (record.offset & 0x7F))
    op.words[1] = int(op.src[1].code != m.NONE)

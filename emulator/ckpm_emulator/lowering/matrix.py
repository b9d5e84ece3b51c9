"""Lowering of matrix instructions: MFMA, their scaled and their sparse forms."""

from __future__ import annotations

from typing import Any

from ckpm_emulator.lowering import matrix_table
from ckpm_emulator.lowering import microop as m
from ckpm_emulator.lowering.decode import Instruction, operand
from ckpm_emulator.lowering.operands import Form, MicroOp, Source, demand

_CYCLES = 4  # of a pass
_FORMATS = 5  # of f8f6f4
_INLINE = range(128, 249)  # encodings of inline constants


def lower_matrix(instruction: Instruction, op: MicroOp, arch: str) -> None:
    """Lower an instruction. The accumulation bits select operands in AGPRs. Passes are those of ``arch``."""
    record, name = instruction.record, instruction.name
    shapes = instruction.forms
    for i, field in enumerate(("src0", "src1", "src2")):
        register = getattr(record, field).offset
        in_agprs = record.acc >> i & 1 if i < 2 else record.acc_cd and not name.startswith(matrix_table.SPARSE)
        demand(register >= 256 or (i == 2 and register in _INLINE), f"a source of {name} that is not a vector register")
        op.src[i] = Source(
            register - 256 + (m.ACCUMULATION if in_agprs else 0) if register >= 256 else m.SCALAR + register
        )
        op.words[i] = shapes[field].words
    op.dst = record.vdst.offset - 256 + (m.ACCUMULATION if record.acc_cd else 0)
    op.words[3] = shapes["vdst"].words
    op.literal, op.literal_high = matrix_table.flops(name), _CYCLES * matrix_table.passes(name, record, arch)
    if name.startswith(matrix_table.SPARSE):
        op.control = _first_index_bit(name, record, shapes["src0"])
    elif name.endswith("_f8f6f4"):
        op.control = _small_formats(name, record)
        if name.startswith(matrix_table.SCALED):
            _scales(name, record, op)
    else:
        op.control = _broadcast(name, record)


def _broadcast(name: str, record: Any) -> int:
    """CBSZ and ABID, of A, and BLGP, of B, as core/isa/matrix.h has them; of f64 BLGP negates."""
    if name.endswith("_f64"):
        return int(record.blgp) << 7
    parts = 1 << record.cbsz
    demand(parts <= matrix_table.blocks_of(name), f"cbsz:{record.cbsz} of {name}, undefined for so few blocks")
    demand(record.abid < parts, f"abid:{record.abid} with cbsz:{record.cbsz} of {name}, undefined")
    return int(record.cbsz | record.abid << 3 | record.blgp << 7)


def _first_index_bit(name: str, record: Any, stored: Form) -> int:
    """First bit of the indices of a sparse A. They have two bits for each stored value. ABID selects a set of a
    register, unless CBSZ is set (CDNA4 ISA, section 7.5, "Sparse Index Select").
    """
    width = 16 if name.endswith("f16") else 8
    bits = 2 * stored.bits // width
    return 0 if record.cbsz & 3 else int(record.abid % (32 // bits)) * bits


def _small_formats(name: str, record: Any) -> int:
    for field in ("cbsz", "blgp"):
        value = getattr(record, field)
        demand(value < _FORMATS, f"{field}:{value} of {name}, which is not a format")
    demand(bool(record.abid) == name.startswith(matrix_table.SCALED), f"abid:{record.abid} of {name}")
    return int(record.cbsz | record.blgp << 3)


def _scales(name: str, record: Any, op: MicroOp) -> None:
    """The registers with scales, and which of their bytes: OP_SEL's bit is the low one, OP_SEL_HI's the high one."""
    demand(not record.neg and not record.neg_hi and not record.opsel & 4, f"modifiers of {name}")
    for i, field in enumerate(("scale_src0", "scale_src1")):
        register = operand(record, field).offset
        demand(register >= 256 or register < 106 or register in _INLINE, f"operand with encoding {register} of {name}")
        op.extra[i] = register - 256 if register >= 256 else m.SCALAR + register
        op.control |= (record.opsel >> i & 1 | (record.opsel_hi >> i & 1) << 1) << 6 + 2 * i

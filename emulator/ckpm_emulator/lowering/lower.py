"""Instructions to micro-ops; scalar and matrix instructions in full.

An instruction that the emulator lacks becomes a ``trap`` micro-op with the reason: only a wave that gets there stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ckpm_emulator.lowering import arch_table, matrix_table, opcodes
from ckpm_emulator.lowering import microop as m
from ckpm_emulator.lowering.decode import Instruction, operand
from ckpm_emulator.lowering.memory import lower_ds, lower_flat, lower_mtbuf, lower_mubuf
from ckpm_emulator.lowering.operands import Form, MicroOp, Source, UnknownError, demand, scalar_destination, source
from ckpm_emulator.lowering.vector import lower_vop, lower_vop3, lower_vop3p

_B32 = Form(32, "B32")
_WITHOUT_SOURCE = ("s_getpc_b64",)
_CYCLES = 4  # of a pass
_FORMATS = 5  # of f8f6f4
_INLINE = range(128, 249)  # encodings of inline constants
_MATRIX = ("VOP3P_MFMA", "VOP3PX2")
_NONE: Mapping[int, str] = {}
_HAZARD = 1  # core/isa/ops/control.cpp, trap
_VARIANTS = ("_LIT", "_SDWA_SDST", "_SDWA", "_DPP16")


def lower_sop(instruction: Instruction, op: MicroOp) -> None:
    """Lower SOP1, SOP2 and SOPC, with or without literal."""
    record, name = instruction.record, instruction.name
    shapes = instruction.forms
    literal = getattr(record, "literal", None)
    for i, field in enumerate(("ssrc0", "ssrc1")):
        if hasattr(type(record), field) and not (field == "ssrc0" and name in _WITHOUT_SOURCE):
            shape = shapes.get(field, _B32)
            op.src[i] = source(op, getattr(record, field).offset, shape, literal)
            op.dwords[i] = shape.dwords
    if "sdst" in shapes:
        op.dst = scalar_destination(record.sdst.offset)
        op.dwords[3] = shapes["sdst"].dwords
    if name in ("s_getpc_b64", "s_swappc_b64"):
        op.offset = instruction.pc + instruction.size
    if name == "s_set_gpr_idx_on":
        op.src[1], op.control = Source(), record.ssrc1.offset  # the field itself is the set of uses


def lower_sopk(instruction: Instruction, op: MicroOp) -> None:
    """Lower SOPK: the 16-bit constant becomes the literal, the destination the first source where it is read."""
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
    """Lower SOPP: branches get the pc of their target, s_waitcnt its counts."""
    constant = instruction.record.simm16
    if instruction.name in ("s_branch",) or instruction.name.startswith("s_cbranch"):
        signed = constant - 0x10000 if constant & 0x8000 else constant
        op.target = instruction.pc + instruction.size + 4 * signed
    op.control = constant


def lower_smem(instruction: Instruction, op: MicroOp) -> None:
    """Lower scalar loads, stores and atomics: base, offset register, data in src[2]; immediate offset."""
    record, name = instruction.record, instruction.name
    if "dcache" in name or "probe" in name:
        return
    data, dwords = scalar_destination(record.sdata.offset), record.op_regs.get("sdata", 1)
    if "store" in name or "atomic" in name:
        op.src[2], op.dwords[2] = Source(data), dwords
        op.flags |= m.WRITES | m.RETURN * ("atomic" in name and record.glc)
    else:
        op.dst, op.dwords[3] = data, dwords
    if name in ("s_memtime", "s_memrealtime"):
        return
    op.src[0] = Source(m.SCALAR + record.sbase.offset)
    op.dwords[0] = 4 if "buffer" in name else 2
    if record.imm:
        op.offset = record.offset - (1 << 21) if record.offset & (1 << 20) else record.offset
    if record.soffset_en:
        op.src[1] = Source(m.SCALAR + record.soffset.offset)
    elif not record.imm:
        op.src[1] = Source(m.SCALAR + (record.offset & 0x7F))
    op.dwords[1] = int(op.src[1].code != m.NONE)


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
        op.dwords[i] = shapes[field].dwords
    op.dst = record.vdst.offset - 256 + (m.ACCUMULATION if record.acc_cd else 0)
    op.dwords[3] = shapes["vdst"].dwords
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
    """The registers with scales, and which of their bytes: OP_SEL's bit is the low one, OP_SEL_HI's the high one.

    The third bit of OP_SEL has no operand. AITER's FP4 GEMMs set it.
    """
    demand(not record.neg and not record.neg_hi, f"modifiers of {name}")
    for i, field in enumerate(("scale_src0", "scale_src1")):
        register = operand(record, field).offset
        demand(register >= 256 or register < 106 or register in _INLINE, f"operand with encoding {register} of {name}")
        op.extra[i] = register - 256 if register >= 256 else m.SCALAR + register
        op.control |= (record.opsel >> i & 1 | (record.opsel_hi >> i & 1) << 1) << 6 + 2 * i


_BY_FORMAT: dict[str, Callable[[Instruction, MicroOp], None]] = {
    **dict.fromkeys(("SOP1", "SOP2", "SOPC"), lower_sop),
    "SOPK": lower_sopk,
    "SOPP": lower_sopp,
    "SMEM": lower_smem,
    **dict.fromkeys(("VOP1", "VOP2", "VOPC"), lower_vop),
    **dict.fromkeys(("VOP3", "VOP3SD", "VOP3_SDST"), lower_vop3),
    "VOP3P": lower_vop3p,
    "DS": lower_ds,
    "MUBUF": lower_mubuf,
    "MTBUF": lower_mtbuf,
    **dict.fromkeys(("FLAT", "GLOBAL", "SCRATCH"), lower_flat),
}


@dataclass(frozen=True, slots=True)
class Lowered:
    """A run of micro-ops as records, and the texts they refer to."""

    ops: npt.NDArray[np.void]
    texts: tuple[str, ...]


def lower_one(instruction: Instruction, arch: str = "") -> tuple[MicroOp, str]:
    """The micro-op of one instruction, and the reason if it is a trap, else ''. Branch targets stay pcs.

    ``arch`` is the target, such as gfx950; without it instructions of all archs pass.
    """
    name = opcodes.micro_op_name(instruction.name)
    op = MicroOp(name)
    try:
        if instruction.record is None:
            raise UnknownError("bits of no instruction in its tables")
        if name not in opcodes.SUPPORTED:
            raise UnknownError(f"opcode {instruction.name} ({instruction.format})")
        if why := arch_table.refusal(instruction, arch) if arch else "":
            return MicroOp("trap"), f"{why}: {instruction.text}"
        if instruction.format in _MATRIX:
            lower_matrix(instruction, op, arch)
        else:
            _lower_function(instruction)(instruction, op)
    except UnknownError as unknown:
        return MicroOp("trap"), f"the emulator lacks {unknown}: {instruction.text}"
    return op, ""


def lower(instructions: Sequence[Instruction], too_early: Mapping[int, str] = _NONE, arch: str = "") -> Lowered:
    """Micro-ops of a run of instructions for an arch.

    A branch out of the run becomes a trap, and so does an instruction of ``too_early``, which has the reasons by pc.
    """
    index = {instruction.pc: i for i, instruction in enumerate(instructions)}
    texts: dict[str, int] = {}
    micro_ops: list[MicroOp] = []
    indexed = False
    for i, instruction in enumerate(instructions):
        op, reason = lower_one(instruction, arch)
        indexed = instruction.name == "s_set_gpr_idx_on" or (indexed and instruction.name != "s_set_gpr_idx_off")
        if indexed and not reason:
            op, reason = _by_index(instruction, op)
        if op.target is not None:
            if op.target in index:
                op.offset = index[op.target] - i
            else:
                op, reason = MicroOp("trap"), f"a branch to 0x{op.target:x}, where no instruction starts"
        if instruction.pc in too_early:
            op, reason = MicroOp("trap", control=_HAZARD), too_early[instruction.pc]
        if reason:
            op.literal = texts.setdefault(reason, len(texts))
        texts.setdefault(instruction.text, len(texts))
        micro_ops.append(op)
    ops = _records(micro_ops)
    ops["pc"] = [instruction.pc for instruction in instructions]
    ops["text"] = [texts[instruction.text] for instruction in instructions]
    return Lowered(ops, tuple(texts))


def _by_index(instruction: Instruction, op: MicroOp) -> tuple[MicroOp, str]:
    """Lower an instruction between s_set_gpr_idx_on and s_set_gpr_idx_off.

    Compilers put one v_mov_b32 there, AITER's kernels a few others; the rest of vector instructions and branches there
    are not followed.
    """
    if f"{op.name}_indexed" in opcodes.VECTOR and not op.flags:
        op.name = f"{op.name}_indexed"
    elif instruction.format.startswith("VOP") or op.target is not None:
        return MicroOp("trap"), f"the emulator lacks {instruction.name} with indexed registers: {instruction.text}"
    return op, ""


def missing_instructions(instructions: Iterable[Instruction], arch: str = "") -> dict[str, int]:
    """Count the reasons why the emulator can't execute some of these instructions, without the operands."""
    counts: dict[str, int] = {}
    for instruction in instructions:
        _, reason = lower_one(instruction, arch)
        if reason:
            what = reason.removesuffix(f": {instruction.text}")
            counts[what] = counts.get(what, 0) + 1
    return counts


def _lower_function(instruction: Instruction) -> Callable[[Instruction, MicroOp], None]:
    base = instruction.format
    for suffix in _VARIANTS:
        base = base.removesuffix(suffix) if base not in _BY_FORMAT else base
    if base not in _BY_FORMAT:
        raise UnknownError(f"instructions of format {instruction.format}")
    return _BY_FORMAT[base]


def _records(micro_ops: Sequence[MicroOp]) -> npt.NDArray[np.void]:
    ops = np.zeros(len(micro_ops), m.MICRO_OP)
    if not micro_ops:
        return ops
    hashes = {name: m.name_hash(name) for name in {op.name for op in micro_ops}}
    kinds = {name: m.KINDS.index(opcodes.kind_of(name)) for name in hashes}
    ops["handler"] = [hashes[op.name] for op in micro_ops]
    ops["kind"] = [kinds[op.name] for op in micro_ops]
    for i in range(3):
        ops["src"]["code"][:, i] = [op.src[i].code for op in micro_ops]
        ops["src"]["mods"][:, i] = [op.src[i].mods for op in micro_ops]
        ops["src"]["select"][:, i] = [op.src[i].select for op in micro_ops]
    for field in (
        *("dst", "scalar_dst", "literal", "literal_high", "offset", "flags", "control"),
        *("dwords", "extra", "destination_select", "destination_unused", "omod"),
    ):
        ops[field] = [getattr(op, field) for op in micro_ops]
    return ops

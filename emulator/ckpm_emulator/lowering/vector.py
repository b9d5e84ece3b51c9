"""Lowering of vector ALU instructions: VOP1, VOP2, VOPC, VOP3 and its kin, VOP3P; SDWA and DPP forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ckpm_emulator.lowering import microop as m
from ckpm_emulator.lowering import opcodes
from ckpm_emulator.lowering.decode import Instruction, operand
from ckpm_emulator.lowering.operands import Form, MicroOp, Source, UnknownError, demand, scalar_destination, source

_VCC = 106
_B32, _MASK = Form(32, "B32"), Form(64, "M64")
# The destination is also the last source.
_ACCUMULATES = ("v_fmac_", "v_mac_", "v_pk_fmac_", "v_dot2c_", "v_dot4c_", "v_dot8c_")
_CARRY_IN = ("v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32")
# VOP3 forms that came with gfx9 write half a register; older 16-bit operations clear the other half (LLVM,
# GCNSubtarget::zeroesHigh16BitsOfDest).
_HALF_WRITERS = frozenset(
    f"v_{name}"
    for name in (
        *("fma_f16", "mad_f16", "mad_u16", "mad_i16", "div_fixup_f16", "add_i16", "sub_i16"),
        *("ashr_pk_i8_i32", "ashr_pk_u8_i32", "cvt_sr_f16_f32", "cvt_sr_bf16_f32"),
        *(f"{kind}_{form}" for kind in ("min3", "max3", "med3") for form in ("f16", "i16", "u16")),
    )
)
_SIGNED_DOTS = ("v_dot2_f32_f16", "v_dot2_f32_bf16")
_PACK_FP8 = ("v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32")
_STOCHASTIC_FP8 = ("v_cvt_sr_fp8_f32", "v_cvt_sr_bf8_f32")
_SCALED = "v_cvt_scalef32_"
_LANES_TO_SCALAR = ("v_readlane_b32", "v_readfirstlane_b32")


def lower_vop(instruction: Instruction, op: MicroOp) -> None:
    """Lower VOP1, VOP2 and VOPC in their short encodings, with literal, SDWA or DPP."""
    record, name = instruction.record, instruction.name
    shapes = instruction.forms
    encoding = instruction.format
    literal = getattr(record, "literal", None)
    if "src0" in shapes:
        op.src[0] = source(op, operand(record, "src0").offset, shapes["src0"], literal)
        op.dwords[0] = shapes["src0"].dwords
    if hasattr(type(record), "vsrc1"):
        shape1 = shapes.get("vsrc1", _B32)
        op.src[1] = source(op, operand(record, "vsrc1").offset, shape1)
        op.dwords[1] = shape1.dwords
    if encoding.endswith(("_SDWA", "_SDWA_SDST")):
        _sdwa(op, record, shapes)
    elif encoding.endswith("_DPP16"):
        _dpp(op, record, shapes)
    if name.startswith(("v_fmamk", "v_madmk")):
        op.src[1], op.src[2] = source(op, 255, _B32, literal), op.src[1]
    elif name.startswith(("v_fmaak", "v_madak")):
        op.src[2] = source(op, 255, _B32, literal)
    elif name == "v_cndmask_b32":
        op.src[2] = Source(m.SCALAR + _VCC)
    _destination(instruction, op, shapes, record)


def lower_vop3(instruction: Instruction, op: MicroOp) -> None:
    """Lower VOP3, VOP3SD and VOP3_SDST."""
    record, name = instruction.record, instruction.name
    shapes = instruction.forms
    for i, field in enumerate(("src0", "src1", "src2")):
        if field in shapes:
            op.src[i] = source(op, getattr(record, field).offset, shapes[field])
            op.dwords[i] = shapes[field].dwords
    if name.startswith("v_bitop3"):
        op.control = record.neg | record.abs << 3 | record.omod << 6
        demand(not record.opsel and not record.clmp, f"op_sel or clamp of {name}")
    else:
        _modifiers(op, record, shapes, name)
    _destination(instruction, op, shapes, record)


def _modifiers(op: MicroOp, record: Any, shapes: Mapping[str, Form], name: str) -> None:
    """Set neg, abs and op_sel of the sources; omod, clamp and op_sel of the destination."""
    neg, absolute, select = record.neg, getattr(record, "abs", 0), getattr(record, "opsel", 0)
    halves = not name.startswith(_SCALED)  # there op_sel counts bytes
    for i, field in enumerate(("src0", "src1", "src2")):
        shape = shapes.get(field)
        bit = 1 << i
        if shape is None:
            continue
        if (neg | absolute) & bit:
            demand(shape.is_float or name == "v_cndmask_b32", f"neg or abs of an operand of format {shape.number}")
            op.src[i].mods |= m.NEGATE * bool(neg & bit) | m.ABSOLUTE * bool(absolute & bit)
        if shape.is_half:
            op.src[i].mods |= m.HALF if op.src[i].mods else 0
            if halves and select & bit:
                op.src[i].select = m.WORD_1
                select &= ~bit
    if name.startswith(_SCALED):
        demand(op.src[0].code < m.SCALAR + 128 or shapes["src0"].number in ("F16", "F32"), f"a constant in {name}")
        select = _scaled_place(op, name, select)
    elif name in _PACK_FP8:
        op.flags |= m.HIGH_HALF if select & 8 else m.LOW_HALF
        select &= ~8
    elif name in _STOCHASTIC_FP8:
        op.control = select >> 2
        select = 0
    elif name.startswith("v_permlane"):
        select = 0  # bound_ctrl and fi: of no effect on a whole swap
    elif name.startswith(("v_cvt_f32_fp8", "v_cvt_f32_bf8")):
        op.src[0].select = (0, 2, 1, 3)[select & 3]  # op_sel[0] is the upper bit of the byte's number
        select &= ~3
    elif name in _HALF_WRITERS:
        op.flags |= m.HIGH_HALF if select & 8 else m.LOW_HALF
        select &= ~8
    elif select & 8 and shapes.get("vdst", _B32).is_half:
        op.flags |= m.HIGH_HALF
        select &= ~8
    demand(select == 0, f"op_sel {select} of {name}")
    _output(op, record, shapes, name)


def _scaled_place(op: MicroOp, name: str, select: int) -> int:
    """Set the bit where the small values of v_cvt_scalef32_* start in their register; return the rest of op_sel."""
    small = name.rsplit("_", 1)[-1] in ("fp8", "bf8", "fp4", "fp6", "bf6")
    if "pk32_" in name or "pk16_" in name:
        return select
    if not small and ("_sr_" in name or "_fp4_" in name):
        op.control = 8 * (select >> 2)
        return select & 3
    if not small:
        op.control = 16 * (select >> 3)
        return select & 7
    if "_pk_" in name and not name.endswith("_fp4"):
        op.control = 16 * (select & 1)
        return select & ~1
    op.control = 8 * (select & 3)
    if "_f16_" in name and select & 8 and "_pk_" not in name:
        op.flags |= m.HIGH_HALF
        select &= ~8
    return select & ~3


def _output(op: MicroOp, record: Any, shapes: Mapping[str, Form], name: str) -> None:
    result = shapes.get("vdst", _B32)
    if getattr(record, "omod", 0):
        demand(result.is_float, f"omod of {name}")
        op.omod = record.omod
    if getattr(record, "clmp", 0):
        _clamp(op, name, is_float=result.is_float or result.number in ("PK2_F32", "PK2_F16"))


def _clamp(op: MicroOp, name: str, *, is_float: bool) -> None:
    """Clamp floats to [0, 1] by the micro-op's flag; integers to the range of their format, by another micro-op."""
    if is_float:
        op.flags |= m.CLAMP
        return
    demand(op.name in opcodes.CLAMPED, f"clamp of {name}")
    op.name += "_clamp"


def lower_vop3p(instruction: Instruction, op: MicroOp) -> None:
    """Lower packed operations, v_mad_mix and dot products."""
    record, name = instruction.record, instruction.name
    shapes = instruction.forms
    if name.startswith("v_accvgpr"):
        lower_accvgpr(instruction, op)
        return
    mixed = name.startswith("v_mad_mix")
    packed = name.startswith("v_pk_")
    high = record.opsel_hi | record.opsel_hi2 << 2
    for i, field in enumerate(("src0", "src1", "src2")):
        if field not in shapes:
            continue
        shape = shapes[field]
        if mixed:  # an inline constant is of the type that op_sel_hi chooses
            shape = Form(16, "F16") if high >> i & 1 else Form(32, "F32")
        op.src[i] = source(op, getattr(record, field).offset, shape)
        op.dwords[i] = shape.dwords
        neg = (record.neg >> i & 1, record.neg_hi >> i & 1)
        if packed or mixed:
            op.src[i].select = record.opsel >> i & 1 | (high >> i & 1) << 1
            op.src[i].mods = m.NEGATE * neg[0] | m.NEGATE_HIGH * neg[1]
            is_float = mixed or shape.number.endswith(("F16", "F32"))
            demand(is_float or not any(neg), f"neg of an operand of format {shape.number}")
        else:
            whole = field == "src2" or (not record.opsel >> i & 1 and high >> i & 1)
            demand(whole and (not any(neg) or name in _SIGNED_DOTS), f"modifiers of {name}")
            op.src[i].mods = m.NEGATE * neg[0] | m.NEGATE_HIGH * neg[1]
    if record.clmp:
        _clamp(op, name, is_float=mixed or name.endswith(("_f16", "_f32", "_bf16")))
    if name == "v_mad_mixlo_f16":
        op.flags |= m.LOW_HALF
    elif name == "v_mad_mixhi_f16":
        op.flags |= m.HIGH_HALF
    _destination(instruction, op, shapes, record)


def lower_accvgpr(instruction: Instruction, op: MicroOp) -> None:
    """Lower moves between the two halves of the register file."""
    record, name = instruction.record, instruction.name
    register = record.src0.offset
    op.src[0] = source(op, register, _B32, getattr(record, "literal", None))
    op.dst = record.vdst.offset - 256
    if name != "v_accvgpr_write" and op.src[0].code < m.ACCUMULATION:
        op.src[0].code += m.ACCUMULATION
    if name != "v_accvgpr_read":
        op.dst += m.ACCUMULATION
    op.dwords[0] = op.dwords[3] = 1


def _destination(instruction: Instruction, op: MicroOp, shapes: Mapping[str, Form], record: Any) -> None:
    name = instruction.name
    if name == "v_nop":
        return
    if name.startswith(("v_cmp_", "v_cmpx_")):
        if instruction.format == "VOP3_SDST":
            op.dst = scalar_destination(record.vdst.offset)
        elif instruction.format == "VOPC_SDWA_SDST" and record.sd:
            op.dst = scalar_destination(record.sdst.offset)
        else:
            op.dst = m.SCALAR + _VCC
        op.dwords[3] = 2
        return
    register = record.vdst.offset
    if name in _LANES_TO_SCALAR:
        # The field is a VGPR's in tinygrad's tables, the number a scalar register's.
        op.dst = scalar_destination(register - 256 if register >= 256 else register)
        return
    op.dst = register - 256
    op.dwords[3] = shapes["vdst"].dwords if "vdst" in shapes else 1
    if name.startswith(_ACCUMULATES):
        op.src[2] = Source(op.dst)
        op.dwords[2] = op.dwords[3]
    if "_co_u32" in name or name in ("v_div_scale_f32", "v_div_scale_f64", "v_mad_u64_u32", "v_mad_i64_i32"):
        explicit = hasattr(type(record), "sdst")
        op.scalar_dst = scalar_destination(record.sdst.offset) if explicit else m.SCALAR + _VCC
    if name in _CARRY_IN and not hasattr(type(record), "src2"):
        op.src[2] = Source(m.SCALAR + _VCC)
    if name == "v_accvgpr_mov_b32":
        lower_accvgpr(instruction, op)


def _sdwa(op: MicroOp, record: Any, shapes: Mapping[str, Form]) -> None:
    op.flags |= m.SDWA
    for i, number in ((0, "src0"), (1, "src1")):
        field = number if i == 0 else "vsrc1"
        if i == 1 and not hasattr(type(record), "vsrc1"):
            break
        shape = shapes.get(field, _B32)
        chosen = getattr(record, f"{number}_sel")
        source = op.src[i]
        source.select = chosen
        source.mods |= m.SIGN_EXTEND * getattr(record, f"{number}_sext")
        _signs(source, record, number, shape)
        demand(shape.bits <= 32, "SDWA of a 64-bit operand")
    if hasattr(type(record), "dst_sel"):
        op.destination_select, op.destination_unused = record.dst_sel, record.dst_unused
    _output(op, record, shapes, op.name)


def _signs(source: Source, record: Any, number: str, shape: Form) -> None:
    """Set neg and abs of a source in SDWA and DPP forms."""
    signs = m.NEGATE * getattr(record, f"{number}_neg") | m.ABSOLUTE * getattr(record, f"{number}_abs")
    if signs:
        demand(shape.is_float, f"neg or abs of an operand of format {shape.number}")
        source.mods |= signs | (m.HALF if shape.is_half else 0)


def _dpp(op: MicroOp, record: Any, shapes: Mapping[str, Form]) -> None:
    control = record.dpp
    row_control = control <= 0xFF or 0x101 <= control <= 0x12F or 0x150 <= control <= 0x15F
    if not row_control and control not in (0x130, 0x134, 0x138, 0x13C, 0x140, 0x141, 0x142, 0x143):
        raise UnknownError(f"DPP control 0x{control:x}")
    op.flags |= m.DPP | (m.BOUND_CONTROL if record.bc else 0)
    op.control = control
    op.destination_select, op.destination_unused = record.row_mask, record.bank_mask
    op.src[0].mods |= m.PERMUTED
    _signs(op.src[0], record, "src0", shapes.get("src0", _B32))
    _signs(op.src[1], record, "src1", shapes.get("vsrc1", _B32))
    wide = any(shape.bits > 32 for shape in shapes.values())
    demand(not wide or 0x150 <= control <= 0x15F, "DPP of a 64-bit operand but by row_newbcast")

"""Lowering of memory instructions: DS, MUBUF, FLAT, GLOBAL, SCRATCH."""

from __future__ import annotations

from typing import Any

from ckpm_emulator.lowering import microop as m
from ckpm_emulator.lowering.decode import Instruction
from ckpm_emulator.lowering.operands import Form, MicroOp, Source, demand, source

_TYPED = 0x80  # core/isa/ops/format.cpp
_OFF = 0x7F  # saddr that means none
_ST64 = 64
_ROTATION = 0xC000  # offsets of ds_swizzle_b32 from here on are not patterns of quads (ISA, DS_SWIZZLE_B32)


def lower_ds(instruction: Instruction, op: MicroOp) -> None:
    """Lower LDS instructions."""
    record, name = instruction.record, instruction.name
    demand(not record.gds, "GDS")
    shapes = instruction.forms
    accumulation = m.ACCUMULATION if record.acc else 0
    if "addr" in shapes:
        op.src[0] = Source(record.addr.offset - 256)
        op.dwords[0] = 1
    for i, field in ((1, "data0"), (2, "data1")):
        if field in shapes:
            op.src[i] = Source(getattr(record, field).offset - 256 + accumulation)
            op.dwords[i] = shapes[field].dwords
    if "vdst" in shapes:
        op.dst = record.vdst.offset - 256 + accumulation
        op.dwords[3] = shapes["vdst"].dwords
        op.flags |= m.RETURN
    if name.startswith(("ds_read2", "ds_write2", "ds_wrxchg2")):
        element = 8 if name.endswith("b64") else 4
        scale = element * (_ST64 if "st64" in name else 1)
        op.offset, op.literal = record.offset0 * scale, record.offset1 * scale
    else:
        op.offset = record.offset0 | record.offset1 << 8
        demand(name != "ds_swizzle_b32" or op.offset < _ROTATION, "the rotation and FFT modes of ds_swizzle_b32")


def lower_mtbuf(instruction: Instruction, op: MicroOp) -> None:
    """Lower buffer instructions that name the format of their data in memory."""
    record = instruction.record
    _buffer(instruction, op)
    op.control = _TYPED | record.dfmt | record.nfmt << 4


def lower_mubuf(instruction: Instruction, op: MicroOp) -> None:
    """Lower buffer instructions: offsets in src[0], resource in src[1], soffset in src[2], data from or to dst on."""
    record, name = instruction.record, instruction.name
    if name in ("buffer_wbl2", "buffer_inv"):
        return
    _buffer(instruction, op)
    op.flags |= m.TO_LDS * record.lds
    demand(not (record.lds and ("_d16" in name or "_format" in name)), "a converting or d16 load to LDS")


def _buffer(instruction: Instruction, op: MicroOp) -> None:
    record, name = instruction.record, instruction.name
    op.src[0] = Source(record.vaddr.offset - 256)
    op.dwords[0] = record.offen + record.idxen
    op.src[1] = Source(m.SCALAR + record.srsrc.offset)
    op.dwords[1] = 4
    op.src[2] = source(op, record.soffset.offset, Form(32, "B32"))
    op.dwords[2] = 1
    op.dst = record.vdata.offset - 256 + (m.ACCUMULATION if record.acc else 0)
    op.dwords[3] = instruction.forms["vdata"].dwords
    op.offset = record.offset
    op.flags |= m.OFFEN * record.offen | m.IDXEN * record.idxen
    if "store" in name or "atomic" in name:
        op.flags |= m.WRITES
    op.flags |= _order(name, record)


def _order(name: str, record: Any) -> int:
    """Flags: an atomic's result, or an access past the caches of a wave or workgroup."""
    if "atomic" in name:
        return m.RETURN if record.sc0 else 0
    return m.COHERENT if record.sc0 or record.sc1 else 0


def lower_flat(instruction: Instruction, op: MicroOp) -> None:
    """Lower FLAT, GLOBAL and SCRATCH: address in src[0], scalar base in src[1], data in src[2]."""
    record, name = instruction.record, instruction.name
    shapes = instruction.forms
    accumulation = m.ACCUMULATION if record.acc else 0
    segment = instruction.format
    bits = 12 if segment == "FLAT" else 13
    op.offset = record.offset - (1 << bits) if segment != "FLAT" and record.offset >> (bits - 1) else record.offset
    op.src[0] = Source(record.addr.offset - 256)
    op.dwords[0] = 1 if segment == "SCRATCH" else 2
    if segment != "FLAT" and record.saddr.offset != _OFF:
        op.src[1] = Source(m.SCALAR + record.saddr.offset)
        op.dwords[0], op.dwords[1] = 1, 1 if segment == "SCRATCH" else 2
    if segment == "SCRATCH" and not record.sve:
        op.flags |= m.NO_ADDRESS
        op.dwords[0] = 0
    if segment == "FLAT":
        op.flags |= m.GENERIC
    if segment != "SCRATCH" and ("store" in name or "atomic" in name):
        op.flags |= m.WRITES
    if "data" in shapes:
        op.src[2] = Source(record.data.offset - 256 + accumulation)
        op.dwords[2] = shapes["data"].dwords
    if "vdst" in shapes and ("load" in name or record.sc0) and "_lds_" not in name:
        op.dst = record.vdst.offset - 256 + accumulation
        op.dwords[3] = shapes["vdst"].dwords
    op.flags |= _order(name, record)

"""Registers that an instruction reads and writes, by its encoding alone.

Registers are numbers: SGPRs (with vcc, m0, exec) from 0, VGPRs from VECTOR, AGPRs from ACCUMULATION.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ckpm_emulator.lowering.decode import Instruction, operand
from ckpm_emulator.lowering.shapes import FIRST_VECTOR, Shape

VECTOR, ACCUMULATION = FIRST_VECTOR, 512
_LAST_SCALAR = 127  # exec_hi; encodings from 128 to 255 are constants
_NO_ADDRESS = 0x7F


@dataclass(frozen=True, slots=True)
class Operand:
    """Registers in a row that a field of the encoding names."""

    field: str
    first: int
    count: int
    read: bool
    written: bool

    @property
    def registers(self) -> range:
        return range(self.first, self.first + self.count)


@dataclass(frozen=True, slots=True)
class Accesses:
    """Registers by number."""

    reads: frozenset[int]
    writes: frozenset[int]


def name_of(register: int) -> str:
    """The name of a register: s3, v3, a3, or vcc_lo and its like."""
    if register >= ACCUMULATION:
        return f"a{register - ACCUMULATION}"
    return f"v{register - VECTOR}" if register >= VECTOR else _SCALAR_NAMES.get(register, f"s{register}")


_SCALAR_NAMES = {106: "vcc_lo", 107: "vcc_hi", 124: "m0", 126: "exec_lo", 127: "exec_hi"}


def accesses(instruction: Instruction) -> Accesses:
    """The registers that are named in the encoding; implied ones (vcc, exec, m0, scc) are left out."""
    named = list(operands(instruction))
    return Accesses(
        frozenset(register for operand in named if operand.read for register in operand.registers),
        frozenset(register for operand in named if operand.written for register in operand.registers),
    )


def operands(instruction: Instruction) -> Iterator[Operand]:
    """The operands that are registers, in no particular order."""
    encoding = instruction.encoding
    for named in _register_operands(encoding.shape) if encoding.shape else ():
        first = (encoding.raw >> named.low & named.mask) * named.step + named.offset
        yield Operand(named.field, first, named.count, named.read, named.written)


@dataclass(frozen=True, slots=True)
class _Named:
    """An operand of a shape: ``count`` registers from ``step`` * its field + ``offset``."""

    field: str
    low: int
    mask: int
    step: int
    offset: int
    count: int
    read: bool
    written: bool


@functools.cache
def _register_operands(shape: Shape) -> tuple[_Named, ...]:
    record = shape.sample
    named = []
    for name, form in shape.forms.items():
        value = operand(record, name)
        if not hasattr(value, "offset") or _is_unused(shape, name, value.offset):
            continue
        first = value.offset + (_bank(shape, name) if value.offset >= VECTOR else 0)
        if name == "vdst" and shape.name.startswith(("v_readlane", "v_readfirstlane")):
            first -= VECTOR  # a scalar register in a vector register's field
        written = _is_result(shape, name)
        read = not written or (name != "vdata" and shape.name.startswith(_ALSO_READ))
        count = _count_registers(record, name, form.dwords)
        if count:
            named.append(_operand(record, name, first, count, read=read, written=written))
    if getattr(record, "sd", 0):  # a comparison in SDWA form into an SGPR pair, which the table of operands lacks
        named.append(_operand(record, "sdst", record.sdst.offset, 2, read=False, written=True))
    return tuple(named)


def _operand(record: Any, name: str, first: int, count: int, *, read: bool, written: bool) -> _Named:
    """The operand in the field ``name``, whose first register is ``first`` in this record."""
    holder = "vsrc0" if name == "src0" and hasattr(record, "vsrc0") else name
    field = dict(type(record)._fields)[holder]
    step = getattr(field.decode(1), "offset", 1) - getattr(field.decode(0), "offset", 0)
    value = record._raw >> field.lo & field.mask
    return _Named(name, field.lo, field.mask, step, first - value * step, count, read, written)


_ALSO_READ = (
    *("v_fmac", "v_mac_", "v_dot2c", "v_dot4c", "v_dot8c", "v_pk_fmac", "v_writelane", "v_smfmac", "v_swap"),
    *("v_permlane", "s_addk", "s_mulk", "s_cmov", "s_bitset", "s_atomic", "s_buffer_atomic", "v_cvt_pkaccum"),
)
_ONLY_READS = ("s_cmpk", "s_setreg_b32")  # the field where others have a destination
_MEMORY = ("FLAT", "GLOBAL")


def _is_unused(shape: Shape, field: str, encoding: int) -> bool:
    """True for constants, and for fields that this form of the instruction leaves out."""
    record = shape.sample
    if field == "saddr" and encoding == _NO_ADDRESS:
        return True
    if field == "soffset" and not getattr(record, "soffset_en", True):
        return True
    if field == "vdata" and getattr(record, "lds", False):  # the data goes to LDS
        return True
    if field == "vdst" and shape.format in _MEMORY:
        return "_lds_" in shape.name or ("atomic" in shape.name and not record.sc0)
    return _LAST_SCALAR < encoding < VECTOR


def _is_result(shape: Shape, field: str) -> bool:
    """True if an operand is written: memory instructions name data alike in both directions."""
    if field == "vdata":
        return "_load_" in shape.name or ("atomic" in shape.name and bool(shape.sample.sc0))
    if field == "sdata":
        return "load" in shape.name or "time" in shape.name or ("atomic" in shape.name and bool(shape.sample.glc))
    if shape.name.startswith(_ONLY_READS):
        return False
    return field in ("vdst", "sdst") or (field == "src0" and "_swap_" in shape.name)


def _count_registers(record: Any, field: str, count: int) -> int:
    """Number of registers of an operand; an address is shorter than the table's if a scalar base is there."""
    if field == "vaddr":
        return int(record.offen + record.idxen)
    if field == "addr" and hasattr(record, "saddr"):
        if type(record).__name__ == "SCRATCH":
            return int(record.sve)
        return 2 if record.saddr.offset == _NO_ADDRESS or type(record).__name__ == "FLAT" else 1
    return count


def _bank(shape: Shape, field: str) -> int:
    """The offset of a vector register's number if the operand lies in AGPRs."""
    record, name = shape.sample, shape.name
    step = ACCUMULATION - VECTOR
    if name.startswith("v_accvgpr"):
        from_vector = name == "v_accvgpr_write" if field == "src0" else name == "v_accvgpr_read"
        return 0 if from_vector else step
    if hasattr(record, "acc_cd"):  # MFMA: a bit for each of src0 and src1, one for both src2 and vdst
        if field.startswith("scale_") or (field == "src2" and name.startswith("v_smfmac")):
            return 0
        held = {"src0": record.acc & 1, "src1": record.acc >> 1 & 1}.get(field, record.acc_cd)
        return step * int(held)
    data = field in ("vdata", "data", "data0", "data1", "vdst")
    return step * int(record.acc) if data and hasattr(record, "acc") else 0

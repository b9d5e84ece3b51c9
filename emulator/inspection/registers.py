"""Which registers an instruction reads and writes, by its encoding alone.

Registers are numbers: SGPRs (with vcc, m0, exec) from 0, VGPRs from VECTOR, AGPRs from ACCUMULATION.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from emulator.lowering.decode import FIRST_VECTOR, Instruction, operand
from emulator.lowering.operands import forms

VECTOR, ACCUMULATION = FIRST_VECTOR, 512
_LAST_SCALAR = 127  # exec_hi; encodings from 128 to 255 are constants
_NO_ADDRESS = 0x7F


@dataclass(frozen=True, slots=True)
class Accesses:
    """Registers by number."""

    reads: frozenset[int]
    writes: frozenset[int]


def accesses(instruction: Instruction) -> Accesses:
    """The registers that are named in the encoding; implied ones (vcc, exec, m0, scc) are left out."""
    record = instruction.record
    if record is None:
        return Accesses(frozenset(), frozenset())
    reads: set[int] = set()
    writes: set[int] = set()
    for field, form in forms(record).items():
        value = operand(record, field)
        if not hasattr(value, "offset") or _is_unused(record, field, value.offset):
            continue
        first = value.offset + (_bank(instruction, field) if value.offset >= VECTOR else 0)
        if field == "vdst" and instruction.name.startswith(("v_readlane", "v_readfirstlane")):
            first -= VECTOR  # a scalar register in a vector register's field
        registers = range(first, first + _words(record, field, form.words))
        (writes if _is_result(instruction, field) else reads).update(registers)
        if field == "vdst" and instruction.name.startswith(_ACCUMULATES):
            reads.update(registers)
    if getattr(record, "sd", 0):  # a comparison in SDWA form into an SGPR pair, which the table of operands lacks
        writes.update((record.sdst.offset, record.sdst.offset + 1))
    return Accesses(frozenset(reads), frozenset(writes))


_ACCUMULATES = ("v_fmac", "v_mac_", "v_dot2c", "v_dot4c", "v_dot8c", "v_pk_fmac", "v_writelane", "v_smfmac")


def _is_unused(record: Any, field: str, encoding: int) -> bool:
    """Constants, and fields that this form of the instruction leaves out."""
    if field == "saddr" and encoding == _NO_ADDRESS:
        return True
    if field == "soffset" and not getattr(record, "soffset_en", True):
        return True
    if field == "vdata" and record.lds:  # the data goes to LDS
        return True
    return _LAST_SCALAR < encoding < VECTOR


def _is_result(instruction: Instruction, field: str) -> bool:
    """Whether an operand is written: memory instructions name data alike in both directions."""
    if field == "vdata":
        return "_load_" in instruction.name or ("atomic" in instruction.name and bool(instruction.record.sc0))
    if field == "sdata":
        return "store" not in instruction.name
    return field in ("vdst", "sdst")


def _words(record: Any, field: str, words: int) -> int:
    """How many registers an operand takes; an address is shorter than the table's if a scalar base is there."""
    if field == "vaddr":
        return int(record.offen + record.idxen)
    if field == "addr" and hasattr(record, "saddr"):
        if type(record).__name__ == "SCRATCH":
            return int(record.sve)
        return 2 if record.saddr.offset == _NO_ADDRESS or type(record).__name__ == "FLAT" else 1
    return words


def _bank(instruction: Instruction, field: str) -> int:
    """What to add to a vector register's number if the operand lies in AGPRs."""
    record, name = instruction.record, instruction.name
    step = ACCUMULATION - VECTOR
    if name.startswith("v_accvgpr"):
        from_vector = name == "v_accvgpr_write" if field == "src0" else name == "v_accvgpr_read"
        return 0 if from_vector else step
    if hasattr(record, "acc_cd"):  # MFMA: a bit for each of src0 and src1, one for both src2 and vdst
        held = {"src0": record.acc & 1, "src1": record.acc >> 1 & 1}.get(field, record.acc_cd)
        return step * int(held)
    data = field in ("vdata", "data", "data0", "data1", "vdst")
    return step * int(record.acc) if data and hasattr(record, "acc") else 0

"""Which registers an instruction reads and writes, by its encoding alone.

Registers are numbers: SGPRs (with vcc, m0, exec) from 0, VGPRs from VECTOR, AGPRs from ACCUMULATION.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from emulator.lowering.decode import Instruction
from emulator.lowering.operands import forms

VECTOR, ACCUMULATION = 256, 512
_LAST_SCALAR = 127  # exec_hi; encodings from 128 to 255 are constants
_NO_ADDRESS = 0x7F
_MEMORY = ("FLAT", "GLOBAL")


@dataclass(frozen=True, slots=True)
class Operand:
    """Registers in a row that a field of the encoding names."""

    field: str
    first: int
    words: int
    read: bool
    written: bool

    @property
    def registers(self) -> range:
        return range(self.first, self.first + self.words)


@dataclass(frozen=True, slots=True)
class Accesses:
    """Registers by number."""

    reads: frozenset[int]
    writes: frozenset[int]


def name_of(register: int) -> str:
    """s3, v3 or a3; vcc_lo and its like have names of their own."""
    if register >= ACCUMULATION:
        return f"a{register - ACCUMULATION}"
    return f"v{register - VECTOR}" if register >= VECTOR else _SCALAR_NAMES.get(register, f"s{register}")


_SCALAR_NAMES = {106: "vcc_lo", 107: "vcc_hi", 124: "m0", 126: "exec_lo", 127: "exec_hi"}


def accesses(instruction: Instruction) -> Accesses:
    """The registers that are named in the encoding; implied ones (vcc, exec, m0, scc) are left out."""
    named = list(operands(instruction))
    return Accesses(
        frozenset(register for one in named if one.read for register in one.registers),
        frozenset(register for one in named if one.written for register in one.registers),
    )


def operands(instruction: Instruction) -> Iterator[Operand]:
    """The operands that are registers, in no particular order."""
    record, name = instruction.record, instruction.name
    if record is None:
        return
    for field, form in forms(record).items():
        value = _value(record, field)
        if not hasattr(value, "offset") or _is_unused(instruction, field, value.offset):
            continue
        first = value.offset + (_bank(instruction, field) if value.offset >= VECTOR else 0)
        if field == "vdst" and name.startswith(("v_readlane", "v_readfirstlane")):
            first -= VECTOR  # a scalar register in a vector register's field
        written = _is_result(instruction, field)
        read = not written or (field != "vdata" and name.startswith(_ALSO_READ))
        words = _words(record, field, form.words)
        if words:
            yield Operand(field, first, words, read, written and name not in _ONLY_READ)


_ALSO_READ = (
    *(
        "v_fmac",
        "v_mac_",
        "v_dot2c",
        "v_dot4c",
        "v_dot8c",
        "v_pk_fmac",
        "v_writelane",
        "v_smfmac",
        "v_swap",
        "v_permlane",
    ),
    *("s_addk", "s_mulk", "s_cmpk", "s_cmov", "s_setreg_b32", "s_bitset"),
)
_ONLY_READ = frozenset(
    (
        "s_setreg_b32",
        *(f"s_cmpk_{how}_{kind}" for how in ("eq", "lg", "gt", "ge", "lt", "le") for kind in ("i32", "u32")),
    )
)


def _value(record: Any, field: str) -> Any:
    """What a field holds; SDWA and DPP forms have a marker in src0's place, and the register beside it."""
    beside = {"src0": ("vsrc0", "s0"), "vsrc1": ("vsrc1", "s1")}
    if field not in beside or not hasattr(record, "vsrc0"):
        return getattr(record, field)
    register, is_scalar = beside[field]
    vector = getattr(record, register)
    return _Scalar(vector.offset - VECTOR) if getattr(record, is_scalar, 0) else vector


@dataclass(frozen=True, slots=True)
class _Scalar:
    offset: int


def _is_unused(instruction: Instruction, field: str, encoding: int) -> bool:
    """Constants, and fields that this form of the instruction leaves out."""
    record, name = instruction.record, instruction.name
    if field == "saddr" and encoding == _NO_ADDRESS:
        return True
    if field == "soffset" and not getattr(record, "soffset_en", True):
        return True
    if field == "vdata" and record.lds:  # the data goes to LDS
        return True
    if field == "vdst" and instruction.format in _MEMORY:
        return "_lds_" in name or ("atomic" in name and not record.sc0)
    return _LAST_SCALAR < encoding < VECTOR


def _is_result(instruction: Instruction, field: str) -> bool:
    """Whether an operand is written: memory instructions name data alike in both directions."""
    if field == "vdata":
        return "_load_" in instruction.name or ("atomic" in instruction.name and bool(instruction.record.sc0))
    if field == "sdata":
        return "store" not in instruction.name
    return field in ("vdst", "sdst") or (field == "src0" and "_swap_" in instruction.name)


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

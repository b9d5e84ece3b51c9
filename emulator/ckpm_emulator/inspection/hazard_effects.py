"""Effects of an instruction that rules of hazard_rules.py name: the registers of each effect as bit masks.

Bit n stands for register n of registers.py. Implied registers (vcc, exec, m0) are included if the hardware uses them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ckpm_emulator.lowering import matrix_table
from ckpm_emulator.lowering.decode import Instruction
from ckpm_emulator.lowering.registers import VECTOR, Operand, operands

_VCC, _M0, _EXEC = 3 << 106, 1 << 124, 3 << 126
_SCALARS = (1 << VECTOR) - 1
_ANY = 1  # a hazard of two instructions whatever their registers
VMEM = ("MUBUF", "MTBUF", "FLAT", "GLOBAL", "SCRATCH")
_SALU = ("SOP1", "SOP2", "SOPK", "SOPC")
_TRANS = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_")
_USES_M0 = ("s_sendmsg", "s_ttracedata", "ds_write_addtid", "ds_read_addtid", "ds_gws", "ds_ordered", "s_movrel")
_LANES = ("v_readlane", "v_readfirstlane")
_SETREG = ("s_setreg_b32", "s_setreg_imm32_b32")
_CARRY_IN = ("v_addc_co", "v_subb_co", "v_subbrev_co")
_SELECTS_BYTE = re.compile(r"v_cvt_(scalef32_)?sr_[fb][pf]8_|v_cvt_scalef32_pk_fp4_")  # of the result, by op_sel
_ANY_BYTE = "v_cvt_scalef32_sr_pk_fp4_"  # a part, also if it is the first
_WHOLE = 6  # dst_sel of SDWA: the whole register


@dataclass(frozen=True, slots=True)
class Effects:
    """Masks by effect, for the instruction as the first and as the later one, without masks of 0."""

    first: Mapping[str, int]
    then: Mapping[str, int]
    scalars: int = 0  # that a scalar instruction writes
    reads: int = 0
    writes: int = 0


def effects(instruction: Instruction, arch: str) -> Effects:
    """The effects of an instruction for the rules of an arch."""
    if instruction.record is None:
        return Effects({}, {})
    masks = _Masks(instruction)
    first, then = dict(masks.first_effects()), dict(masks.later_effects())
    if masks.is_mfma:
        unit = matrix_unit(instruction.name, arch)
        passes = matrix_table.passes(instruction.name, instruction.record, arch)
        first |= masks.mfma_produced(f"{unit}{passes}", waits_for_addend=unit == "xdl")
        then |= masks.mfma_consumed("xdl addend" if unit == "xdl" else "other addend")
    scalars = 0 if masks.is_valu else masks.writes & _SCALARS
    return Effects(_without_zeros(first), _without_zeros(then), scalars, masks.reads, masks.writes)


def _without_zeros(masks: Mapping[str, int]) -> dict[str, int]:
    return {word: mask for word, mask in masks.items() if mask}


def matrix_unit(name: str, arch: str) -> str:
    """The unit that executes an MFMA: xdl, sgemm (single precision since MI300) or dgemm (LLVM, isXDL)."""
    if "_f64" in name:
        return "dgemm"
    return "sgemm" if arch != "gfx90a" and name.endswith("_f32") else "xdl"


class _Masks:
    """The registers of one instruction, with the implied ones."""

    def __init__(self, instruction: Instruction) -> None:
        self.instruction = instruction
        self.name, self.format, self.record = instruction.name, instruction.format, instruction.record
        self.operands = list(operands(instruction))
        self.is_mfma = self.name in matrix_table.NAMES
        self.is_vmem = self.format in VMEM
        self.is_dma = (self.format == "MUBUF" and bool(self.record.lds)) or "_load_lds_" in self.name
        self.is_valu = self.format.startswith("V")
        self.is_memory = self.is_vmem or self.format == "DS"
        self.is_trans = _TRANS.match(self.name) is not None
        self.reads = _mask(operand for operand in self.operands if operand.read)
        self.writes = _mask(operand for operand in self.operands if operand.written) | self._implied_writes()
        self.vector_reads, self.vector_writes = self.reads & ~_SCALARS, self.writes & ~_SCALARS

    def _implied_writes(self) -> int:
        if not self.is_valu:
            return 0
        if self.name.startswith("v_cmp"):
            exec_too = _EXEC if self.name.startswith("v_cmpx") else 0
            names_vcc = self.format.startswith("VOPC") and not getattr(self.record, "sd", False)
            return exec_too | (_VCC if names_vcc else 0)
        return _VCC if "_co_u32" in self.name and not hasattr(self.record, "sdst") else 0

    def _implied_reads(self) -> int:
        short = self.format.startswith("VOP2")
        carry = short and self.name.startswith((*_CARRY_IN, "v_cndmask"))
        return _VCC if carry or self.name.startswith("v_div_fmas") else 0

    def _field(self, *fields: str) -> int:
        return _mask(operand for operand in self.operands if operand.field in fields)

    def first_effects(self) -> Iterable[tuple[str, int]]:
        yield "vectors", self.vector_writes
        if self.format.startswith(_SALU):
            yield "salu m0", self.writes & _M0
        if self.name in _SETREG:
            yield "setreg", 1 << (self.record.simm16 & 0x3F)
        if self.is_vmem and not self.is_dma:
            yield self._store()
        if not self.is_valu:
            return
        yield "valu scalars", self.writes & _SCALARS
        yield "valu vectors", self.vector_writes
        dot = self.name.startswith("v_dot")
        yield "dot result", self.vector_writes if dot else 0
        yield "legacy vectors", 0 if dot or self.is_mfma else self.vector_writes
        yield "trans result", self.vector_writes if self.is_trans else 0
        yield "part of a register", self.vector_writes if self._writes_a_part() else 0

    def _store(self) -> tuple[str, int]:
        data = [operand for operand in self.operands if operand.field in ("vdata", "data") and operand.count > 2]
        writes_memory = "store" in self.name or "atomic" in self.name
        by_scalar = self.format in ("MUBUF", "MTBUF") and any(operand.field == "soffset" for operand in self.operands)
        return "wide store by scalar offset" if by_scalar else "wide store", _mask(data) if writes_memory else 0

    def _writes_a_part(self) -> bool:
        """True if the result has to be moved within the register (LLVM, getDstSelForwardingOperand)."""
        if self.format.endswith("_SDWA"):
            return bool(getattr(self.record, "dst_sel", _WHOLE) != _WHOLE)
        if self.format != "VOP3" or self.name.startswith(("v_permlane", "v_bitop3")):
            return False
        byte = _SELECTS_BYTE.match(self.name) and self.record.opsel & 4
        return bool(self.record.opsel & 8 or byte or self.name.startswith(_ANY_BYTE))

    def later_effects(self) -> Iterable[tuple[str, int]]:
        if self.is_dma or self.name.startswith(_USES_M0) or getattr(self.record, "gds", False):
            yield "m0", _M0
        if self.is_vmem:
            yield "vmem scalars", (self.reads & _SCALARS) | (_M0 if self.is_dma else 0)
        if self.name == "s_getreg_b32":
            yield "getreg", 1 << (self.record.simm16 & 0x3F)
        if self.name in _SETREG:
            yield "setreg again", 1 << (self.record.simm16 & 0x3F)
        if self.is_memory:
            yield "memory reads", self.vector_reads
        if self.is_valu and not self.is_mfma:
            yield "valu reads", self.vector_reads
        if (self.is_memory or self.is_valu) and not self.is_mfma:
            yield "reads", self.vector_reads
            yield "writes", self.vector_writes
            yield "uses", self.vector_reads | self.vector_writes
        if self.is_valu or self.is_dma:
            yield "valu reads scalars", (self.reads & _SCALARS) | self._implied_reads()
            yield "valu reads not trans", 0 if self.is_trans else self.vector_reads
            yield "valu uses", self.vector_reads | self.vector_writes
        if self.is_valu:
            yield "valu writes", self.vector_writes
            yield from self._special()

    def _special(self) -> Iterable[tuple[str, int]]:
        if "DPP" in self.format:
            yield "dpp vectors", self.vector_reads
            yield "dpp exec", _EXEC
        if self.name.startswith("v_div_fmas"):
            yield "div_fmas vcc", _VCC
        if self.name.startswith(("v_readlane", "v_writelane")):
            yield "lane select", self._field("src1") & _SCALARS
        if self.name.startswith((*_LANES, "v_writelane")):
            yield "lane exec", _EXEC
        if self.name.startswith(_LANES):
            yield "lane source", self._field("src0") & ~_SCALARS
        if self.name.startswith("v_permlane"):
            yield "permlane vectors", self.vector_reads
            yield "permlane exec", _EXEC
        if self.name.startswith(("v_fma_f64", "v_fmac_f64")):
            yield "fma f64", _ANY
        if self.name.startswith("v_dot"):
            yield "dot factors", self._field("src0", "src1", "vsrc1") & ~_SCALARS

    def _addend(self) -> int:
        return self._field("vdst" if self.name.startswith("v_smfmac") else "src2")

    def mfma_produced(self, unit: str, *, waits_for_addend: bool) -> dict[str, int]:
        produced = {f"{unit} result": self.vector_writes, "dgemm": _ANY if unit.startswith("dgemm") else 0}
        return produced | ({f"{unit} addend": self._addend()} if waits_for_addend else {})

    def mfma_consumed(self, addend: str) -> dict[str, int]:
        factors = self._field("src0", "src1", "scale_src0", "scale_src1") | (
            self._field("src2") if self.name.startswith("v_smfmac") else 0
        )
        return {
            "mfma exec": _EXEC,
            "mfma reads": self.vector_reads,
            "mfma factors": factors & ~_SCALARS,
            addend: self._addend() & ~_SCALARS,
        }


def _mask(some: Iterable[Operand]) -> int:
    mask = 0
    for operand in some:
        mask |= ((1 << operand.count) - 1) << operand.first
    return mask

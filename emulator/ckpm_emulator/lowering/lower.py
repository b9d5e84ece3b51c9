"""Instructions to micro-ops.

An instruction that the emulator lacks becomes a ``trap`` micro-op with the reason: only a wave that gets there stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ckpm_emulator.lowering import matrix_table, opcodes
from ckpm_emulator.lowering import microop as m
from ckpm_emulator.lowering.decode import Instruction
from ckpm_emulator.lowering.matrix import lower_matrix
from ckpm_emulator.lowering.memory import lower_ds, lower_flat, lower_mtbuf, lower_mubuf
from ckpm_emulator.lowering.operands import MicroOp, UnknownError
from ckpm_emulator.lowering.scalar import lower_smem, lower_sop, lower_sopk, lower_sopp
from ckpm_emulator.lowering.vector import lower_vop, lower_vop3, lower_vop3p

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
_MATRIX = ("VOP3P_MFMA", "VOP3PX2")
_NONE: Mapping[int, str] = {}
_HAZARD = 1  # core/isa/ops/control.cpp, trap
_NOWHERE = 0xFFFFFFFC  # a pc that no jump has
_VARIANTS = ("_LIT", "_SDWA_SDST", "_SDWA", "_DPP16")


@dataclass(frozen=True, slots=True)
class Lowered:
    """A run of micro-ops as records, and the texts they refer to."""

    ops: npt.NDArray[np.void]
    texts: tuple[str, ...]


def lower_one(instruction: Instruction, arch: str = "") -> tuple[MicroOp, str]:
    """The micro-op of one instruction, and the reason if it is a trap, else ''. Branch targets stay pcs.

    ``arch`` is the target, such as gfx950; without it matrix instructions of all archs pass.
    """
    name = opcodes.micro_op_name(instruction.name)
    op = MicroOp(name)
    try:
        if instruction.record is None:
            raise UnknownError("bits that no instruction has")
        if name not in opcodes.SUPPORTED:
            raise UnknownError(f"opcode {instruction.name} ({instruction.format})")
        if why := matrix_table.refusal(instruction.name, arch) if arch else "":
            return MicroOp("trap"), f"{why}: {instruction.text}"
        if instruction.format in _MATRIX:
            lower_matrix(instruction, op, arch)
        else:
            _lower_function(instruction)(instruction, op)
    except UnknownError as unknown:
        return MicroOp("trap"), f"the emulator lacks {unknown}: {instruction.text}"
    return op, ""


def lower(instructions: Sequence[Instruction], too_early: Mapping[int, str] = _NONE, arch: str = "") -> Lowered:
    """Micro-ops of a run of instructions for an arch. A branch out of it becomes a trap, and so do those that are
    ``too_early``, by their pcs, with the reason.
    """
    index = {instruction.pc: i for i, instruction in enumerate(instructions)}
    texts: dict[str, int] = {}
    made: list[MicroOp] = []
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
        made.append(op)
    ops = _records(made)
    ops["pc"] = [instruction.pc for instruction in instructions]
    ops["text"] = [texts[instruction.text] for instruction in instructions]
    return Lowered(ops, tuple(texts))


def _by_index(instruction: Instruction, op: MicroOp) -> tuple[MicroOp, str]:
    """An instruction between s_set_gpr_idx_on and s_set_gpr_idx_off. Compilers put one v_mov_b32 there; other
    vector instructions and branches there are not followed.
    """
    if op.name == "v_mov_b32" and not op.flags:
        op.name = "v_mov_b32_indexed"
    elif instruction.format.startswith("VOP") or op.target is not None:
        return MicroOp("trap"), f"the emulator lacks {instruction.name} with indexed registers: {instruction.text}"
    return op, ""


def beside(lowered: Lowered, at: int, instruction: Instruction) -> Lowered:
    """The program with a micro-op after its end, which a probe (core/checks/probe.h) runs beside the one ``at``."""
    one = lower([instruction])
    one.ops["text"] += len(lowered.texts)
    one.ops["pc"] = _NOWHERE
    ops = np.concatenate([lowered.ops, one.ops])
    ops["other"][at] = len(lowered.ops)
    return Lowered(ops, (*lowered.texts, *one.texts))


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


def _records(made: Sequence[MicroOp]) -> npt.NDArray[np.void]:
    ops = np.zeros(len(made), m.MICRO_OP)
    hashes = {name: m.name_hash(name) for name in {op.name for op in made}}
    kinds = {name: m.KINDS.index(opcodes.kind_of(name)) for name in hashes}
    ops["handler"] = [hashes[op.name] for op in made]
    ops["kind"] = [kinds[op.name] for op in made]
    for i in range(3):
        ops["src"]["code"][:, i] = [op.src[i].code for op in made]
        ops["src"]["mods"][:, i] = [op.src[i].mods for op in made]
        ops["src"]["select"][:, i] = [op.src[i].select for op in made]
    for field in (
        *("dst", "scalar_dst", "literal", "literal_high", "offset", "flags", "control"),
        *("words", "extra", "destination_select", "destination_unused", "omod"),
    ):
        ops[field] = [getattr(op, field) for op in made]
    return ops

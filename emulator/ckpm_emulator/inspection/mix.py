"""A kernel's instructions by class, in the loop that counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ckpm_emulator.lowering.decode import Instruction
from ckpm_emulator.lowering.flow import hot_loop

# By name or format; the first that fits. What fits none is scalar arithmetic.
CLASSES = ("mfma", "lane_moves", "valu", "scratch", "vmem", "lds", "smem", "waits", "barriers", "branches", "salu")


def loop_mix(instructions: Sequence[Instruction]) -> dict[str, int]:
    """The instructions of the hot loop by CLASSES; all 0 without a loop with MFMA."""
    loop = hot_loop(instructions)
    inside = instructions[loop.first : loop.last + 1] if loop else ()
    counts = Counter(_class(instruction) for instruction in inside)
    return {name: counts[name] for name in CLASSES}


def _class(instruction: Instruction) -> str:
    name, encoding = instruction.name, instruction.format
    if name.startswith(("v_mfma", "v_smfmac")):
        return "mfma"
    if name.startswith(("v_readlane", "v_writelane")):
        return "lane_moves"
    if name == "s_waitcnt":
        return "waits"
    if name == "s_barrier":
        return "barriers"
    if name.startswith(("s_cbranch", "s_branch")):
        return "branches"
    if encoding.startswith("V"):
        return "valu"
    if encoding in ("MUBUF", "MTBUF", "GLOBAL", "FLAT"):
        return "vmem"
    return {"SCRATCH": "scratch", "DS": "lds", "SMEM": "smem"}.get(encoding, "salu")

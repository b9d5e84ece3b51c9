"""What a kernel's machine code tells without running: the mix of its hot loop, and loads used before they are back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emulator import image
from emulator.decode import Instruction, decode
from emulator.flow import hot_loop
from emulator.waits import Hazard, hazards

# In the loop, by name or format; the first that fits. What fits none is scalar arithmetic.
CLASSES = ("mfma", "lane_moves", "valu", "scratch", "vmem", "lds", "smem", "waits", "barriers", "branches", "salu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """One kernel. ``loop`` counts the instructions of its hot loop by CLASSES; all 0 if it has no loop with MFMA.

    ``lane_moves`` are v_readlane and v_writelane, by which scalar registers are spilled into vector ones.
    """

    symbol: str
    instructions: int
    unknown: int
    loop: dict[str, int]
    hazards: tuple[Hazard, ...]


def inspect(path: Path, arch: str) -> list[Inspected]:
    """The kernels for ``arch`` of a library, object, bundle or code object. Raises CodeObjectError."""
    found = []
    for target, elf in image.code_objects(path):
        if target.partition(":")[0] != arch:
            continue
        read = image.read(elf)
        for kernel in read.kernels:
            start = kernel.function.address - read.text_address
            instructions = list(decode(read.text[start : start + kernel.function.size], start))
            found.append(_inspected(kernel.name, instructions))
    return found


def as_json(found: Sequence[Inspected]) -> str:
    """By symbol: ``instructions``, ``unknown``, ``loop`` by class, ``hazards`` as text."""
    rows = {
        one.symbol: {
            "instructions": one.instructions,
            "unknown": one.unknown,
            "loop": one.loop,
            "hazards": [str(hazard) for hazard in one.hazards],
        }
        for one in found
    }
    return json.dumps(rows, indent=1)


def _inspected(symbol: str, instructions: Sequence[Instruction]) -> Inspected:
    loop = hot_loop(instructions)
    inside = instructions[loop.first : loop.last + 1] if loop else ()
    counts = Counter(_class(instruction) for instruction in inside)
    return Inspected(
        symbol=symbol,
        instructions=len(instructions),
        unknown=sum(instruction.record is None for instruction in instructions),
        loop={name: counts[name] for name in CLASSES},
        hazards=tuple(hazards(instructions)),
    )


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

"""The instructions that a file's machine code needs, and those that the emulator lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm_emulator import code_object, image
from ckpm_emulator.lowering.decode import Instruction, decode_function
from ckpm_emulator.lowering.lower import missing_instructions

_QUIET = ("encoding", "seg", "offset", "offset0", "offset1", "literal", "simm16", "imm", "op", "x2encoding")


@dataclass(frozen=True, slots=True)
class Coverage:
    """Counts over all code objects of a file: opcodes by (format, name), modifiers, and what is missing."""

    path: Path
    kernels: int
    instructions: int
    opcodes: Counter[tuple[str, str]]
    modifiers: Counter[str]
    missing: Counter[str]


def cover(path: Path) -> Coverage:
    """Decode and lower every function of the file."""
    kernels, total = 0, 0
    opcodes: Counter[tuple[str, str]] = Counter()
    modifiers: Counter[str] = Counter()
    lacking: Counter[str] = Counter()
    for _, elf in code_object.code_objects(path):
        read = image.read(elf)
        kernels += len(read.kernels)
        for function in read.functions:
            instructions = list(decode_function(read, function))
            total += len(instructions)
            opcodes.update((instruction.format, instruction.name) for instruction in instructions)
            modifiers.update(word for instruction in instructions for word in _modifiers(instruction))
            lacking.update(missing_instructions(instructions, read.arch_name))
    return Coverage(path, kernels, total, opcodes, modifiers, lacking)


def report(coverages: Sequence[Coverage], *, verbose: bool) -> str:
    """Format the counts; with ``verbose`` every opcode and modifier with its count."""
    lines = []
    for counts in coverages:
        lines.append(
            f"{counts.path}: {counts.kernels} kernels, {counts.instructions} instructions, "
            f"{len(counts.opcodes)} opcodes, "
            f"{'nothing missing' if not counts.missing else f'{len(counts.missing)} things missing'}"
        )
        if verbose:
            lines += [
                f"  {encoding:15} {name:30} {count}" for (encoding, name), count in sorted(counts.opcodes.items())
            ]
            lines += [f"  modifier {word:25} {count}" for word, count in sorted(counts.modifiers.items())]
        lines += [f"  missing: {what} ({count} times)" for what, count in counts.missing.most_common()]
    return "\n".join(lines)


def _modifiers(instruction: Instruction) -> list[str]:
    if instruction.record is None:
        return []
    modifiers = []
    for name, _ in type(instruction.record)._fields:
        value = getattr(instruction.record, name)
        if name not in _QUIET and isinstance(value, int) and not hasattr(value, "name") and value:
            modifiers.append(f"{instruction.format}.{name}={value}")
    return modifiers

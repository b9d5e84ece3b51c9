"""Programs of the emulated device for a library with one changed instruction.

Translating a code object takes seconds. So the translation is kept, and one instruction of it is replaced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ckpm_emulator import code_object, image, program_cache
from ckpm_emulator.inspection.hazards import missing_states
from ckpm_emulator.inspection.lds_waits import unfinished_writes
from ckpm_emulator.inspection.waits import hazards
from ckpm_emulator.lowering.blob import make_blob
from ckpm_emulator.lowering.decode import Instruction, decode
from ckpm_emulator.lowering.descriptor import refusal
from ckpm_emulator.lowering.lower import Lowered, lower
from tests.mutants import descriptors
from tests.mutants.drawing import Kernel
from tests.mutants.planting import Change


@dataclass(frozen=True, slots=True, eq=False)
class Code:
    """A code object: its bytes, its instructions in order, and the range of each function."""

    elf: bytes
    read: image.Image
    instructions: tuple[Instruction, ...]
    spans: dict[str, tuple[int, int]]

    @classmethod
    def of(cls, elf: bytes) -> Code:
        read = image.read(elf)
        instructions: list[Instruction] = []
        spans = {}
        for function in read.functions:
            start = function.address - read.text_address
            spans[function.name] = (len(instructions), 0)
            instructions += decode(read.text[start : start + function.size], start)
            spans[function.name] = (spans[function.name][0], len(instructions))
        return cls(elf, read, tuple(instructions), spans)

    def of_kernel(self, symbol: str) -> tuple[Instruction, ...]:
        first, last = self.spans[symbol]
        return self.instructions[first:last]

    def kernel(self, symbol: str) -> Kernel:
        descriptor = descriptors.descriptor_of(self.elf, self.info(symbol))
        return Kernel(instructions=self.of_kernel(symbol), descriptor=descriptor)

    def info(self, symbol: str) -> image.KernelInfo:
        return next(kernel for kernel in self.read.kernels if kernel.name == symbol)


class Programs:
    """The programs of a library and of its mutants."""

    def __init__(self, library: Path, arch: str) -> None:
        self.file = library.read_bytes()
        members = [elf for target, elf in code_object.code_objects(library) if target.partition(":")[0] == arch]
        self.arch = arch
        self.codes = tuple(Code.of(elf) for elf in members)
        self._lowered: dict[int, Lowered] = {}  # by the number of the code object
        self._made: dict[str, bytes] = {}
        self._built_findings: dict[str, frozenset[str]] = {}  # of the static checks, by symbol

    def kernels(self) -> dict[str, Code]:
        """The code object of each symbol."""
        return {kernel.name: code for code in self.codes for kernel in code.read.kernels}

    def build(self, elf: bytes) -> bytes:
        """The program of a code object that the device loads."""
        return self._made.get(hashlib.sha256(elf).hexdigest()) or program_cache.program(elf)

    def mutant(self, symbol: str, change: Change) -> bytes:
        """Return the library's file with the change, and keep its program for :meth:`build`."""
        code, lowered = self._code_of(symbol)
        at = code.spans[symbol][0] + change.at
        instructions = (*code.instructions[:at], change.after, *code.instructions[at + 1 :])
        return self._keep(code, _plant(code, change), _replace(lowered, at, change.after), symbol, instructions)

    def mutant_descriptor(self, symbol: str, offset: int, size: int, value: int) -> bytes:
        """Return the library's file with another word in a kernel's descriptor."""
        code, lowered = self._code_of(symbol)
        elf = descriptors.plant(code.elf, code.info(symbol), offset, size, value)
        return self._keep(code, elf, lowered, symbol, code.instructions)

    def _code_of(self, symbol: str) -> tuple[Code, Lowered]:
        code = self.kernels()[symbol]
        number = self.codes.index(code)
        if number not in self._lowered:
            self._lowered[number] = lower(code.instructions)
        return code, self._lowered[number]

    def _keep(
        self, code: Code, elf: bytes, lowered: Lowered, symbol: str, instructions: Sequence[Instruction]
    ) -> bytes:
        """Replace the code object by ``elf`` in the library's file. Only the kernel of ``symbol`` is checked again."""
        read = image.read(elf)
        refused = {
            kernel.name: reason
            for kernel in read.kernels
            if kernel.name == symbol and (reason := refusal(kernel, instructions, code.spans))
        }
        self._made = {hashlib.sha256(elf).hexdigest(): make_blob(read, lowered, code.spans, refused)}
        return self.file.replace(code.elf, elf)

    def findings(self, symbol: str, change: Change) -> list[str]:
        """Findings of the static gate in the changed kernel that the built kernel does not have."""
        built = self.kernels()[symbol].of_kernel(symbol)
        changed = (*built[: change.at], change.after, *built[change.at + 1 :])
        if symbol not in self._built_findings:
            self._built_findings[symbol] = frozenset(_static_findings(built, self.arch))
        return sorted(set(_static_findings(changed, self.arch)) - self._built_findings[symbol])


def _static_findings(instructions: Sequence[Instruction], arch: str) -> list[str]:
    findings = (*hazards(instructions), *unfinished_writes(instructions), *missing_states(instructions, arch))
    return [str(finding) for finding in findings]


def _plant(code: Code, change: Change) -> bytes:
    start = code.elf.index(code.read.text) + change.before.pc
    new = change.after.encoding.raw.to_bytes(change.after.size, "little")
    return code.elf[:start] + new + code.elf[start + len(new) :]


def _replace(lowered: Lowered, at: int, instruction: Instruction) -> Lowered:
    """Return the program with another micro-op at index ``at``. Its text follows the other texts."""
    replacement = lower([instruction])
    ops = lowered.ops.copy()
    ops[at] = replacement.ops[0]
    ops[at]["text"] += len(lowered.texts)
    return Lowered(np.ascontiguousarray(ops), (*lowered.texts, *replacement.texts))

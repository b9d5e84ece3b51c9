"""Translation of a code object to a program for the core: read, decode, lower. program_cache.py keeps the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ckpm_emulator import image
from ckpm_emulator.lowering.blob import make_blob
from ckpm_emulator.lowering.decode import Instruction, decode
from ckpm_emulator.lowering.descriptor import refusal
from ckpm_emulator.lowering.lower import lower

# instructions of a function that must not run, by pc, and why
Judge = Callable[[Sequence[Instruction], image.Image], Mapping[int, str]]


def translate(code_object: bytes, judge: Judge | None = None) -> bytes:
    """The program of a code object, in the layout of core/run/blob.h. Raises CodeObjectError.

    Instructions that ``judge`` returns stop the wave that gets there.
    """
    read = image.read(code_object)
    instructions: list[Instruction] = []
    spans: dict[str, tuple[int, int]] = {}
    end = 0
    for function in read.functions:
        start = function.address - read.text_address
        # Two names of one function, or an alias into it.
        if start < end:
            first = next((i for i, one in enumerate(instructions) if one.pc == start), None)
            if first is not None:
                spans[function.name] = (first, len(instructions))
            continue
        end = start + function.size
        first = len(instructions)
        instructions += decode(read.text[start:end], start)
        spans[function.name] = (first, len(instructions))
    judged = {kernel.name: refusal(kernel, instructions, spans) for kernel in read.kernels}
    refused = {name: reason for name, reason in judged.items() if reason}
    bad: dict[int, str] = {}
    if judge:
        for first, last in set(spans.values()):
            bad |= judge(instructions[first:last], read)
    return make_blob(read, lower(instructions, bad, read.arch_name), spans, refused)

"""A code object to a program for the core: read, decode, lower. See program_cache.py, which keeps the result."""

from __future__ import annotations

from emulator import image
from emulator.lowering.blob import make_blob
from emulator.lowering.decode import Instruction, decode
from emulator.lowering.descriptor import refusal
from emulator.lowering.lower import lower


def translate(code_object: bytes) -> bytes:
    """The program of a code object, in the layout of core/run/blob.h. Raises CodeObjectError."""
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
    return make_blob(read, lower(instructions), spans, refused)

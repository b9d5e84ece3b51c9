"""Translation of a code object to a program for the core: read, decode, lower. program_cache.py keeps the result.

Of a large code object the first blob has the image alone. Each function follows in a blob of its own, with what it
reaches, when it is first launched or called by its address.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ckpm_emulator import image
from ckpm_emulator.code_object import Function
from ckpm_emulator.errors import CodeObjectError
from ckpm_emulator.lowering.blob import make_blob
from ckpm_emulator.lowering.decode import Instruction, decode_function
from ckpm_emulator.lowering.descriptor import refusal, taken_pcs
from ckpm_emulator.lowering.flow import target
from ckpm_emulator.lowering.lower import lower

# instructions of a function that must not run, by pc, and why
Judge = Callable[[Sequence[Instruction], image.Image], Mapping[int, str]]

LARGE = 1 << 20  # bytes of machine code, which take about four seconds


def translate(code_object: bytes, judge: Judge | None = None, function: int | None = None) -> bytes:
    """The program of a code object, in the layout of core/run/blob.h.

    The program of a large code object has no instructions. With ``function``, a virtual address, the blob has the
    function there and the functions that it reaches. Instructions that ``judge`` returns stop the wave that gets there.

    Raises CodeObjectError: no readable code object, or no function at the address.
    """
    read = image.read(code_object)
    if function is None:
        return _blob(read, () if len(read.text) > LARGE else read.functions, judge)
    chosen = _closure(read, function)
    names = {function.name for function in chosen}
    kernels = tuple(kernel for kernel in read.kernels if kernel.function.name in names)
    part = replace(read, kernels=kernels, segments=(), variables=(), relocations=(), formats=())
    return _blob(part, chosen, judge)


def _blob(read: image.Image, functions: Sequence[Function], judge: Judge | None) -> bytes:
    instructions: list[Instruction] = []
    spans: dict[str, tuple[int, int]] = {}
    end = 0
    for function in functions:
        start = function.address - read.text_address
        # Two names of one function, or an alias into it.
        if start < end:
            first = next((i for i, instruction in enumerate(instructions) if instruction.pc == start), None)
            if first is not None:
                spans[function.name] = (first, len(instructions))
            continue
        end = start + function.size
        first = len(instructions)
        instructions += decode_function(read, function)
        spans[function.name] = (first, len(instructions))
    decoded = [kernel for kernel in read.kernels if kernel.function.name in spans]
    judged = {kernel.name: refusal(kernel, instructions, spans) for kernel in decoded}
    refused = {name: reason for name, reason in judged.items() if reason}
    bad: dict[int, str] = {}
    if judge:
        for first, last in set(spans.values()):
            bad |= judge(instructions[first:last], read)
    return make_blob(read, lower(instructions, bad, read.arch_name), spans, refused)


def _closure(read: image.Image, address: int) -> tuple[Function, ...]:
    """The functions around an address, and the functions that their branches and calls reach, by address.

    Calls by an address in memory are not followed: the core requests such a function when a wave gets there.
    """
    starts = [function.address for function in read.functions]
    reached: set[int] = set()
    queue = [address - read.text_address]
    while queue:
        pc = queue.pop()
        around = _around(read.functions, starts, pc + read.text_address) - reached
        reached |= around
        for at in around:
            instructions = list(decode_function(read, read.functions[at]))
            targets = (target(instruction) for instruction in instructions)
            queue += [address for address in (*targets, *taken_pcs(instructions)) if address is not None]
    if not reached:
        raise CodeObjectError(f"code object: no function at address 0x{address:x}")
    return tuple(read.functions[at] for at in sorted(reached))


def _around(functions: Sequence[Function], starts: Sequence[int], address: int) -> set[int]:
    """The last function that begins at or before an address, if it reaches there, and others that begin with it."""
    last = bisect_right(starts, address) - 1
    if last < 0 or address >= starts[last] + functions[last].size:
        return set()
    return {at for at in range(max(0, last - 8), last + 1) if starts[at] == starts[last]}

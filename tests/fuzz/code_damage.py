"""Damage of one part of a code object: headers, notes, symbols, descriptors or instructions.

Random bytes of a whole file hardly ever hit a descriptor of 64 bytes. Here the part is chosen first, and the
description of a change begins with it, so that inputs are counted by part.
"""

from __future__ import annotations

import ctypes
import io
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from elftools.elf.elffile import ELFFile

from ckpm.base.bounded import BoundsError, read_bytes
from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.entry import exit_code
from ckpm_emulator.errors import InputError

_DESCRIPTOR_BYTES = 64  # LLVM's guide, "Kernel Descriptor"
_EXTREMES = (0, 1, 0x7F, 0x80, 0xFF)
Range = tuple[int, int]


def parts(data: bytes) -> Mapping[str, list[Range]]:
    """The ranges of a valid code object's file by the part that they belong to."""
    elf = ELFFile(io.BytesIO(data))
    tables = {
        "program headers": ("e_phoff", "e_phentsize", "e_phnum"),
        "sections": ("e_shoff", "e_shentsize", "e_shnum"),
    }
    ranges = {"header": [(0, elf["e_ehsize"])]}
    for name, (offset, size, count) in tables.items():
        ranges[name] = [(elf[offset], elf[offset] + elf[size] * elf[count])]
    by_section = {".note": "notes", ".dynsym": "symbols", ".dynamic": "symbols", ".dynstr": "symbols", ".text": "code"}
    for section in elf.iter_sections():
        if part := by_section.get(section.name):
            start = section["sh_offset"]
            ranges.setdefault(part, []).append((start, start + section["sh_size"]))
    rodata = elf.get_section_by_name(".rodata")
    for symbol in elf.get_section_by_name(".dynsym").iter_symbols():
        if symbol.name.endswith(".kd"):
            start = symbol["st_value"] - rodata["sh_addr"] + rodata["sh_offset"]
            ranges.setdefault("descriptors", []).append((start, start + _DESCRIPTOR_BYTES))
    return ranges


def damage_of(part: str) -> Callable[[bytes, random.Random], bytes]:
    """A change of hostile.py that damages a part."""

    def change(data: bytes, numbers: random.Random) -> bytes:
        try:
            start, end = numbers.choice(parts(data)[part])
        except Exception:  # an earlier change left no code object
            start, end = 0, max(1, len(data))
        damaged = bytearray(data or bytes(1))
        for _ in range(numbers.choice((1, 1, 2, 4))):
            at = min(numbers.randrange(start, max(start + 1, end)), len(damaged) - 1)
            flipped = damaged[at] ^ 1 << numbers.randrange(8)
            damaged[at] = numbers.choice((flipped, flipped, numbers.choice(_EXTREMES), numbers.randrange(256)))
        return bytes(damaged)

    change.__name__ = part.replace(" ", "-")
    return change


PARTS = ("header", "program headers", "sections", "notes", "symbols", "descriptors", "code")
CODE = tuple(damage_of(part) for part in PARTS)


def launch(argv: list[str]) -> int:
    """Load the code object of a file on the emulated device, and launch its two kernels; an exit code."""
    return exit_code(lambda: _launch(Path(argv[0])))


def _bytes_of(file: Path) -> bytes:
    try:
        return read_bytes(file)
    except BoundsError as error:
        raise InputError(f"{file}: {error}") from error


def _launch(file: Path) -> int:
    device = EmulatedGpu("gfx950", cu_count=1, threads=1, max_instructions=100_000)
    device.reset()
    module = device.load_module(_bytes_of(file))
    buffer = device.malloc(256)
    pointer, count = ctypes.c_void_p(buffer.address), ctypes.c_int(4)
    module.launch("one", (1,), (64,), (pointer,))
    module.launch("two", (1,), (64,), (pointer, count))
    device.synchronize()
    return 0


if __name__ == "__main__":
    sys.exit(launch(sys.argv[1:]))

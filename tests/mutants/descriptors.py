"""Defects in a kernel's descriptor: what it asks the hardware for is less than the code uses, or lies elsewhere.

Fields: LLVM, "User Guide for AMDGPU Backend", kernel descriptor, compute_pgm_rsrc1 to 3. More than is needed does no
harm, and is not planted but for user SGPRs, behind which the workgroup's ids stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO

from elftools.elf.elffile import ELFFile

from emulator.image import KernelInfo

KIND = "descriptor"


@dataclass(frozen=True, slots=True)
class _Field:
    """``bits`` from bit ``low`` of the word of ``size`` bytes at ``offset`` in the descriptor."""

    name: str
    offset: int
    size: int
    low: int
    bits: int
    others: Callable[[int], Sequence[int]]


def _fewer(value: int) -> Sequence[int]:
    return (value - 1, value // 2) if value > 1 else (0,) if value else ()


def _fewer_pairs(value: int) -> Sequence[int]:
    """SGPRs: two granules of 8 are given at a time."""
    return (value - 2, value // 2) if value > 2 else ()


def _less_memory(value: int) -> Sequence[int]:
    return (value // 2, 0) if value else ()


def _off(value: int) -> Sequence[int]:
    return (0,) if value else ()


RSRC3, RSRC1, _RSRC2, _PROPERTIES = 44, 48, 52, 56
_FIELDS = (
    _Field("LDS bytes", 0, 4, 0, 32, _less_memory),
    _Field("scratch bytes", 4, 4, 0, 32, _less_memory),
    _Field("eights of vector registers", RSRC1, 4, 0, 6, _fewer),
    _Field("eights of scalar registers", RSRC1, 4, 6, 4, _fewer_pairs),
    _Field("fours before the accumulation registers", RSRC3, 4, 0, 6, _fewer),
    _Field("scratch", _RSRC2, 4, 0, 1, _off),
    _Field("user SGPRs", _RSRC2, 4, 1, 5, lambda value: (value - 1, value + 1)),
    _Field("workgroup's x", _RSRC2, 4, 7, 1, _off),
    _Field("workgroup's y", _RSRC2, 4, 8, 1, _off),
    _Field("workgroup's z", _RSRC2, 4, 9, 1, _off),
    *(
        _Field(name, _PROPERTIES, 2, bit, 1, _off)
        for bit, name in enumerate(("scratch's buffer", "dispatch packet", "queue", "arguments", "dispatch's id"))
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """The word at ``offset`` of a descriptor is another. ``text`` is for people."""

    offset: int
    size: int
    value: int
    text: str


def changes(descriptor: bytes) -> Iterator[Word]:
    """All that may be planted in a descriptor of 64 bytes."""
    for field in _FIELDS:
        word = int.from_bytes(descriptor[field.offset : field.offset + field.size], "little")
        mask = (1 << field.bits) - 1
        value = word >> field.low & mask
        for other in dict.fromkeys(field.others(value)):
            if 0 <= other <= mask and other != value:
                yield Word(
                    offset=field.offset,
                    size=field.size,
                    value=word & ~(mask << field.low) | other << field.low,
                    text=f"{field.name} {value} -> {other}",
                )


def descriptor_of(elf: bytes, kernel: KernelInfo) -> bytes:
    place = _place(elf, kernel)
    return elf[place : place + 64]


def planted(elf: bytes, kernel: KernelInfo, offset: int, size: int, value: int) -> bytes:
    """A code object with another word in a kernel's descriptor."""
    place = _place(elf, kernel) + offset
    return elf[:place] + value.to_bytes(size, "little") + elf[place + size :]


def _place(elf: bytes, kernel: KernelInfo) -> int:
    """Where the descriptor lies in the file."""
    for segment in ELFFile(BytesIO(elf)).iter_segments():
        start = segment["p_vaddr"]
        if segment["p_type"] == "PT_LOAD" and start <= kernel.descriptor_address < start + segment["p_filesz"]:
            return int(segment["p_offset"] + kernel.descriptor_address - start)
    raise AssertionError(f"{kernel.name}: its descriptor lies in no segment")  # image.read() has found it

"""Defects in a kernel's descriptor: it requests less than the code uses.

Fields: LLVM, "User Guide for AMDGPU Backend", kernel descriptor, compute_pgm_rsrc1 to 3. A descriptor may request
more than the code needs, except for user SGPRs: the workgroup's ids follow them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO

from elftools.elf.elffile import ELFFile

from ckpm_emulator.image import KernelInfo

KIND = "descriptor"


@dataclass(frozen=True, slots=True)
class _Field:
    """Bits ``low`` to ``low + bits`` of the word of ``size`` bytes at ``offset`` in the descriptor."""

    name: str
    offset: int
    size: int
    low: int
    bits: int
    others: Callable[[int], Sequence[int]]


def _fewer(value: int) -> Sequence[int]:
    return (value - 1, value // 2) if value > 1 else (0,) if value else ()


def _fewer_pairs(value: int) -> Sequence[int]:
    """SGPRs are allocated by two granules of 8."""
    return (value - 2, value // 2) if value > 2 else ()


def _less_memory(value: int) -> Sequence[int]:
    return (value // 2, 0) if value else ()


def _off(value: int) -> Sequence[int]:
    return (0,) if value else ()


_RSRC3, _RSRC1, _RSRC2, _PROPERTIES = 44, 48, 52, 56
_ACCUM_OFFSET = _Field("fours before the accumulation registers", _RSRC3, 4, 0, 6, _fewer)
_FIELDS = (
    _Field("LDS bytes", 0, 4, 0, 32, _less_memory),
    _Field("scratch bytes", 4, 4, 0, 32, _less_memory),
    _Field("eights of vector registers", _RSRC1, 4, 0, 6, _fewer),
    _Field("eights of scalar registers", _RSRC1, 4, 6, 4, _fewer_pairs),
    _ACCUM_OFFSET,
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
    """A new value of the word at ``offset`` of a descriptor. Messages show ``text``."""

    offset: int
    size: int
    value: int
    text: str


def changes(descriptor: bytes, *, accumulates: bool) -> Iterator[Word]:
    """List the changes of a descriptor of 64 bytes.

    Without accumulation registers in the code, all registers are vector registers, wherever ACCUM_OFFSET is
    (ckpm_emulator.lowering.descriptor).
    """
    for field in _FIELDS:
        if field is _ACCUM_OFFSET and not accumulates:
            continue
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
    start = _file_offset(elf, kernel)
    return elf[start : start + 64]


def plant(elf: bytes, kernel: KernelInfo, offset: int, size: int, value: int) -> bytes:
    """Return a code object with another word in a kernel's descriptor."""
    start = _file_offset(elf, kernel) + offset
    return elf[:start] + value.to_bytes(size, "little") + elf[start + size :]


def _file_offset(elf: bytes, kernel: KernelInfo) -> int:
    for segment in ELFFile(BytesIO(elf)).iter_segments():
        start = segment["p_vaddr"]
        if segment["p_type"] == "PT_LOAD" and start <= kernel.descriptor_address < start + segment["p_filesz"]:
            return int(segment["p_offset"] + kernel.descriptor_address - start)
    raise AssertionError(f"{kernel.name}: no segment contains its descriptor")  # image.read() has found it

"""The parts of a code object that a launch needs: segments, relocations, and each kernel's descriptor and arguments.

Source: LLVM's "User Guide for AMDGPU Backend" (kernel descriptor, metadata of code objects V3 to V6).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

from ckpm_emulator import code_object
from ckpm_emulator.code_object import CodeObject, Function
from ckpm_emulator.errors import CodeObjectError
from ckpm_emulator.options import ARCHS
from ckpm_emulator.source_lines import source_lines

_RELATIVE64, _ABS64 = 13, 3  # R_AMDGPU_RELATIVE64, R_AMDGPU_ABS64
_DESCRIPTOR = struct.Struct("<3I4xq20x3I2H4x")  # LLVM's guide, "Kernel Descriptor"

_STATED = (".kernarg_segment_size", ".group_segment_fixed_size", ".vgpr_count", ".sgpr_count", ".wavefront_size")

# Same order as enum HiddenKind in core/run/program.h. Kinds that no kernel of ours reads are zero.
HIDDEN_KINDS = (
    *("block_count_x", "block_count_y", "block_count_z", "group_size_x", "group_size_y", "group_size_z"),
    *("remainder_x", "remainder_y", "remainder_z", "global_offset_x", "global_offset_y", "global_offset_z"),
    "multigrid_sync_arg",
    *("grid_dims", "dynamic_lds_size", "private_base", "shared_base", "queue_ptr", "hostcall_buffer"),
    *("heap_v1", "printf_buffer", "none"),
)

# The device library's functions that the core can answer itself (core/host/device_heap.h).
_ALLOCATOR = ("__ockl_dm_alloc", "__ockl_dm_dealloc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A range of the loaded image."""

    address: int
    data: bytes
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A global in device memory, or a function of the allocator."""

    name: str
    address: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelInfo:
    """A kernel: descriptor, and its arguments by (offset, bytes) and (kind, offset, bytes)."""

    name: str
    function: Function
    descriptor_address: int
    entry_address: int  # by the descriptor
    stated: Mapping[str, int]  # by the metadata: sizes and counts that the descriptor has, too
    descriptor_kernarg_bytes: int  # 0: it does not say
    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    preload: int
    max_workgroup: int
    arguments: tuple[tuple[int, int], ...]
    hidden: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A code object, taken apart. Addresses are virtual: relative to where the image is loaded."""

    arch: int
    target: str
    text_address: int
    text: bytes
    segments: tuple[Segment, ...]
    functions: tuple[Function, ...]
    kernels: tuple[KernelInfo, ...]
    variables: tuple[Variable, ...]
    relocations: tuple[tuple[int, int], ...]  # (address, addend): *(base + address) = base + addend
    formats: tuple[tuple[str, int], ...] = ()  # of prints into a buffer: (format, hash)
    lines: tuple[tuple[int, str], ...] = ()  # of the source: (pc in .text, file and line from there on)

    @property
    def arch_name(self) -> str:
        """The arch's name, such as gfx950."""
        return next(name for name, number in ARCHS.items() if number == self.arch)


def read(elf_bytes: bytes) -> Image:
    """Take a code object apart. Raises CodeObjectError if it is truncated, stripped or for an unknown arch."""
    code = code_object.read(elf_bytes)
    if code.arch not in ARCHS:
        raise CodeObjectError(f"code object: it is for '{code.target}'. Emulated archs: {', '.join(ARCHS)}.")
    with code_object.damage("code object"):
        text = code.elf.get_section_by_name(".text")
        segments = tuple(
            Segment(address=segment["p_vaddr"], data=segment.data(), memory_bytes=segment["p_memsz"])
            for segment in code.elf.iter_segments()
            if segment["p_type"] == "PT_LOAD"
        )
        relocations = tuple(_relocations(code.elf))
    if text is None:
        raise CodeObjectError("code object: no section .text")
    _check_places(code, text["sh_addr"], text["sh_size"])
    return Image(
        arch=ARCHS[code.arch],
        target=code.target,
        text_address=text["sh_addr"],
        text=code_object.content(text),
        segments=segments,
        functions=tuple(sorted(code.functions.values(), key=lambda function: function.address)),
        kernels=tuple(_kernel(entry, code, segments) for entry in code.kernels),
        variables=tuple(
            Variable(name=name, address=entry["st_value"], size=entry["st_size"])
            for name, entry in code.symbols.items()
            if (entry["st_info"]["type"] == "STT_OBJECT" and not name.endswith(".kd")) or name in _ALLOCATOR
        ),
        relocations=relocations,
        formats=tuple(_formats(code)),
        lines=source_lines(code.elf, text["sh_addr"], text["sh_size"]),
    )


def _formats(code: CodeObject) -> Iterator[tuple[str, int]]:
    """The formats of prints into a buffer, with their hashes.

    An entry is ``0:0:<16 hexadecimal digits>,<format>`` (clang's -mprintf-kind=buffered); OpenCL's entries
    have no comma after a hash, and no launch of HIP needs them.
    """
    for entry in code.metadata.get("amdhsa.printf", []):
        number, comma, text = str(entry).removeprefix("0:0:").partition(",")
        if comma and re.fullmatch("[0-9a-fA-F]{1,16}", number):
            yield text, int(number, 16)


def _check_places(code: CodeObject, start: int, size: int) -> None:
    """Check that functions lie in .text, where their instructions are read."""
    for function in code.functions.values():
        if not start <= function.address <= function.address + function.size <= start + size:
            raise CodeObjectError(f"code object: damaged: function '{function.name}' lies outside of .text")


def _kernel(entry: Mapping[str, Any], owner: CodeObject, segments: tuple[Segment, ...]) -> KernelInfo:
    for field in (".name", ".symbol"):
        if field not in entry:
            raise CodeObjectError(f"code object: a kernel's metadata has no field {field}")
    name, symbol = str(entry[".name"]), str(entry[".symbol"])
    if symbol not in owner.symbols or name not in owner.functions:
        raise CodeObjectError(f"code object: kernel {name} has no descriptor or no code: was it stripped?")
    address = owner.symbols[symbol]["st_value"]
    holder = next((s for s in segments if s.address <= address and address + 64 <= s.address + len(s.data)), None)
    if holder is None:
        raise CodeObjectError(f"code object: the descriptor of kernel {name} lies in no segment")
    descriptor = _DESCRIPTOR.unpack_from(holder.data, address - holder.address)
    lds, scratch, kernarg, entry_offset, rsrc3, rsrc1, rsrc2, properties, preload = descriptor
    arguments, hidden = [], []
    for argument in entry.get(".args", []):
        if not {".value_kind", ".offset", ".size"} <= argument.keys():
            raise CodeObjectError(f"code object: kernel {name}: an argument's metadata lacks kind, offset or size")
        kind, offset, size = argument[".value_kind"], int(argument[".offset"]), int(argument[".size"])
        if kind.startswith("hidden_"):
            short = kind.removeprefix("hidden_")
            number = HIDDEN_KINDS.index(short if short in HIDDEN_KINDS else "none")
            hidden.append((number, offset, size))
        else:
            arguments.append((offset, size))
    return KernelInfo(
        name=name,
        function=owner.functions[name],
        descriptor_address=address,
        entry_address=address + entry_offset,
        stated={name: int(entry[name]) for name in _STATED if name in entry},
        descriptor_kernarg_bytes=kernarg,
        lds_bytes=lds,
        scratch_bytes=scratch,
        kernarg_bytes=max(kernarg, int(entry.get(".kernarg_segment_size", 0))),
        rsrc1=rsrc1,
        rsrc2=rsrc2,
        rsrc3=rsrc3,
        properties=properties,
        preload=preload,
        max_workgroup=int(entry.get(".max_flat_workgroup_size", 1024)),
        arguments=tuple(arguments),
        hidden=tuple(hidden),
    )


def _relocations(elf: ELFFile) -> Iterator[tuple[int, int]]:
    for section in elf.iter_sections():
        if not isinstance(section, RelocationSection) or section.name == ".rela.debug":
            continue
        table = elf.get_section(section["sh_link"])
        for relocation in section.iter_relocations():
            kind, addend = relocation["r_info_type"], relocation["r_addend"]
            if kind == _RELATIVE64:
                yield relocation["r_offset"], addend
            elif kind == _ABS64:
                symbol = table.get_symbol(relocation["r_info_sym"])
                if symbol["st_shndx"] == "SHN_UNDEF":
                    raise CodeObjectError(f"code object: undefined symbol '{symbol.name}'")
                yield relocation["r_offset"], symbol["st_value"] + addend
            else:
                raise CodeObjectError(f"code object: relocation of unknown type {kind}")

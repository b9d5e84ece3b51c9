"""Code objects: AMDGPU ELF files, and what a launch needs of them.

Sources: LLVM's "User Guide for AMDGPU Backend" (ELF code object, kernel descriptor, metadata of code objects V3 to
V6) and clang's offload bundle format.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import NoteSection, SymbolTableSection

from emulator.errors import CodeObjectError
from emulator.options import ARCHS

_BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_METADATA_NOTE = 32  # NT_AMDGPU_METADATA
_RELATIVE64, _ABS64 = 13, 3  # R_AMDGPU_RELATIVE64, R_AMDGPU_ABS64
_DESCRIPTOR = struct.Struct("<3I4xq20x3I2H4x")


# Same order as enum HiddenKind in core/run/program.h. Kinds that no kernel of ours reads are zero.
HIDDEN_KINDS = (
    *("block_count_x", "block_count_y", "block_count_z", "group_size_x", "group_size_y", "group_size_z"),
    *("remainder_x", "remainder_y", "remainder_z", "global_offset_x", "global_offset_y", "global_offset_z"),
    *("grid_dims", "dynamic_lds_size", "private_base", "shared_base", "queue_ptr", "none"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A range of the loaded image."""

    address: int
    data: bytes
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """Machine code of one function: a range of virtual addresses in .text."""

    name: str
    address: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A global in device memory."""

    name: str
    address: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelInfo:
    """A kernel: descriptor, and its arguments by (offset, bytes) and (kind, offset, bytes)."""

    name: str
    function: Function
    descriptor_address: int
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


def code_objects(path: Path) -> list[tuple[str, bytes]]:
    """(target, ELF) of every device code object in a host object, a library, an offload bundle or a bare ELF.

    Raises CodeObjectError if the file can't be read or holds no GPU code.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CodeObjectError(f"{path}: can't be read ({error.strerror})") from error
    if data.startswith(_BUNDLE_MAGIC):
        return list(_bundled(data, str(path)))
    elf = _open(data, str(path))
    if elf["e_machine"] == "EM_AMDGPU":
        return [(_target(_metadata(elf, str(path))), data)]
    section = elf.get_section_by_name(".hip_fatbin")
    found = list(_bundled(section.data(), str(path))) if section is not None else []
    if not found:
        raise CodeObjectError(f"{path}: holds no GPU code (no section .hip_fatbin with code objects)")
    return found


def read(elf_bytes: bytes) -> Image:
    """Take a code object apart. Raises CodeObjectError if it is truncated, stripped or for an unknown arch."""
    where = "code object"
    elf = _open(elf_bytes, where)
    if elf["e_machine"] != "EM_AMDGPU":
        raise CodeObjectError(f"{where}: it is for {elf['e_machine']}, not AMDGPU")
    metadata = _metadata(elf, where)
    target = _target(metadata)
    arch = target.partition(":")[0]
    if arch not in ARCHS:
        raise CodeObjectError(f"{where}: it is for '{target}'. Emulated archs: {', '.join(ARCHS)}.")
    text = elf.get_section_by_name(".text")
    if text is None:
        raise CodeObjectError(f"{where}: no section .text")
    symbols = _symbols(elf)
    functions = {
        name: Function(name=name, address=entry["st_value"], size=entry["st_size"])
        for name, entry in symbols.items()
        if entry["st_info"]["type"] == "STT_FUNC" and entry["st_size"] > 0
    }
    segments = tuple(
        Segment(address=segment["p_vaddr"], data=segment.data(), memory_bytes=segment["p_memsz"])
        for segment in elf.iter_segments()
        if segment["p_type"] == "PT_LOAD"
    )
    return Image(
        arch=ARCHS[arch],
        target=target,
        text_address=text["sh_addr"],
        text=text.data(),
        segments=segments,
        functions=tuple(sorted(functions.values(), key=lambda function: function.address)),
        kernels=tuple(_kernel(entry, symbols, functions, segments) for entry in metadata.get("amdhsa.kernels", [])),
        variables=tuple(
            Variable(name=name, address=entry["st_value"], size=entry["st_size"])
            for name, entry in symbols.items()
            if entry["st_info"]["type"] == "STT_OBJECT" and not name.endswith(".kd")
        ),
        relocations=tuple(_relocations(elf)),
    )


def _open(data: bytes, where: str) -> ELFFile:
    try:
        elf = ELFFile(io.BytesIO(data))
        end = elf["e_shoff"] + elf["e_shnum"] * elf["e_shentsize"]
        if end <= len(data):
            sections = (s for s in elf.iter_sections() if s["sh_type"] != "SHT_NOBITS")
            end = max([end, *(s["sh_offset"] + s["sh_size"] for s in sections)])
    except (ELFError, UnicodeDecodeError, struct.error) as error:
        raise CodeObjectError(f"{where}: no readable ELF file ({error})") from error
    if end > len(data):
        raise CodeObjectError(f"{where}: truncated: {end} bytes are needed, {len(data)} are there")
    return elf


def _bundled(section: bytes, where: str) -> Iterator[tuple[str, bytes]]:
    """Device entries of every bundle in a section: magic, count, then (offset, size, triple size, triple) each."""
    at = section.find(_BUNDLE_MAGIC)
    while at >= 0:
        try:
            entries = list(_bundle_entries(section, at))
        except (struct.error, UnicodeDecodeError) as error:
            raise CodeObjectError(f"{where}: damaged offload bundle ({error})") from error
        for triple, start, end in entries:
            if triple.startswith("hip") and end > start:
                if end > len(section):
                    raise CodeObjectError(f"{where}: truncated: the bundle entry '{triple}' ends behind the file")
                yield triple.partition("--")[2], section[start:end]
        at = section.find(_BUNDLE_MAGIC, max([at + 1, *(end for _, _, end in entries)]))


def _bundle_entries(section: bytes, at: int) -> Iterator[tuple[str, int, int]]:
    """(triple, start, end) in the section of every entry of the bundle at ``at``."""
    cursor = at + len(_BUNDLE_MAGIC)
    (count,) = struct.unpack_from("<Q", section, cursor)
    cursor += 8
    for _ in range(count):
        offset, size, length = struct.unpack_from("<3Q", section, cursor)
        yield section[cursor + 24 : cursor + 24 + length].decode(), at + offset, at + offset + size
        cursor += 24 + length


def _metadata(elf: ELFFile, where: str) -> dict[str, Any]:
    sections = (section for section in elf.iter_sections() if isinstance(section, NoteSection))
    for note in (note for section in sections for note in section.iter_notes()):
        if note["n_name"] == "AMDGPU" and note["n_type"] in (_METADATA_NOTE, "NT_AMDGPU_METADATA"):
            try:
                return dict(msgpack.unpackb(note["n_descdata"]))
            except ValueError as error:
                raise CodeObjectError(f"{where}: metadata note is no MessagePack ({error})") from error
    raise CodeObjectError(f"{where}: no AMDGPU metadata note: was it stripped?")


def _target(metadata: dict[str, Any]) -> str:
    return str(metadata.get("amdhsa.target", "")).partition("--")[2]


def _symbols(elf: ELFFile) -> dict[str, Any]:
    """Defined symbols by name: of .dynsym, and of .symtab where it was not stripped (local functions)."""
    return {
        symbol.name: symbol
        for section in elf.iter_sections()
        if isinstance(section, SymbolTableSection)
        for symbol in section.iter_symbols()
        if symbol.name and symbol["st_shndx"] != "SHN_UNDEF"
    }


def _kernel(
    entry: dict[str, Any], symbols: dict[str, Any], functions: dict[str, Function], segments: tuple[Segment, ...]
) -> KernelInfo:
    name, symbol = str(entry[".name"]), str(entry[".symbol"])
    if symbol not in symbols or name not in functions:
        raise CodeObjectError(f"code object: kernel {name} has no descriptor or no code: was it stripped?")
    address = symbols[symbol]["st_value"]
    holder = next((s for s in segments if s.address <= address and address + 64 <= s.address + len(s.data)), None)
    if holder is None:
        raise CodeObjectError(f"code object: the descriptor of kernel {name} lies in no segment")
    descriptor = _DESCRIPTOR.unpack_from(holder.data, address - holder.address)
    lds, scratch, kernarg, _, rsrc3, rsrc1, rsrc2, properties, preload = descriptor
    arguments, hidden = [], []
    for argument in entry.get(".args", []):
        kind, offset, size = argument[".value_kind"], int(argument[".offset"]), int(argument[".size"])
        if kind.startswith("hidden_"):
            short = kind.removeprefix("hidden_")
            number = HIDDEN_KINDS.index(short if short in HIDDEN_KINDS else "none")
            hidden.append((number, offset, size))
        else:
            arguments.append((offset, size))
    return KernelInfo(
        name=name,
        function=functions[name],
        descriptor_address=address,
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

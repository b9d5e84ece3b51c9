"""The one reader of GPU code in files: offload bundles, AMDGPU ELF files, their metadata and their functions.

A host object or shared library holds in its section ``.hip_fatbin`` one offload bundle for each translation unit, and
each bundle one AMDGPU ELF for each arch. Sources: LLVM's "User Guide for AMDGPU Backend" (ELF code object, metadata of
code objects V3 to V6, which is MessagePack in the note NT_AMDGPU_METADATA) and clang's "Clang Offload Bundler": the
magic, a count, then for each entry the offset, the size and the length of its id, and the id; numbers are 64-bit little
endian, offsets count from the magic.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgpack
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

from emulator.errors import CodeObjectError

_BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED_MAGIC = b"CCOB"
_FAT_SECTION = ".hip_fatbin"
_METADATA_NOTE = 32  # NT_AMDGPU_METADATA
_KINDS = ("hip", "hipv4")  # of bundle entries with device code; a host entry is empty
# An entry id holds a triple and an arch; a longer one means that the bytes are no bundle.
_LONGEST_ID = 512
_MOST_ENTRIES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """Machine code of one function, at a virtual address in its section."""

    name: str
    address: int
    code: bytes

    @property
    def size(self) -> int:
        return len(self.code)


@dataclass(frozen=True, kw_only=True)
class CodeObject:
    """An AMDGPU ELF file. ``target`` is ``gfx942``, with its features ``gfx942:sramecc+:xnack-``."""

    target: str
    metadata: Mapping[str, Any]
    elf: ELFFile

    @property
    def arch(self) -> str:
        """The target without its features."""
        return self.target.partition(":")[0]

    @property
    def kernels(self) -> list[Mapping[str, Any]]:
        """The metadata of each kernel, in its order."""
        return list(self.metadata.get("amdhsa.kernels", []))

    @cached_property
    def symbols(self) -> Mapping[str, Any]:
        """Defined symbols by name: of .dynsym, and of .symtab where it was not stripped (local functions)."""
        return {
            symbol.name: symbol
            for section in self.elf.iter_sections()
            if isinstance(section, SymbolTableSection)
            for symbol in section.iter_symbols()
            if symbol.name and symbol["st_shndx"] != "SHN_UNDEF"
        }

    @cached_property
    def functions(self) -> Mapping[str, Function]:
        """The functions that have code, by name."""
        content: dict[int, tuple[int, bytes]] = {}  # of sections, by number: address and bytes
        functions = {}
        for name, symbol in self.symbols.items():
            at = symbol["st_shndx"]
            if symbol["st_info"]["type"] != "STT_FUNC" or symbol["st_size"] == 0 or not isinstance(at, int):
                continue
            if at not in content:
                section = self.elf.get_section(at)
                content[at] = section["sh_addr"], section.data()
            base, data = content[at]
            start = symbol["st_value"] - base
            functions[name] = Function(
                name=name, address=symbol["st_value"], code=bytes(data[start : start + symbol["st_size"]])
            )
        return functions


def code_objects(path: Path) -> list[tuple[str, bytes]]:
    """(target, ELF) of every device code object in a host object, a library, an offload bundle or a bare ELF, in order.

    Raises:
        CodeObjectError: the file can't be read, is no ELF, is truncated, or holds no GPU code.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CodeObjectError(f"{path}: can't be read ({error.strerror}): build it first") from error
    if data.startswith(_BUNDLE_MAGIC):
        return list(bundled(data, str(path)))
    elf = _open(data, str(path))
    if elf["e_machine"] == "EM_AMDGPU":
        return [(_target(_metadata(elf, str(path)), str(path)), data)]
    section = elf.get_section_by_name(_FAT_SECTION)
    if section is None:
        raise CodeObjectError(f"{path}: no section {_FAT_SECTION}: the file holds no GPU code; was it compiled as HIP?")
    members = list(bundled(section.data(), f"{path}: section {_FAT_SECTION}"))
    if not members:
        raise CodeObjectError(f"{path}: section {_FAT_SECTION} holds no GPU code")
    return members


def read(elf_bytes: bytes) -> CodeObject:
    """A code object. Raises CodeObjectError: no AMDGPU ELF, truncated, or its metadata is stripped."""
    elf = _open(elf_bytes, "code object")
    if elf["e_machine"] != "EM_AMDGPU":
        raise CodeObjectError(f"no AMDGPU code object: the ELF file is for {elf['e_machine']}")
    metadata = _metadata(elf, "code object")
    return CodeObject(target=_target(metadata, "code object"), metadata=metadata, elf=elf)


def bundled(section: bytes, where: str) -> Iterator[tuple[str, bytes]]:
    """(target, ELF) of the device entries of every bundle; the linker pads between bundles with zeros.

    Raises:
        CodeObjectError: bytes that are no bundle, a compressed or damaged one, an entry that ends behind the bytes.
    """
    at = 0
    while rest := section[at:].lstrip(b"\0"):
        at = len(section) - len(rest)
        entries, at = bundle(section, at, where)
        for entry, content in entries:
            kind, _, triple = entry.partition("-")
            if kind in _KINDS and content:
                yield triple.partition("--")[2], content


def bundle(data: bytes, start: int, where: str) -> tuple[list[tuple[str, bytes]], int]:
    """The entries (id, content) of the bundle at ``start`` and the offset just behind its last byte.

    Raises:
        CodeObjectError: the magic is missing, the bundle is compressed, or an entry reaches beyond the data.
    """
    if data.startswith(_COMPRESSED_MAGIC, start):
        raise CodeObjectError(f"{where}: compressed bundle at byte {start}: build it with --no-offload-compress")
    if not data.startswith(_BUNDLE_MAGIC, start):
        raise CodeObjectError(f"{where}: no offload bundle at byte {start}")
    try:
        (count,) = struct.unpack_from("<Q", data, start + len(_BUNDLE_MAGIC))
        if count > _MOST_ENTRIES:
            raise CodeObjectError(f"{where}: bundle at byte {start} claims {count} entries")
        at = start + len(_BUNDLE_MAGIC) + 8
        entries, end = [], at
        for index in range(count):
            offset, size, length = struct.unpack_from("<3Q", data, at)
            at += 24
            if length > _LONGEST_ID or at + length > len(data):
                raise CodeObjectError(f"{where}: bundle at byte {start}: the id of entry {index} is cut off")
            entry = data[at : at + length].decode("ascii", errors="replace")
            at += length
            first, last = start + offset, start + offset + size
            if last > len(data):
                raise CodeObjectError(
                    f"{where}: truncated: bundle at byte {start}: entry {entry} ends at {last}, the data at {len(data)}"
                )
            entries.append((entry, data[first:last]))
            end = max(end, at, last)
    except struct.error as error:
        raise CodeObjectError(f"{where}: truncated: bundle header cut off at byte {len(data)}") from error
    return entries, end


def _open(data: bytes, where: str) -> ELFFile:
    try:
        elf = ELFFile(io.BytesIO(data))
        end = elf["e_shoff"] + elf["e_shnum"] * elf["e_shentsize"]
        if end <= len(data):
            sections = (section for section in elf.iter_sections() if section["sh_type"] != "SHT_NOBITS")
            end = max([end, *(section["sh_offset"] + section["sh_size"] for section in sections)])
    except (ELFError, UnicodeDecodeError, struct.error) as error:
        raise CodeObjectError(f"{where}: no readable ELF file ({error})") from error
    if end > len(data):
        raise CodeObjectError(f"{where}: truncated: {end} bytes are needed, {len(data)} are there")
    return elf


def _metadata(elf: ELFFile, where: str) -> Mapping[str, Any]:
    for section in elf.iter_sections():
        if not isinstance(section, NoteSection):
            continue
        for note in section.iter_notes():
            if note["n_name"] == "AMDGPU" and note["n_type"] in (_METADATA_NOTE, "NT_AMDGPU_METADATA"):
                try:
                    unpacked = msgpack.unpackb(note["n_descdata"])
                except ValueError as error:
                    raise CodeObjectError(f"{where}: metadata note is no MessagePack ({error})") from error
                if isinstance(unpacked, dict):
                    return unpacked
    raise CodeObjectError(f"{where}: no AMDGPU metadata note: was it stripped?")


def _target(metadata: Mapping[str, Any], where: str) -> str:
    """``gfx942`` or ``gfx942:sramecc+:xnack-`` out of ``amdgcn-amd-amdhsa--gfx942``."""
    if "amdhsa.target" not in metadata:
        raise CodeObjectError(f"{where}: metadata has no field amdhsa.target")
    return str(metadata["amdhsa.target"]).partition("--")[2]

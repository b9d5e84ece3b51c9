"""Reader of GPU code in files: offload bundles, AMDGPU ELF files, their metadata and their functions.

A host object or shared library holds in its section ``.hip_fatbin`` one offload bundle for each translation unit, and
each bundle one AMDGPU ELF for each arch.

A bundle has the magic, a count, then for each entry the offset, the size and the length of its id, and the id. Numbers
are 64-bit little endian, and offsets count from the magic (clang, "Clang Offload Bundler"). The metadata of code
objects V3 to V6 is MessagePack in the note NT_AMDGPU_METADATA (LLVM, "User Guide for AMDGPU Backend").
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgpack
from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, Section, Symbol, SymbolTableSection

from ckpm_emulator.errors import CodeObjectError

_BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED_MAGIC = b"CCOB"
_FAT_SECTION = ".hip_fatbin"
_METADATA_NOTE = 32  # NT_AMDGPU_METADATA
# fields of kernels and of their arguments, by kind
_TEXTS = (".name", ".symbol", ".value_kind")
_COUNTS = (
    *(".vgpr_count", ".agpr_count", ".sgpr_count", ".vgpr_spill_count", ".sgpr_spill_count", ".offset", ".size"),
    *(".group_segment_fixed_size", ".private_segment_fixed_size", ".kernarg_segment_size"),
    *(".max_flat_workgroup_size", ".wavefront_size"),
)
_KINDS = ("hip", "hipv4")  # of bundle entries with device code; a host entry is empty
# An entry id holds a triple and an arch; a longer one means that the bytes are not a bundle.
_LONGEST_ID = 512
_MOST_ENTRIES = 1024
_LARGEST = 4 << 30  # bytes of a file: a library of all kernels for three archs has a tenth
# Of ELF64 (System V ABI, chapters 4 and 5): the offsets and sizes in the file header, a section's and a segment's.
_ELF64_LITTLE = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<32xQQIHHHHHH")
_SECTION = struct.Struct("<4xI16xQQ16xQ")
_SEGMENT = struct.Struct("<8xQ16xQ16x")
_NO_BITS = 8
_ENTRY_BYTES = {2: 24, 11: 24, 4: 24}  # by type: SYMTAB, DYNSYM, RELA
_SYMBOL = struct.Struct("<4xB19x")
_NAMED_KINDS = (1, 2)  # STT_OBJECT, STT_FUNC
_MERGED = ("amdhsa.kernels", "amdhsa.printf")
_COMPRESSED = 0x800  # SHF_COMPRESSED
# EF_AMDGPU_MACH_AMDGCN_.. of e_flags (LLVM's guide, "ELF Code Object", table of e_flags).
_ARCHS = {0x2C: "gfx900", 0x2F: "gfx906", 0x30: "gfx908", 0x3F: "gfx90a", 0x4C: "gfx942", 0x4F: "gfx950"}


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
        """Defined functions and variables by name: of .dynsym, and local ones of .symtab if it was not stripped."""
        with damage("code object"):
            return {
                symbol.name: symbol
                for section in self.elf.iter_sections()
                if isinstance(section, SymbolTableSection)
                for symbol in _functions_and_variables(section)
                if symbol.name and symbol["st_shndx"] != "SHN_UNDEF"
            }

    @cached_property
    def functions(self) -> Mapping[str, Function]:
        """The functions that have code, by name.

        Kernels written in assembly (rocBLAS's, by Tensile) may have symbols without a size: they end where the next
        function begins.
        """
        sections: dict[int, tuple[int, bytes]] = {}  # by number: address and bytes
        symbols = {
            name: symbol
            for name, symbol in self.symbols.items()
            if symbol["st_info"]["type"] == "STT_FUNC" and isinstance(symbol["st_shndx"], int)
        }
        starts = sorted({(symbol["st_shndx"], symbol["st_value"]) for symbol in symbols.values()})
        functions = {}
        for name, symbol in symbols.items():
            at = symbol["st_shndx"]
            if at not in sections:
                with damage("code object"):
                    section = self.elf.get_section(at)
                sections[at] = section["sh_addr"], content(section)
            base, data = sections[at]
            start = symbol["st_value"] - base
            end = start + symbol["st_size"]
            if symbol["st_size"] == 0:
                behind = starts[bisect_right(starts, (at, symbol["st_value"])) :][:1]
                end = behind[0][1] - base if behind and behind[0][0] == at else len(data)
            if not 0 <= start <= end <= len(data):
                raise CodeObjectError(f"code object: damaged: function '{name}' lies outside of its section")
            if end > start:
                functions[name] = Function(name=name, address=symbol["st_value"], code=data[start:end])
        return functions


def _functions_and_variables(section: SymbolTableSection) -> Iterator[Symbol]:
    """A table's symbols without its labels, which are a hundred times as many in libraries written in assembly."""
    entries = _SYMBOL.iter_unpack(section.data())
    return (section.get_symbol(at) for at, (information,) in enumerate(entries) if information & 0xF in _NAMED_KINDS)


def code_objects(path: Path) -> list[tuple[str, bytes]]:
    """Return (target, ELF) of every device code object in a host object, a library, an offload bundle or a bare ELF, in
    order.

    Raises CodeObjectError: the file can't be read, is not an ELF, is truncated, or has no GPU code.
    """
    data = _file(path)
    if data.startswith(_BUNDLE_MAGIC):
        return list(device_entries(data, str(path)))
    elf = _open(data, str(path))
    if elf["e_machine"] == "EM_AMDGPU":
        return [(_target(elf, _metadata(elf, str(path)), str(path)), data)]
    with damage(str(path)):
        section = elf.get_section_by_name(_FAT_SECTION)
    if section is None:
        raise CodeObjectError(f"{path}: no section {_FAT_SECTION}: the file holds no GPU code; was it compiled as HIP?")
    members = list(device_entries(content(section), f"{path}: section {_FAT_SECTION}"))
    if not members:
        raise CodeObjectError(f"{path}: section {_FAT_SECTION} holds no GPU code")
    return members


def _file(path: Path) -> bytes:
    """Read a plain file no larger than a library can be."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            there = os.fstat(stream.fileno())
            if stat.S_ISDIR(there.st_mode):
                raise IsADirectoryError(21, os.strerror(21))
            if not stat.S_ISREG(there.st_mode) or there.st_size > _LARGEST:
                raise CodeObjectError(f"{path}: no plain file of at most {_LARGEST >> 30} GiB: name a built library")
            return stream.read()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else error
        raise CodeObjectError(f"{path}: can't be read ({reason}): build it first") from error


def read(elf_bytes: bytes) -> CodeObject:
    """Read a code object. Raises CodeObjectError: not an AMDGPU ELF, truncated, or without metadata."""
    elf = _open(elf_bytes, "code object")
    if elf["e_machine"] != "EM_AMDGPU":
        raise CodeObjectError(f"no AMDGPU code object: the ELF file is for {elf['e_machine']}")
    metadata = _metadata(elf, "code object")
    return CodeObject(target=_target(elf, metadata, "code object"), metadata=metadata, elf=elf)


def device_entries(section: bytes, where: str) -> Iterator[tuple[str, bytes]]:
    """Return (target, ELF) of the device entries of every bundle; the linker pads between bundles with zeros."""
    at = 0
    while rest := section[at:].lstrip(b"\0"):
        at = len(section) - len(rest)
        entries, at = bundle(section, at, where)
        for entry, content in entries:
            kind, _, triple = entry.partition("-")
            if kind in _KINDS and content:
                yield _from_gfx(triple), content


def bundle(data: bytes, start: int, where: str) -> tuple[list[tuple[str, bytes]], int]:
    """Return the entries (id, content) of the bundle at ``start`` and the offset just after its last byte."""
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
    _check_tables(data, where)
    with damage(where):
        return ELFFile(io.BytesIO(data))


def _check_tables(data: bytes, where: str) -> None:
    """Check that headers, sections and segments lie in the file, and that entries have their size."""
    if len(data) < _HEADER.size or not data.startswith(_ELF64_LITTLE):
        raise CodeObjectError(f"{where}: no readable ELF file (it has no header of a 64-bit little endian one)")
    segments_at, sections_at, _, _, segment_bytes, segments, section_bytes, sections, _ = _HEADER.unpack_from(data)
    if (segments and segment_bytes != _SEGMENT.size) or (sections and section_bytes != _SECTION.size):
        raise CodeObjectError(f"{where}: no readable ELF file (its tables have entries of another size)")
    end = max(sections_at + sections * section_bytes, segments_at + segments * segment_bytes)
    if end <= len(data):
        for kind, offset, size, entry in _SECTION.iter_unpack(
            data[sections_at : sections_at + sections * section_bytes]
        ):
            end = end if kind == _NO_BITS else max(end, offset + size)
            if entry != _ENTRY_BYTES.get(kind, entry):
                raise CodeObjectError(f"{where}: no readable ELF file (a table has entries of {entry} bytes)")
        rows = _SEGMENT.iter_unpack(data[segments_at : segments_at + segments * segment_bytes])
        end = max([end, *(offset + size for offset, size in rows)])
    if end > len(data):
        raise CodeObjectError(f"{where}: truncated: {end} bytes are needed, {len(data)} are there")


@contextlib.contextmanager
def damage(where: str) -> Iterator[None]:
    """Turn the errors of pyelftools, which are of many classes for a damaged file, into CodeObjectError."""
    try:
        yield
    except (
        ELFError,
        ConstructError,
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise CodeObjectError(f"{where}: damaged: no readable ELF file ({type(error).__name__}: {error})") from error
    except struct.error as error:
        raise CodeObjectError(f"{where}: damaged: no readable ELF file ({error})") from error


def content(section: Section) -> bytes:
    """A section's bytes. A compressed section is refused, as it may hold any amount."""
    if section["sh_flags"] & _COMPRESSED:
        raise CodeObjectError(f"section {section.name} is compressed: build it without that")
    if section["sh_type"] == "SHT_NOBITS":
        raise CodeObjectError(f"section {section.name} has no content")
    return bytes(section.data())


def _metadata(elf: ELFFile, where: str) -> Mapping[str, Any]:
    """The metadata of all notes: kernels that were assembled one by one keep a note each when they are linked.

    comgr, from which ROCm's runtime has the metadata, merges the same two lists.
    """
    with damage(where):
        notes = [
            note for section in elf.iter_sections() if isinstance(section, NoteSection) for note in section.iter_notes()
        ]
    metadata: dict[str, Any] = {}
    for note in notes:
        if note["n_name"] == "AMDGPU" and note["n_type"] in (_METADATA_NOTE, "NT_AMDGPU_METADATA"):
            try:
                unpacked = msgpack.unpackb(note["n_descdata"])
            except (ValueError, TypeError, OverflowError) as error:  # TypeError: a list as the name of a member
                raise CodeObjectError(f"{where}: metadata note is not MessagePack ({error})") from error
            if isinstance(unpacked, dict):
                _check_metadata(unpacked, where)
                lists = {name: [*metadata.get(name, []), *unpacked.get(name, [])] for name in _MERGED}
                metadata = {**unpacked, **metadata, **{name: both for name, both in lists.items() if both}}
    if not metadata:
        raise CodeObjectError(f"{where}: no AMDGPU metadata note: was it stripped?")
    return metadata


def _check_metadata(metadata: Mapping[str, Any], where: str) -> None:
    """Check that the metadata's fields have the types of LLVM's guide."""
    if not isinstance(metadata.get("amdhsa.printf", []), list):
        raise CodeObjectError(f"{where}: damaged: its metadata has no list as amdhsa.printf")
    kernels = _list_of_tables(metadata, "amdhsa.kernels", where)
    for kernel in kernels:
        _check_fields(kernel, where)
        for argument in _list_of_tables(kernel, ".args", where):
            _check_fields(argument, where)


def _list_of_tables(table: Mapping[str, Any], name: str, where: str) -> list[Mapping[str, Any]]:
    listed = table.get(name, [])
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise CodeObjectError(f"{where}: damaged: its metadata has no list of tables as {name}")
    return listed


def _check_fields(table: Mapping[str, Any], where: str) -> None:
    for name, value in table.items():
        kind = str if name in _TEXTS else int if name in _COUNTS else None
        if kind is str and not isinstance(value, str):
            raise CodeObjectError(f"{where}: damaged: its metadata has no text as {name}")
        if kind is int and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32):
            raise CodeObjectError(f"{where}: damaged: its metadata has no 32-bit count as {name}")


def _target(elf: ELFFile, metadata: Mapping[str, Any], where: str) -> str:
    """``gfx942`` or ``gfx942:sramecc+:xnack-``: the arch of the ELF header, with the features that the metadata name.

    The metadata's triple is written in several ways: amdgcn-amd-amdhsa--gfx942, amdgcn-amd-amdhsa-unknown-gfx942.
    """
    target = _from_gfx(str(metadata.get("amdhsa.target", "")))
    arch = _ARCHS.get(elf["e_flags"] & 0xFF, target.partition(":")[0])
    if not arch:
        raise CodeObjectError(f"{where}: neither its ELF header nor its metadata (amdhsa.target) names an arch")
    return f"{arch}{target[len(target.partition(':')[0]) :]}"


def _from_gfx(triple: str) -> str:
    """The arch and features at a triple's end; '' if there are none."""
    at = triple.rfind("-gfx")
    return triple[at + 1 :] if at >= 0 else ""

"""GPU code inside a built file: which code objects there are, and what each kernel needs of the hardware.

A host object or shared library holds in its section ``.hip_fatbin`` one offload bundle for each translation unit, and
each bundle one AMDGPU ELF for each arch. The figures come from the ELF's metadata note (NT_AMDGPU_METADATA, in
MessagePack), described in LLVM's "User Guide for AMDGPU Backend", section Code Object V5 Metadata.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

from kernels.code.toolchains.offload_bundler import BundleError, unpack
from kernels.errors import CodeObjectError

_FAT_SECTION = ".hip_fatbin"
_NOTE_OWNER = "AMDGPU"
_METADATA_NOTE = 32  # NT_AMDGPU_METADATA


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What bounds the waves on one compute unit (CU). All archs here: 4 SIMDs, waves of 64 lanes."""

    vgprs: int  # 32-bit registers a lane, on one SIMD, arch and accumulation registers in one file
    vgpr_granule: int
    lds_bytes: int  # of one CU
    waves: int  # slots of one SIMD
    simds: int = 4


# Sources: AMD's CDNA 2, 3 and 4 instruction set manuals (unified file of 512 registers in granules of 8, LDS size) and
# LLVM's AMDGPU backend guide, which encodes the same granule in compute_pgm_rsrc1 and caps gfx90a and later at 8 waves.
LIMITS = {
    "gfx90a": Limits(vgprs=512, vgpr_granule=8, lds_bytes=64 * 1024, waves=8),
    "gfx942": Limits(vgprs=512, vgpr_granule=8, lds_bytes=64 * 1024, waves=8),
    "gfx950": Limits(vgprs=512, vgpr_granule=8, lds_bytes=160 * 1024, waves=8),
}


@dataclass(frozen=True, kw_only=True)
class KernelResources:
    """One kernel of one code object.

    ``vgpr`` counts the unified file, so it includes ``agpr``. Spills count registers. ``scratch_bytes`` is per lane,
    ``lds_bytes`` per workgroup and static. ``occupancy_waves`` is waves per SIMD for a full workgroup; 0 means that
    the kernel can't be launched.
    """

    symbol: str
    arch: str
    vgpr: int
    agpr: int
    sgpr: int
    vgpr_spills: int
    sgpr_spills: int
    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    max_workgroup: int
    wavefront: int
    text_sha256: str
    text_bytes: int
    occupancy_waves: int


def bundles(path: Path) -> dict[str, tuple[bytes, ...]]:
    """The code objects in the file, by arch; a library has one per arch for each unit linked into it, in link order.

    A bare AMDGPU ELF counts as one code object. Raises CodeObjectError if the file can't be read, is no ELF, is
    truncated, or holds no GPU code.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CodeObjectError(f"{path}: can't be read ({error.strerror}): build it first") from error
    elf = _open(data, str(path))
    if elf["e_machine"] == "EM_AMDGPU":
        return {_arch_of(_metadata(elf, str(path)), str(path)): (data,)}
    section = elf.get_section_by_name(_FAT_SECTION)
    if section is None:
        raise CodeObjectError(f"{path}: no section {_FAT_SECTION}: the file holds no GPU code; was it compiled as HIP?")
    found: dict[str, list[bytes]] = {}
    for target, content in _members(section.data(), str(path)):
        kind, _, triple = target.partition("-")
        if kind in ("hip", "hipv4"):
            # hipv4-amdgcn-amd-amdhsa--gfx942, and with features gfx942:sramecc+:xnack-
            found.setdefault(triple.partition("--")[2], []).append(content)
    if not found:
        raise CodeObjectError(f"{path}: section {_FAT_SECTION} holds no HIP code object")
    return {arch: tuple(objects) for arch, objects in found.items()}


def kernels(elf_bytes: bytes) -> list[KernelResources]:
    """The kernels of a code object in the order of its metadata.

    Raises CodeObjectError if the bytes are no AMDGPU ELF, or truncated, if the metadata is stripped or lacks a field,
    or if the arch is not one of LIMITS.
    """
    elf = _device_elf(elf_bytes)
    metadata = _metadata(elf, "code object")
    arch = _arch_of(metadata, "code object")
    processor = arch.partition(":")[0]
    if processor not in LIMITS:
        raise CodeObjectError(f"code object is for '{arch}'. Known archs: {', '.join(LIMITS)}.")
    found = []
    for entry in metadata.get("amdhsa.kernels", []):
        symbol = str(_field(entry, ".name", "kernel"))
        number = {name: int(_field(entry, name, symbol)) for name in _NUMBERS}
        code = _function_bytes(elf, symbol)
        found.append(
            KernelResources(
                symbol=symbol,
                arch=arch,
                vgpr=number[".vgpr_count"],
                agpr=int(entry.get(".agpr_count", 0)),
                sgpr=number[".sgpr_count"],
                vgpr_spills=number[".vgpr_spill_count"],
                sgpr_spills=number[".sgpr_spill_count"],
                lds_bytes=number[".group_segment_fixed_size"],
                scratch_bytes=number[".private_segment_fixed_size"],
                kernarg_bytes=number[".kernarg_segment_size"],
                max_workgroup=number[".max_flat_workgroup_size"],
                wavefront=number[".wavefront_size"],
                text_sha256=hashlib.sha256(code).hexdigest(),
                text_bytes=len(code),
                occupancy_waves=occupancy(
                    LIMITS[processor],
                    vgpr=number[".vgpr_count"],
                    lds_bytes=number[".group_segment_fixed_size"],
                    workgroup=number[".max_flat_workgroup_size"],
                    wavefront=number[".wavefront_size"],
                ),
            )
        )
    return found


def occupancy(limits: Limits, *, vgpr: int, lds_bytes: int, workgroup: int, wavefront: int) -> int:
    """Waves per SIMD that registers, LDS and wave slots allow for workgroups of ``workgroup`` lanes.

    Registers are counted up to the granule; whole workgroups share the LDS of a CU, and their waves spread evenly over
    its SIMDs. 0 if not even one workgroup fits.
    """
    by_registers = limits.vgprs // max(limits.vgpr_granule, -(-vgpr // limits.vgpr_granule) * limits.vgpr_granule)
    slots = min(limits.waves, by_registers)
    waves_of_group = -(-workgroup // wavefront)
    groups = slots * limits.simds // waves_of_group
    if lds_bytes:
        groups = min(groups, limits.lds_bytes // lds_bytes)
    if groups == 0:
        return 0
    return min(slots, -(-groups * waves_of_group // limits.simds))


def functions(elf_bytes: bytes) -> dict[str, bytes]:
    """The machine code of each function of a code object, by symbol. Raises CodeObjectError."""
    elf = _device_elf(elf_bytes)
    tables = [table for table in elf.iter_sections() if isinstance(table, SymbolTableSection)]
    symbols = [symbol for table in tables for symbol in table.iter_symbols()]
    names = {
        symbol.name
        for symbol in symbols
        if symbol["st_info"]["type"] == "STT_FUNC" and isinstance(symbol["st_shndx"], int)
    }
    return {name: _function_bytes(elf, name) for name in sorted(names)}


_NUMBERS = (
    ".vgpr_count",
    ".sgpr_count",
    ".vgpr_spill_count",
    ".sgpr_spill_count",
    ".group_segment_fixed_size",
    ".private_segment_fixed_size",
    ".kernarg_segment_size",
    ".max_flat_workgroup_size",
    ".wavefront_size",
)


def _members(section: bytes, where: str) -> Iterator[tuple[str, bytes]]:
    """Target and content of every entry of every bundle; the linker pads between bundles with zeros."""
    at = 0
    while True:
        rest = section[at:].lstrip(b"\0")
        if not rest:
            return
        at = len(section) - len(rest)
        try:
            entries, at = unpack(section, at)
        except BundleError as error:
            raise CodeObjectError(f"{where}: section {_FAT_SECTION}: {error}") from error
        for entry in entries:
            yield entry.target, entry.content


def _open(data: bytes, where: str) -> ELFFile:
    try:
        elf = ELFFile(io.BytesIO(data))
        end = elf["e_shoff"] + elf["e_shnum"] * elf["e_shentsize"]
        if end > len(data):
            raise CodeObjectError(f"{where}: truncated: section table ends at byte {end}, the file at {len(data)}")
        for section in elf.iter_sections():
            last = section["sh_offset"] + section["sh_size"]
            if section["sh_type"] != "SHT_NOBITS" and last > len(data):
                raise CodeObjectError(f"{where}: truncated: {section.name} ends at byte {last}, file at {len(data)}")
    except (ELFError, UnicodeDecodeError) as error:
        raise CodeObjectError(f"{where}: no readable ELF file ({error})") from error
    return elf


def _device_elf(elf_bytes: bytes) -> ELFFile:
    elf = _open(elf_bytes, "code object")
    if elf["e_machine"] != "EM_AMDGPU":
        raise CodeObjectError(f"no AMDGPU code object: the ELF file is for {elf['e_machine']}")
    return elf


def _metadata(elf: ELFFile, where: str) -> dict[str, Any]:
    for section in elf.iter_sections():
        if not isinstance(section, NoteSection):
            continue
        for note in section.iter_notes():
            if note["n_name"] == _NOTE_OWNER and note["n_type"] in (_METADATA_NOTE, "NT_AMDGPU_METADATA"):
                try:
                    unpacked = msgpack.unpackb(note["n_descdata"])
                except ValueError as error:
                    raise CodeObjectError(f"{where}: metadata note is no MessagePack ({error})") from error
                if isinstance(unpacked, dict):
                    return unpacked
    raise CodeObjectError(f"{where}: no AMDGPU metadata note: was the code object stripped?")


def _arch_of(metadata: dict[str, Any], where: str) -> str:
    """``gfx942`` or ``gfx942:sramecc+:xnack-`` out of ``amdgcn-amd-amdhsa--gfx942``."""
    return str(_field(metadata, "amdhsa.target", where)).partition("--")[2]


def _field(entry: dict[str, Any], name: str, where: str) -> Any:
    if name not in entry:
        raise CodeObjectError(f"{where}: metadata has no field {name}")
    return entry[name]


def _function_bytes(elf: ELFFile, symbol: str) -> bytes:
    for table in elf.iter_sections():
        if not isinstance(table, SymbolTableSection):
            continue
        for found in table.get_symbol_by_name(symbol) or []:
            if found["st_info"]["type"] == "STT_FUNC" and isinstance(found["st_shndx"], int):
                section = elf.get_section(found["st_shndx"])
                start = found["st_value"] - section["sh_addr"]
                return bytes(section.data()[start : start + found["st_size"]])
    raise CodeObjectError(f"code object has no function '{symbol}'")

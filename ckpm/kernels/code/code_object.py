"""GPU code inside a built file: its code objects, and the hardware resources of each kernel.

The emulator (ckpm_emulator) reads the files. Of this folder, only this module and emulated.py import it. The numbers
are in the code object's metadata, described in LLVM's "User Guide for AMDGPU Backend", section Code Object V5 Metadata.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckpm.base.errors import CodeObjectError
from ckpm.kernels.code.emulated import translated_errors
from ckpm.matrix.dialects import ComputeUnit, compute_units
from ckpm_emulator import code_object

if TYPE_CHECKING:
    from ckpm_emulator.inspection.inspect import Block as Block

READER = Path(code_object.__file__)  # the module of the emulator that reads the files


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


@dataclass(frozen=True, kw_only=True)
class KernelCode:
    """Facts about a kernel's instructions, found without running it (emulator/ckpm_emulator/inspection/inspect.py).

    ``loop`` counts the instructions of its hot loop by class, all 0 if it has no loop with matrix instructions;
    ``hazards`` are uses of registers and LDS without a wait for their load or write, as text. ``missing_states`` are
    instructions that follow too early on others; ``unknown`` counts instructions that can't be checked. ``blocks`` are
    the basic blocks that its entry reaches.
    """

    unknown: int
    loop: Mapping[str, int]
    hazards: tuple[str, ...]
    missing_states: tuple[str, ...]
    blocks: tuple[Block, ...] = ()


def bundles(path: Path) -> dict[str, tuple[bytes, ...]]:
    """Return the code objects in the file by arch; a library has one per arch for each of its units, in link order.

    A bare AMDGPU ELF counts as one code object. Raises CodeObjectError if the file can't be read, is not an ELF, is
    truncated, or contains no GPU code.
    """
    with translated_errors():
        members = code_object.code_objects(path)
    by_arch: dict[str, list[bytes]] = {}
    for arch, content in members:
        by_arch.setdefault(arch, []).append(content)
    return {arch: tuple(objects) for arch, objects in by_arch.items()}


def kernels(elf_bytes: bytes) -> list[KernelResources]:
    """Return the kernels of a code object in the order of its metadata.

    Raises CodeObjectError if the bytes are not an AMDGPU ELF, or truncated, if the metadata is stripped or lacks a
    field, or if libraries are not built for the arch.
    """
    with translated_errors():
        code = code_object.read(elf_bytes)
    if code.arch not in compute_units():
        raise CodeObjectError(f"code object is for '{code.target}'. Known archs: {', '.join(compute_units())}.")
    with translated_errors():
        return [_resources(entry, code) for entry in code.kernels]


def _resources(entry: Mapping[str, Any], owner: code_object.CodeObject) -> KernelResources:
    """Convert a kernel's metadata."""
    symbol = str(_field(entry, ".name", "kernel"))
    number = {field: int(_field(entry, name, symbol)) for field, name in _NUMBERS.items()}
    if number["wavefront"] < 1 or number["max_workgroup"] < 1:
        raise CodeObjectError(f"{symbol}: damaged: a wave or a workgroup without lanes")
    if symbol not in owner.functions:
        raise CodeObjectError(f"code object has no function '{symbol}'")
    code = owner.functions[symbol].code
    waves = occupancy(
        compute_units()[owner.arch],
        vgpr=number["vgpr"],
        lds_bytes=number["lds_bytes"],
        workgroup=number["max_workgroup"],
        wavefront=number["wavefront"],
    )
    return KernelResources(
        symbol=symbol,
        arch=owner.target,
        agpr=int(entry.get(".agpr_count", 0)),
        text_sha256=hashlib.sha256(code).hexdigest(),
        text_bytes=len(code),
        occupancy_waves=waves,
        **number,
    )


def occupancy(unit: ComputeUnit, *, vgpr: int, lds_bytes: int, workgroup: int, wavefront: int) -> int:
    """Number of waves per SIMD that registers, LDS and wave slots allow for workgroups of ``workgroup`` lanes.

    Registers are counted up to the granule; whole workgroups share the LDS of a CU, and their waves spread evenly over
    its SIMDs. 0 if not even one workgroup fits.
    """
    by_registers = unit.vgprs // max(unit.vgpr_granule, -(-vgpr // unit.vgpr_granule) * unit.vgpr_granule)
    slots = min(unit.waves, by_registers)
    waves_of_group = -(-workgroup // wavefront)
    groups = slots * unit.simds // waves_of_group
    if lds_bytes:
        groups = min(groups, unit.lds_bytes // lds_bytes)
    if groups == 0:
        return 0
    return min(slots, -(-groups * waves_of_group // unit.simds))


def functions(elf_bytes: bytes) -> dict[str, bytes]:
    """Return the machine code of each function of a code object, by symbol. Raises CodeObjectError."""
    with translated_errors():
        code = code_object.read(elf_bytes)
        return {name: function.code for name, function in sorted(code.functions.items())}


def inspect(path: Path, arch: str) -> dict[str, KernelCode]:
    """Inspect the code of each of a file's kernels for the arch, by symbol. Raises CodeObjectError."""
    from ckpm_emulator.inspection.inspect import inspect as inspected  # imported here: other commands don't need it

    with translated_errors():
        kernels_of_file = inspected(path, arch)
    names = [field.name for field in dataclasses.fields(KernelCode)]
    return {kernel.symbol: KernelCode(**{name: getattr(kernel, name) for name in names}) for kernel in kernels_of_file}


_NUMBERS = {
    "vgpr": ".vgpr_count",
    "sgpr": ".sgpr_count",
    "vgpr_spills": ".vgpr_spill_count",
    "sgpr_spills": ".sgpr_spill_count",
    "lds_bytes": ".group_segment_fixed_size",
    "scratch_bytes": ".private_segment_fixed_size",
    "kernarg_bytes": ".kernarg_segment_size",
    "max_workgroup": ".max_flat_workgroup_size",
    "wavefront": ".wavefront_size",
}


def _field(entry: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in entry:
        raise CodeObjectError(f"{where}: metadata has no field {name}")
    return entry[name]

"""GPU code inside a built file: which code objects there are, and what each kernel needs of the hardware.

Files are read by the emulator (ckpm_emulator): this is the one module of kernels/code/
that knows it. The figures are those of the code object's metadata, described in LLVM's "User Guide for AMDGPU Backend",
section Code Object V5 Metadata.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.base.errors import CodeObjectError
from ckpm.matrix.dialects import ComputeUnit, compute_units
from ckpm_emulator import code_object
from ckpm_emulator import errors as emulated


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
    """What a kernel's instructions show without running (emulator/ckpm_emulator/inspection/inspect.py).

    ``loop`` counts the instructions of its hot loop by class, all 0 if it has no loop with matrix instructions;
    ``hazards`` are uses of registers and LDS before what is loaded or written there is waited for, as text, and
    ``missing_states`` instructions that follow too early on others; ``unknown`` counts those that can't be judged.
    """

    unknown: int
    loop: Mapping[str, int]
    hazards: tuple[str, ...]
    missing_states: tuple[str, ...]


@contextmanager
def _reading() -> Iterator[None]:
    """The emulator's complaint about a file is ours."""
    try:
        yield
    except emulated.CodeObjectError as error:
        raise CodeObjectError(str(error)) from error


def bundles(path: Path) -> dict[str, tuple[bytes, ...]]:
    """The code objects in the file, by arch; a library has one per arch for each unit linked into it, in link order.

    A bare AMDGPU ELF counts as one code object. Raises CodeObjectError if the file can't be read, is no ELF, is
    truncated, or holds no GPU code.
    """
    with _reading():
        members = code_object.code_objects(path)
    by_arch: dict[str, list[bytes]] = {}
    for arch, content in members:
        by_arch.setdefault(arch, []).append(content)
    return {arch: tuple(objects) for arch, objects in by_arch.items()}


def kernels(elf_bytes: bytes) -> list[KernelResources]:
    """The kernels of a code object in the order of its metadata.

    Raises CodeObjectError if the bytes are no AMDGPU ELF, or truncated, if the metadata is stripped or lacks a field,
    or if the arch is not one that libraries are built for.
    """
    with _reading():
        code = code_object.read(elf_bytes)
    if code.arch not in compute_units():
        raise CodeObjectError(f"code object is for '{code.target}'. Known archs: {', '.join(compute_units())}.")
    with _reading():
        return [_resources(entry, code) for entry in code.kernels]


def _resources(entry: Mapping[str, Any], owner: code_object.CodeObject) -> KernelResources:
    """Raises CodeObjectError: the metadata lacks a field, or the code object the kernel's function."""
    symbol = str(_field(entry, ".name", "kernel"))
    number = {name: int(_field(entry, name, symbol)) for name in _NUMBERS}
    if number[".wavefront_size"] < 1 or number[".max_flat_workgroup_size"] < 1:
        raise CodeObjectError(f"{symbol}: damaged: a wave or a workgroup without lanes")
    if symbol not in owner.functions:
        raise CodeObjectError(f"code object has no function '{symbol}'")
    code = owner.functions[symbol].code
    return KernelResources(
        symbol=symbol,
        arch=owner.target,
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
            compute_units()[owner.arch],
            vgpr=number[".vgpr_count"],
            lds_bytes=number[".group_segment_fixed_size"],
            workgroup=number[".max_flat_workgroup_size"],
            wavefront=number[".wavefront_size"],
        ),
    )


def occupancy(unit: ComputeUnit, *, vgpr: int, lds_bytes: int, workgroup: int, wavefront: int) -> int:
    """Waves per SIMD that registers, LDS and wave slots allow for workgroups of ``workgroup`` lanes.

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
    """The machine code of each function of a code object, by symbol. Raises CodeObjectError."""
    with _reading():
        code = code_object.read(elf_bytes)
        return {name: function.code for name, function in sorted(code.functions.items())}


def inspect(path: Path, arch: str) -> dict[str, KernelCode]:
    """What the code of each of a file's kernels for the arch shows, by symbol. Raises CodeObjectError."""
    from ckpm_emulator.inspection.inspect import inspect as inspected  # only here: other commands do without its cache

    with _reading():
        kernels_of_file = inspected(path, arch)
    return {
        one.symbol: KernelCode(
            unknown=one.unknown, loop=one.loop, hazards=one.hazards, missing_states=one.missing_states
        )
        for one in kernels_of_file
    }


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


def _field(entry: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in entry:
        raise CodeObjectError(f"{where}: metadata has no field {name}")
    return entry[name]

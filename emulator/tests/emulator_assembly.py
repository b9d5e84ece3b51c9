"""Hand-written kernels as code objects, made by the embedded toolchain's assembler and linker.

A kernel gets the address of its arguments (pointers of 8 bytes) in s[0:1], its thread in v0 and its workgroup in s2.
"""

from __future__ import annotations

import ctypes
import functools
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ckpm_emulator.device import Buffer, EmulatedGpu
from ckpm_emulator.faults import DeviceFaultError, FaultReport
from ckpm_emulator.image import read
from ckpm_emulator.lowering.decode import Instruction, decode_function
from programs.clang import compile_source, link_code

_FRAME = """\
.amdgcn_target "amdgcn-amd-amdhsa--{arch}"
.text
.globl test_kernel
.p2align 8
.type test_kernel,@function
test_kernel:
{body}
.size test_kernel, .-test_kernel
.rodata
.p2align 6
.amdhsa_kernel test_kernel
.amdhsa_group_segment_fixed_size {lds_bytes}
.amdhsa_private_segment_fixed_size 64
.amdhsa_{scratch} 1
.amdhsa_user_sgpr_kernarg_segment_ptr 1
.amdhsa_next_free_vgpr {vgprs}
.amdhsa_next_free_sgpr 64
.amdhsa_accum_offset 32
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.target: amdgcn-amd-amdhsa--{arch}
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: test_kernel
    .symbol: test_kernel.kd
    .kernarg_segment_size: {kernarg_bytes}
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds_bytes}
    .private_segment_fixed_size: 64
    .wavefront_size: 64
    .max_flat_workgroup_size: 1024
    .sgpr_count: 64
    .vgpr_count: {vgprs}
    .args:
      - {{.size: 8, .offset: 0, .value_kind: global_buffer, .address_space: global}}
      - {{.size: 8, .offset: 8, .value_kind: global_buffer, .address_space: global}}
.end_amdgpu_metadata
"""


@functools.cache
def assemble(body: str, arch: str = "gfx942", lds_bytes: int = 0, kernarg_bytes: int = 16, vgprs: int = 64) -> bytes:
    """The code object of a kernel ``test_kernel`` with these instructions."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.s")
        scratch = "system_sgpr_private_segment_wavefront_offset" if arch == "gfx90a" else "enable_private_segment"
        sizes = {"lds_bytes": lds_bytes, "kernarg_bytes": kernarg_bytes, "vgprs": vgprs}
        source.write_text(_FRAME.format(arch=arch, body=body, scratch=scratch, **sizes))
        return compile_source(source, arch, "-x", "assembler")


def linked_kernels(bodies: Mapping[str, str], arch: str = "gfx942") -> bytes:
    """The code object of kernels that were assembled one by one, as Tensile's are: their symbols have no size."""
    with tempfile.TemporaryDirectory() as folder:
        sources = [Path(folder, f"{name}.s") for name in bodies]
        for source, body in zip(sources, bodies.values(), strict=True):
            sizes = {"lds_bytes": 0, "kernarg_bytes": 16, "vgprs": 64}
            text = _FRAME.format(arch=arch, body=body, scratch="enable_private_segment", **sizes)
            lines = [line for line in text.splitlines(keepends=True) if not line.startswith(".size")]
            source.write_text("".join(lines).replace("test_kernel", source.stem))
        return link_code(sources, arch, "-x", "assembler")


def instructions_of(codes: Mapping[str, str], arch: str = "gfx942") -> dict[str, list[Instruction]]:
    """The instructions of each piece of assembly, by its name: one run of the assembler is enough for all of them."""
    image = read(assemble("".join(f"{code}s_endpgm\n" for code in codes.values()), arch))
    programs: list[list[Instruction]] = [[]]
    for instruction in decode_function(image, image.functions[0]):
        programs[-1].append(instruction)
        if instruction.name == "s_endpgm":
            programs.append([])
    return dict(zip(codes, programs, strict=False))


def launch(
    device: EmulatedGpu, code: bytes, *buffers: Buffer, threads: int = 64, groups: int = 1, kernel: str = "test_kernel"
) -> None:
    """Run a kernel. Raises DeviceFaultError."""
    arguments = [ctypes.c_uint64(buffer.address) for buffer in buffers]
    arguments += [ctypes.c_uint64(0)] * (2 - len(arguments))
    module = device.load_module(code)
    try:
        module.launch(kernel, (groups,), (threads,), arguments)
    finally:
        module.unload()


def launch_fault(
    device: EmulatedGpu, code: bytes, *buffers: Buffer, threads: int = 64, groups: int = 1
) -> FaultReport | None:
    """The fault of a launch, after which the device works again; None if the launch ends well."""
    try:
        launch(device, code, *buffers, threads=threads, groups=groups)
    except DeviceFaultError as error:
        device.clear_fault()
        return error.fault
    return None


def check_fault(fault: FaultReport | None, kind: str, text: str = "", detail: str = "", **fields: object) -> None:
    """A launch ended in a fault of this kind. ``text`` begins the instruction and ``detail`` is in the explanation."""
    assert fault
    assert (fault.kind, fault.text[: len(text)]) == (kind, text)
    assert detail in fault.detail
    assert {name: getattr(fault, name) for name in fields} == fields

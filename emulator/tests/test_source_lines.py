"""A fault's message has the source's file and line, if the code object has a line table, and the kernel's C++ name."""

from __future__ import annotations

import ctypes
import tempfile
from io import BytesIO
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from ckpm_emulator import image
from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.faults import DeviceFaultError
from emulator_child import on_device
from programs.clang import compile_source

SOURCE = """\
__attribute__((amdgpu_kernel, noinline)) void _Z5writePjj(unsigned* out, unsigned at)
{
    out[0] = 1;
    __builtin_amdgcn_s_barrier();
    out[at] = 2; // line 5
}
"""
BAD_LINE = 5


def compile_lines(*options: str) -> bytes:
    """The code object of SOURCE."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "written.c")
        source.write_text(SOURCE)
        return compile_source(source, "gfx942", "-x", "c", "-O1", *options)


@pytest.mark.parametrize("options", ["-g", "-gline-tables-only", "-gdwarf-4", "-g0"])
@on_device("gfx942")
def test_fault_names_source_line_and_cpp_kernel(device: EmulatedGpu, options: str) -> None:
    out = device.malloc(64)
    module = device.load_module(compile_lines(options))
    with pytest.raises(DeviceFaultError) as caught:
        module.launch("_Z5writePjj", (1,), (1,), [ctypes.c_uint64(out.address), ctypes.c_uint32(16)])
    fault = caught.value.fault
    assert fault.kernel == "_Z5writePjj"
    assert "kernel write(unsigned int*, unsigned int)\n" in fault.message
    if options == "-g0":
        assert not fault.source
        assert "source" not in fault.message
    else:
        assert fault.source.endswith(f"/written.c:{BAD_LINE}")
        assert f"source {fault.source}" in fault.message


HEADER = """\
static inline void store(unsigned* out, unsigned at)
{
    out[at] = 2;
}
"""


@pytest.mark.parametrize("options", ["-g", "-gline-tables-only", "-gdwarf-4"])
def test_inlined_function_of_hip_has_line_of_call(options: str) -> None:
    calls = SOURCE.replace("    out[at] = 2;", "    store(out, at);")
    with tempfile.TemporaryDirectory() as folder:
        source, header = Path(folder, "calls.c"), Path(folder, "hip", "hip_stores.h")
        header.parent.mkdir()
        header.write_text(HEADER)
        source.write_text(f"#include <hip/hip_stores.h>\n{calls}")
        code = compile_source(source, "gfx942", "-x", "c", "-O1", options, "-I", folder)
    lines = {line for _, line in image.read(code).lines if line}
    assert f"{folder}/calls.c:{BAD_LINE + 1}, inlined from {folder}/hip/hip_stores.h:3" in lines
    assert not any(line.startswith(str(header)) for line in lines)


def test_damaged_line_table_is_no_lines() -> None:
    """Each byte of the table at a time; the rest of the code object stays readable."""
    code = compile_lines("-gline-tables-only")
    whole = image.read(code)
    assert {line.rpartition(":")[2] for _, line in whole.lines} >= {"3", "5"}
    section = ELFFile(BytesIO(code)).get_section_by_name(".debug_line")
    start, size = section["sh_offset"], section["sh_size"]
    for at in range(start, start + size):
        for value in (0, 0xFF):
            damaged = image.read(code[:at] + bytes([value]) + code[at + 1 :])
            assert damaged.text == whole.text
            assert len(damaged.lines) < 1000

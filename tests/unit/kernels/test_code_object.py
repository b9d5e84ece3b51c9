"""Resources are read from real code objects, occupancy follows the hardware's rules, and damage is named."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from ckpm.base.errors import CodeObjectError
from ckpm.kernels.code import code_object as codeobject
from ckpm.kernels.code.code_object import occupancy
from ckpm.kernels.code.toolchains.offload_bundler import Entry, pack
from ckpm.matrix.dialects import compute_units
from ckpm_emulator.code_object import device_entries
from ckpm_emulator.errors import CodeObjectError as EmulatorCodeObjectError
from tests.fuzz.compiled import Compiler

# The two headers that a kernel and its stub need: all of hip_runtime.h brings the C++ library and takes seconds.
_SOURCE = """
#include <hip/detail/device_functions.h>
#include <hip/hip_runtime_api.h>
__launch_bounds__(256, 2) __global__ void shared_sum(float* out, const float* in)
{
    __shared__ float lds[256];
    lds[threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x];
    __syncthreads();
    out[blockIdx.x * 256 + threadIdx.x] = lds[threadIdx.x ^ 1];
}
extern "C" __global__ void nothing() {}
"""
_SYMBOL = "_Z10shared_sumPfPKf"


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The source above as a host object for two archs, and as a bare code object for gfx950."""
    compiler = Compiler(tmp_path_factory.mktemp("objects"))
    return {"host": compiler.host_object(_SOURCE, "sum.o"), "bare": compiler.code_object(_SOURCE, "sum.co")}


@pytest.fixture
def bare(objects: dict[str, Path]) -> bytes:
    return objects["bare"].read_bytes()


def test_host_object_holds_every_arch(objects: dict[str, Path]) -> None:
    bundles = codeobject.bundles(objects["host"])
    assert {arch: len(members) for arch, members in bundles.items()} == {"gfx942": 1, "gfx950": 1}


def test_bare_code_object_equals_embedded_one(objects: dict[str, Path]) -> None:
    (embedded,) = codeobject.bundles(objects["host"])["gfx950"]
    (bare,) = codeobject.bundles(objects["bare"])["gfx950"]
    assert codeobject.functions(embedded) == codeobject.functions(bare)


def test_resources(bare: bytes) -> None:
    by_symbol = {kernel.symbol: kernel for kernel in codeobject.kernels(bare)}
    assert sorted(by_symbol) == [_SYMBOL, "nothing"]
    kernel = by_symbol[_SYMBOL]
    assert (kernel.arch, kernel.lds_bytes, kernel.scratch_bytes, kernel.kernarg_bytes) == ("gfx950", 1024, 0, 16)
    assert (kernel.max_workgroup, kernel.wavefront, kernel.vgpr_spills, kernel.agpr) == (256, 64, 0, 0)
    assert kernel.occupancy_waves == 8
    assert by_symbol["nothing"].max_workgroup == 1024


def test_kernel_s_text_is_reported_by_size_and_sha256(bare: bytes) -> None:
    kernel = next(k for k in codeobject.kernels(bare) if k.symbol == _SYMBOL)
    text, size = ELFFile(io.BytesIO(bare)).get_section_by_name(".text").data(), kernel.text_bytes
    pieces = [text[start : start + size] for start in range(0, len(text) - size + 1, 4)]
    matches = [piece for piece in pieces if hashlib.sha256(piece).hexdigest() == kernel.text_sha256]
    assert matches == [codeobject.functions(bare)[_SYMBOL]]
    assert (0xBF810000).to_bytes(4, "little") in matches[0]  # s_endpgm


@pytest.mark.parametrize(
    ("arch", "vgpr", "lds", "workgroup", "waves"),
    [
        ("gfx942", 1, 0, 256, 8),  # wave slots
        ("gfx942", 65, 0, 256, 7),  # 72 registers: granule of 8
        ("gfx942", 208, 52224, 256, 1),  # LDS
        ("gfx950", 208, 52224, 256, 2),  # registers; three groups fit the LDS
        ("gfx950", 257, 0, 256, 1),
        ("gfx942", 128, 32768, 64, 1),  # two groups of one wave on four SIMDs
        ("gfx942", 256, 0, 1024, 0),  # 16 waves need 4 a SIMD, registers allow 2
    ],
)
def test_occupancy(arch: str, vgpr: int, lds: int, workgroup: int, waves: int) -> None:
    assert occupancy(compute_units()[arch], vgpr=vgpr, lds_bytes=lds, workgroup=workgroup, wavefront=64) == waves


def test_several_bundles_in_one_section() -> None:
    first = pack([Entry(target="hipv4-amdgcn-amd-amdhsa--gfx942", content=b"one")], align=4096)
    second = pack([Entry(target="hipv4-amdgcn-amd-amdhsa--gfx942", content=b"two")], align=4096)
    section = first + bytes(-len(first) % 4096) + second
    assert [content for _, content in device_entries(section, "x")] == [b"one", b"two"]


def test_damaged_section_is_named() -> None:
    bundle = pack([Entry(target="hipv4-amdgcn-amd-amdhsa--gfx942", content=b"one")], align=4096)
    with pytest.raises(EmulatorCodeObjectError, match=r"^lib\.so: truncated: bundle at byte 0: entry hipv4"):
        list(device_entries(bundle[:-1], "lib.so"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[: len(data) // 2], r"sum\.o: truncated"),
        (lambda data: None, r"sum\.o: can't be read \(No such file or directory\): build it first"),
        (lambda data: data.replace(b".hip_fatbin\0", b".nothing_at\0"), "holds no GPU code; was it compiled as HIP"),
    ],
    ids=["truncated", "missing", "without-gpu-code"],
)
def test_damaged_host_object_is_named(
    objects: dict[str, Path], tmp_path: Path, change: Callable[[bytes], bytes | None], message: str
) -> None:
    changed = change(objects["host"].read_bytes())
    if changed is not None:
        (tmp_path / "sum.o").write_bytes(changed)
    with pytest.raises(CodeObjectError, match=message):
        codeobject.bundles(tmp_path / "sum.o")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"AMDGPU\0", b"OTHERS\0", "no AMDGPU metadata note: was it stripped"),
        (b".vgpr_count", b".vgpr_czunt", r"metadata has no field \.vgpr_count"),
        (_SYMBOL.encode() + b"\0", b"x" + _SYMBOL.encode()[1:] + b"\0", f"no function '{_SYMBOL}'"),
    ],
)
def test_code_object_that_lacks_something_is_named(bare: bytes, old: bytes, new: bytes, message: str) -> None:
    with pytest.raises(CodeObjectError, match=message):
        codeobject.kernels(bare.replace(old, new))


def test_unknown_arch(bare: bytes) -> None:
    unknown = bytearray(bare.replace(b"amdhsa--gfx950", b"amdhsa--gfx999"))
    unknown[48] = 0xFF  # e_flags: no machine of today
    with pytest.raises(CodeObjectError, match=r"^code object is for 'gfx999'\. Known archs: gfx90a, gfx942, gfx950\.$"):
        codeobject.kernels(bytes(unknown))


def test_host_object_is_not_code_object(objects: dict[str, Path]) -> None:
    with pytest.raises(CodeObjectError, match="no AMDGPU code object: the ELF file is for EM_X86_64"):
        codeobject.kernels(objects["host"].read_bytes())


def test_complaint_of_each_reader_is_error_of_ckpm(tmp_path: Path) -> None:
    (tmp_path / "cut.o").write_bytes(b"no ELF")
    with pytest.raises(CodeObjectError):
        codeobject.inspect(tmp_path / "cut.o", "gfx950")
    with pytest.raises(CodeObjectError):
        codeobject.functions(b"no ELF")


def test_inspection_knows_same_kernels(objects: dict[str, Path]) -> None:
    (image,) = codeobject.bundles(objects["host"])["gfx950"]
    inspected = codeobject.inspect(objects["host"], "gfx950")
    assert set(inspected) == {kernel.symbol for kernel in codeobject.kernels(image)}
    assert {(inspection.unknown, inspection.hazards) for inspection in inspected.values()} == {(0, ())}

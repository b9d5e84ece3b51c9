"""Kernels compiled from HIP source by the embedded toolchain give the right results on the emulated device.

Small kernels for what a launch is made of: kernel arguments and ids, loops and EXEC, LDS and barriers, matrix
instructions, scratch, several workgroups on several threads, and the checks. Each runs in a process of its own arch.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpm_emulator import code_object, program_cache, toolchain
from ckpm_emulator.cache import Store
from ckpm_emulator.device import DeviceFaultError, EmulatedGpu, Options
from programs.program_builder import compile_object

SOURCE = r"""
#include <hip/hip_runtime.h>

extern "C" __global__ void add(const float* a, const float* b, float* c, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if(i < n)
        c[i] = a[i] + b[i];
}

extern "C" __global__ void reduce(const int* a, int* sums)
{
    __shared__ int part[256];
    part[threadIdx.x] = a[blockIdx.x * 256 + threadIdx.x];
    __syncthreads();
    for(int step = 128; step > 0; step /= 2)
    {
        if(threadIdx.x < step)
            part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    if(threadIdx.x == 0)
        sums[blockIdx.x] = part[0];
}

// Every other wave's value without a barrier in between.
extern "C" __global__ void race(int* out)
{
    __shared__ int part[256];
    part[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = part[255 - threadIdx.x];
}

typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef float float16 __attribute__((ext_vector_type(16)));

extern "C" __global__ void matrix(const _Float16* a, const _Float16* b, float* c)
{
    const int lane = threadIdx.x, row = lane % 32, first = 4 * (lane / 32);
    half4 x, y;
    for(int i = 0; i < 4; ++i)
    {
        x[i] = a[row * 8 + first + i];
        y[i] = b[(first + i) * 32 + row];
    }
    float16 sum = {};
    sum = __builtin_amdgcn_mfma_f32_32x32x8f16(x, y, sum, 0, 0, 0);
    for(int r = 0; r < 16; ++r)
        c[(8 * (r / 4) + 4 * (lane / 32) + r % 4) * 32 + row] = sum[r];
}

// Divisions go through v_div_scale, v_div_fmas, v_div_fixup and MODE switches.
extern "C" __global__ void divide(const float* a, const float* b, float* c, const int* d, const int* e, int* f)
{
    const int i = threadIdx.x;
    c[i] = a[i] / b[i];
    f[i] = d[i] / e[i];
}

extern "C" __global__ void gather(const int* index, int* out)
{
    int local[16];
    for(int i = 0; i < 16; ++i)
        local[i] = i * i + threadIdx.x;
    out[threadIdx.x] = local[index[threadIdx.x] & 15];
}

extern "C" __global__ void collect(int* total) { atomicAdd(total, (int)threadIdx.x); }

extern "C" __global__ void shape(unsigned* out)
{
    if(threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0)
    {
        unsigned* mine = out + 8 * (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
        mine[0] = blockIdx.x; mine[1] = blockIdx.y; mine[2] = blockIdx.z;
        mine[3] = gridDim.x; mine[4] = gridDim.y; mine[5] = gridDim.z;
        mine[6] = blockDim.x; mine[7] = blockDim.y;
    }
}
"""

Job = Callable[..., None]


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Code objects of SOURCE by arch."""
    folder = tmp_path_factory.mktemp("hip")
    (source := folder / "kernels.hip").write_text(SOURCE)
    object_file = compile_object(source, folder / "kernels.o", archs=["gfx942", "gfx950"])
    return dict(code_object.code_objects(object_file))


@pytest.fixture(scope="module", params=["gfx942", "gfx950"])
def run(request: pytest.FixtureRequest, code: dict[str, bytes]) -> Iterator[Callable[..., None]]:
    """Run a job of this module in the arch's process."""
    arch: str = request.param
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _start, (arch, code[arch])) as pool:
        yield lambda job, **options: pool.submit(_job, job, options).result(timeout=120)


_device: EmulatedGpu
_code: bytes


def _start(arch: str, code: bytes) -> None:
    global _device, _code
    _device, _code = EmulatedGpu(arch, threads=1), code


def _job(job: Job, options: dict[str, Any]) -> None:
    _device.clear_fault()
    _device.configure(**vars(Options(arch=_device.options.arch, threads=1)) | options)
    job()


def _launch(
    kernel: str, grid: tuple[int, ...], block: tuple[int, ...], *arguments: Any, code: bytes | None = None
) -> None:
    values = [
        ctypes.c_int(argument) if isinstance(argument, int) else ctypes.c_void_p(argument.address)
        for argument in arguments
    ]
    _device.load_module(code or _code).launch(kernel, grid, block, values)


def _add() -> None:
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 1000), dtype=np.float32)
    c = _device.upload(np.zeros(1024, np.float32))
    _launch("add", (4,), (256,), _device.upload(a), _device.upload(b), c, 1000)
    sums = _device.read(c, np.float32)
    np.testing.assert_array_equal(sums[:1000], a + b)
    np.testing.assert_array_equal(sums[1000:], 0)


def _partial_wave() -> None:
    a = np.arange(100, dtype=np.float32)
    c = _device.upload(np.zeros(100, np.float32))
    _launch("add", (10,), (10,), _device.upload(a), _device.upload(a), c, 100)
    np.testing.assert_array_equal(_device.read(c, np.float32), 2 * a)


def _reduce() -> None:
    a = np.random.default_rng(1).integers(-1000, 1000, (40, 256), dtype=np.int32)
    sums = _device.upload(np.zeros(40, np.int32))
    _launch("reduce", (40,), (256,), _device.upload(a), sums)
    np.testing.assert_array_equal(_device.read(sums, np.int32), a.sum(axis=1))


def _race() -> None:
    with pytest.raises(DeviceFaultError, match="race"):
        _launch("race", (1,), (256,), _device.malloc(1024))


def _matrix() -> None:
    random = np.random.default_rng(2)
    a, b = random.standard_normal((32, 8)).astype(np.float16), random.standard_normal((8, 32)).astype(np.float16)
    c = _device.malloc(4 * 32 * 32)
    _launch("matrix", (1,), (64,), _device.upload(a), _device.upload(b), c)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    # One rounding of f32 a step of k, on sums no greater than the sum of magnitudes.
    bound = 8 * 2.0**-24 * (abs(a.astype(np.float64)) @ abs(b.astype(np.float64)))
    assert (abs(_device.read(c, np.float32, (32, 32)) - exact) <= bound).all()


def _divide() -> None:
    random = np.random.default_rng(3)
    a, b = (random.standard_normal((2, 256)) * 10.0 ** random.integers(-15, 15, (2, 256))).astype(np.float32)
    d, e = random.integers(-(2**31), 2**31 - 1, (2, 256)).astype(np.int32)
    e[:128] = random.integers(1, 50, 128)
    quotients, integers = _device.malloc(1024), _device.malloc(1024)
    buffers = [_device.upload(x) for x in (a, b, d, e)]
    _launch("divide", (1,), (256,), buffers[0], buffers[1], quotients, buffers[2], buffers[3], integers)
    np.testing.assert_array_max_ulp(_device.read(quotients, np.float32), a / b, maxulp=1)
    truncated = np.trunc(d.astype(np.float64) / e).astype(np.int32)
    np.testing.assert_array_equal(_device.read(integers, np.int32), truncated)


def _gather() -> None:
    index = np.random.default_rng(4).integers(0, 16, 64).astype(np.int32)
    out = _device.malloc(256)
    _launch("gather", (1,), (64,), _device.upload(index), out)
    np.testing.assert_array_equal(_device.read(out, np.int32), index * index + np.arange(64))


def _collect() -> None:
    total = _device.upload(np.zeros(1, np.int32))
    _launch("collect", (50,), (128,), total)
    assert _device.read(total, np.int32)[0] == 50 * 127 * 64


def _shape() -> None:
    out = _device.malloc(4 * 8 * 24)
    _launch("shape", (2, 3, 4), (8, 4, 2), out)
    shapes = _device.read(out, np.uint32, (4, 3, 2, 8))
    for z, y, x in np.ndindex(4, 3, 2):
        assert shapes[z, y, x].tolist() == [x, y, z, 2, 3, 4, 8, 4]


def _out_of_bounds() -> None:
    short = _device.malloc(100)
    with pytest.raises(DeviceFaultError) as caught:
        _launch("add", (1,), (64,), short, short, short, 64)
    fault = caught.value.fault
    assert (fault.kernel, fault.lane, fault.address) == ("add", 25, short.address + 100)
    assert "global_load_dword" in fault.text


def _counters() -> None:
    _device.reset_counters()
    _reduce()
    counted = _device.counters()["kernels"]["reduce"]
    assert (counted["launches"], counted["workgroups"], counted["waves"]) == (1, 40, 160)
    assert counted["barriers"] == 40 * 9
    assert counted["global_load_bytes"] == 40 * 256 * 4
    assert counted["global_store_bytes"] == 40 * 4


@pytest.mark.parametrize("job", [_add, _partial_wave, _reduce, _matrix, _divide, _gather, _collect, _shape])
@pytest.mark.parametrize(
    "options",
    [{}, {"threads": 3}, {"poison": 1, "late_loads": 1, "lds_races": 1, "uninitialised": 1, "wave_order": 5}],
    ids=["plain", "threads", "checks"],
)
def test_results(run: Callable[..., None], job: Job, options: dict[str, int]) -> None:
    run(job, **options)


@pytest.mark.parametrize("wave_order", [0, 1, 7])
def test_race_is_found(run: Callable[..., None], wave_order: int) -> None:
    run(_race, lds_races=1, wave_order=wave_order)


def test_fault_reports_where(run: Callable[..., None]) -> None:
    run(_out_of_bounds)


def test_counters(run: Callable[..., None]) -> None:
    run(_counters)


def test_programs_are_cached(code: dict[str, bytes], tmp_path: Path) -> None:
    first = program_cache.program(code["gfx950"], cache=tmp_path)
    programs = Store(tmp_path / "programs")
    (kept,) = (tmp_path / "programs").glob("*.entry")
    programs.put(kept.stem, b"another")
    assert program_cache.program(code["gfx950"], cache=tmp_path) == b"another"
    kept.write_bytes(kept.read_bytes().replace(b"another", b"changed"))
    assert program_cache.program(code["gfx950"], cache=tmp_path) == first  # what is damaged is made anew
    assert programs.get(kept.stem) == first


FIRST_LAUNCH = """
import ctypes, sys
from pathlib import Path
from ckpm_emulator.device import EmulatedGpu
device = EmulatedGpu("gfx950", threads=1)
out = device.malloc(4)
device.load_module(Path(sys.argv[1]).read_bytes()).launch("collect", (1,), (64,), [ctypes.c_void_p(out.address)])
device.synchronize()
sys.exit("the decoder was loaded" if "tinygrad" in sys.modules else 0)
"""


def test_cached_launch_does_without_decoder(code: dict[str, bytes], tmp_path: Path) -> None:
    """The decoder's tables take most of a second to import."""
    program_cache.program(code["gfx950"])
    (image_file := tmp_path / "code.hsaco").write_bytes(code["gfx950"])
    subprocess.run([sys.executable, "-c", FIRST_LAUNCH, str(image_file)], cwd=toolchain.PROJECT, check=True)

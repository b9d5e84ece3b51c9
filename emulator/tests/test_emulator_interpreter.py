"""Launches of kernels compiled from HIP source: grids of three dimensions, counters, and the cache of programs."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from ckpm_emulator import code_object, program_cache, toolchain
from ckpm_emulator.cache import Store
from ckpm_emulator.device import EmulatedGpu
from emulator_child import on_device
from programs.program_builder import compile_object

SOURCE = r"""
#include <hip/hip_runtime.h>

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

extern "C" __global__ void shape(unsigned* out)
{
    if(threadIdx.x == 7 && threadIdx.y == 3 && threadIdx.z == 1)
    {
        unsigned* place = out + 8 * (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
        place[0] = blockIdx.x; place[1] = blockIdx.y; place[2] = blockIdx.z;
        place[3] = gridDim.x; place[4] = gridDim.y; place[5] = gridDim.z;
        place[6] = blockDim.x; place[7] = blockDim.y;
    }
}
"""


@functools.cache
def code(arch: str) -> bytes:
    """The code object of SOURCE."""
    with tempfile.TemporaryDirectory() as folder:
        (source := Path(folder, "kernels.hip")).write_text(SOURCE)
        return dict(code_object.code_objects(compile_object(source, Path(folder, "kernels.o"), archs=[arch])))[arch]


@pytest.mark.parametrize(
    "checks", [(), ("poison", "late_loads", "lds_races", "uninitialised")], ids=["plain", "checks"]
)
@on_device("gfx942")
def test_counters_of_launch(device: EmulatedGpu, checks: tuple[str, ...]) -> None:
    device.configure(threads=3, **dict.fromkeys(checks, True))
    a = np.random.default_rng(1).integers(-1000, 1000, (40, 256), dtype=np.int32)
    buffers = device.upload(a), device.malloc(40 * 4)
    device.reset_counters()
    arguments = [ctypes.c_uint64(buffer.address) for buffer in buffers]
    device.load_module(code("gfx942")).launch("reduce", (40,), (256,), arguments)
    np.testing.assert_array_equal(device.read(buffers[1], np.int32), a.sum(axis=1))
    counted = device.counters()["kernels"]["reduce"]
    assert (counted["launches"], counted["workgroups"], counted["waves"]) == (1, 40, 160)
    assert counted["barriers"] == 40 * 9
    assert (counted["global_load_bytes"], counted["global_store_bytes"]) == (40 * 256 * 4, 40 * 4)


@pytest.mark.parametrize("threads", [1, 3])
@on_device("gfx950")
def test_ids_and_sizes_of_three_dimensions(device: EmulatedGpu, threads: int) -> None:
    device.configure(threads=threads)
    out = device.malloc(4 * 8 * 24)
    device.load_module(code("gfx950")).launch("shape", (2, 3, 4), (8, 4, 2), [ctypes.c_uint64(out.address)])
    shapes = device.read(out, np.uint32, (4, 3, 2, 8))
    for z, y, x in np.ndindex(4, 3, 2):
        assert shapes[z, y, x].tolist() == [x, y, z, 2, 3, 4, 8, 4]


def test_programs_are_cached(tmp_path: Path) -> None:
    first = program_cache.program(code("gfx950"), cache=tmp_path)
    programs = Store(tmp_path / "programs")
    (kept,) = (tmp_path / "programs").glob("*.entry")
    programs.put(kept.stem, b"another")
    assert program_cache.program(code("gfx950"), cache=tmp_path) == b"another"
    kept.write_bytes(kept.read_bytes().replace(b"another", b"changed"))
    assert program_cache.program(code("gfx950"), cache=tmp_path) == first  # what is damaged is made anew
    assert programs.get(kept.stem) == first


FIRST_LAUNCH = """
import ctypes, sys
from pathlib import Path
from ckpm_emulator.device import EmulatedGpu
device = EmulatedGpu("gfx950", threads=1)
out = device.malloc(32)
device.load_module(Path(sys.argv[1]).read_bytes()).launch("shape", (1,), (64,), [ctypes.c_void_p(out.address)])
device.synchronize()
sys.exit("the decoder was loaded" if "tinygrad" in sys.modules else 0)
"""


def test_cached_launch_does_without_decoder(tmp_path: Path) -> None:
    """The decoder's tables take most of a second to import."""
    program_cache.program(code("gfx950"))
    (image_file := tmp_path / "code.hsaco").write_bytes(code("gfx950"))
    subprocess.run([sys.executable, "-c", FIRST_LAUNCH, str(image_file)], cwd=toolchain.PROJECT, check=True)

"""Launches out of the ordinary: the end of the arguments, many registers, interleaved waves, linked kernels."""

from __future__ import annotations

import functools
import itertools
import struct

import numpy as np
import pytest

from ckpm_emulator.code_object import read
from ckpm_emulator.device import EmulatedGpu
from emulator_assembly import assemble, check_fault, launch, launch_fault, linked_kernels
from emulator_child import on_device


def store(value: object, load: str = "") -> str:
    """out[i] = value, after a load."""
    return f"""s_load_dwordx2 s[4:5], s[0:1], 0x0
{load}
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
v_mov_b32 v2, {value}
global_store_dword v1, v2, s[4:5]
s_endpgm
"""


@pytest.mark.parametrize(("offset", "faults"), [(120, False), (144, True)])
@on_device("gfx942")
def test_wide_load_at_end_of_arguments(device: EmulatedGpu, offset: int, faults: bool) -> None:
    """LLVM reads the last three dwords as four, where the hardware's segment goes on.

    hipCUB's partition kernels load so the dwords of 132 bytes from 120 on, aligned to 8 bytes.
    """
    out = device.upload(np.ones(64, np.uint32))
    body = store("s8", f"s_load_dwordx4 s[8:11], s[0:1], {offset}")
    fault = launch_fault(device, assemble(body, kernarg_bytes=132), out)
    if faults:
        check_fault(fault, "memory", "s_load_dwordx4", access="load", bytes=16)
    else:
        assert fault is None
        assert not device.read(out, np.uint32).any()


@on_device("gfx942")
def test_sixteen_waves_of_all_registers(device: EmulatedGpu) -> None:
    """1024 threads of 512 registers run, though four waves fit on a compute unit."""
    out = device.upload(np.zeros(1024, np.uint32))
    launch(device, assemble(store("v0"), vgprs=512), out, threads=1024)
    assert device.read(out, np.uint32).tolist() == list(range(1024))


# The option interleaved: a wave that waits lets the others go on, as on hardware, before its results land.
# Two waves: each writes 1 to its dword of LDS. After the barrier it reads the other's dword, waits, and overwrites its
# own with 2, without a second barrier. On hardware both reads are served before one of the waves has waited.
TWO_WAVES = """\
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshrrev_b32 v1, 6, v0
v_lshlrev_b32 v2, 2, v1
v_xor_b32 v3, 4, v2
v_mov_b32 v4, 1
ds_write_b32 v2, v4
s_waitcnt lgkmcnt(0)
s_barrier
ds_read_b32 v5, v3
s_waitcnt lgkmcnt(0)
v_mov_b32 v4, 2
ds_write_b32 v2, v4
s_waitcnt lgkmcnt(0)
global_store_dword v2, v5, s[4:5]
s_endpgm
"""


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("interleaved", "read"), [(False, [1, 2]), (True, [1, 1])])
@on_device("gfx942")
def test_waves_read_before_one_has_waited(device: EmulatedGpu, interleaved: bool, read: list[int], late: bool) -> None:
    device.configure(interleaved=interleaved, late_loads=late)
    out = device.malloc(8)
    launch(device, assemble(TWO_WAVES, lds_bytes=8), out, threads=128)
    assert device.read(out, np.uint32).tolist() == read


# Assembled one by one without sizes, each with a metadata note of its own, as in rocBLAS's libraries of Tensile.
VALUES = {"seven": 7, "nine": 9, "eleven": 11}


@functools.cache
def linked_code() -> bytes:
    return linked_kernels({name: store(value) for name, value in VALUES.items()})


def test_kernels_of_all_notes() -> None:
    """The linker puts the notes one after the other."""
    assert {kernel[".name"] for kernel in read(linked_code()).kernels} == set(VALUES)


def test_function_without_size_ends_where_next_begins() -> None:
    functions = sorted(read(linked_code()).functions.values(), key=lambda function: function.address)
    assert [function.name for function in functions] == list(VALUES)
    for function, behind in itertools.pairwise(functions):
        assert function.address + function.size == behind.address
    last = functions[-1].code
    assert last.index(struct.pack("<I", 0xBF810000)) + 4 <= len(last)  # s_endpgm


@on_device("gfx942")
def test_each_kernel_runs(device: EmulatedGpu) -> None:
    for name, value in VALUES.items():
        out = device.upload(np.zeros(64, np.uint32))
        launch(device, linked_code(), out, kernel=name)
        assert device.read(out, np.uint32).tolist() == [value] * 64

"""Kernels in assembly without sizes, each with a metadata note of its own, as in rocBLAS's libraries of Tensile."""

from __future__ import annotations

import functools
import itertools
import struct

import numpy as np

from ckpm_emulator.code_object import read
from ckpm_emulator.device import EmulatedGpu
from emulator_assembly import launch, linked_kernels
from emulator_child import on_device

_STORE = """\
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v2, {value}
s_waitcnt lgkmcnt(0)
global_store_dword v1, v2, s[4:5]
s_endpgm
"""
VALUES = {"seven": 7, "nine": 9, "eleven": 11}


@functools.cache
def code() -> bytes:
    return linked_kernels({name: _STORE.format(value=value) for name, value in VALUES.items()})


def test_kernels_of_all_notes() -> None:
    """The linker puts the notes one after the other."""
    assert {kernel[".name"] for kernel in read(code()).kernels} == set(VALUES)


def test_function_without_size_ends_where_next_begins() -> None:
    functions = sorted(read(code()).functions.values(), key=lambda function: function.address)
    assert [function.name for function in functions] == list(VALUES)
    for function, behind in itertools.pairwise(functions):
        assert function.address + function.size == behind.address
    last = functions[-1].code
    assert last.index(struct.pack("<I", 0xBF810000)) + 4 <= len(last)  # s_endpgm


@on_device("gfx942", whole=True)
def test_each_kernel_runs(device: EmulatedGpu) -> None:
    for name, value in VALUES.items():
        out = device.upload(np.zeros(64, np.uint32))
        launch(device, code(), out, kernel=name)
        assert device.read(out, np.uint32).tolist() == [value] * 64

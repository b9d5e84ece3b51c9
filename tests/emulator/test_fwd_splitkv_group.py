"""Split-KV in group mode: sequences of different lengths one after another, run on the emulator."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulator_child import on_device
from emulator_fwd import build, compared, problem, tensors
from test_fwd_splitkv import FAMILIES, UNRACED

from emulator.device import Device
from kernels import fwd_harness
from kernels.fwd_launching import run
from kernels.hip_api import HipApi

WHERE = (
    "key.mode == 'group' and not key.lse and key.pad == 'ps' or "
    "key.mode == 'group' and key.family == 'fwd_splitkv' and key.mask == 'mask' and key.pad == 'pssk'"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel and the combine kernels for its splits: about half a minute of compiling."""
    return build(tmp_path_factory.mktemp("splitkv_group"), FAMILIES, WHERE)


@pytest.mark.parametrize("splits", [2, 5])
@on_device("gfx950", whole=True)
def test_o_agrees_with_the_reference(device: Device, library: Path, splits: int) -> None:
    """The second sequence has no key in most of its splits."""
    p = replace(problem(1, 1, 2, 1, causal=True), mode="group", seqlens_q=(70, 9), seqlens_k=(500, 30))
    bits = tensors(p)
    device.load_library(library)
    opened, hip = fwd_harness.load(library), HipApi(ctypes.CDLL(None), device.last_error)
    first = run(hip, opened, p, bits, splits=splits)
    compared(p, bits, first)
    assert [name.split("_group_")[0] for name in first.launch.kernels] == [
        "fmha_fwd_splitkv_d128_bf16",
        "fmha_fwd_splitkv_combine_d128_bf16",
    ]
    device.configure(**UNRACED, wave_order=1)
    assert np.array_equal(first.o, run(hip, opened, p, bits, splits=splits).o)

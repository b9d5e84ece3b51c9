"""Dropout in fwd on the emulator: the kernel stores the generator's random bytes, and drops what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from ckpm.attention.launch.buffers import LaunchInputs
from ckpm.attention.launch.encodings import decode
from ckpm.attention.launch.fwd_launching import run_attention
from ckpm.attention.reference import exact
from ckpm.attention.tolerances import compare_lse, compare_o
from ckpm.kernels.abi import Status
from ckpm.matrix.problems.case import SuiteCase
from ckpm.suites.checks import foreign_random_values
from ckpm_emulator.device import EmulatedGpu
from emulator_child import on_device
from tests.emulated.emulator_fwd import CHECKS, open_device, problem, tensors
from tests.emulated.test_fwd import library as library


def split(p: SuiteCase, numbers: np.ndarray, lengths: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return tuple(np.split(numbers, np.cumsum(lengths)[:-1]))


@on_device("gfx950")
def test_dropout_draws_generator_s_bytes_and_drops_what_they_say(device: EmulatedGpu, library: Path) -> None:
    """Test group mode, with sequences of different lengths and a mask."""
    base = problem(1, 1, 2, 1, causal=True, lse=True)
    p = replace(base, mode="group", seqlens_q=(70, 33), seqlens_k=(150, 64), p_drop=0.25, seed=7)
    bits = tensors(p)
    hip, fwd = open_device(device, library)
    first = run_attention(hip, fwd, p, bits)
    assert first.launch.status == Status.OK, first.launch
    assert "_lse_dropout_" in first.launch.kernels[0]
    assert first.random_values is not None
    q, k, v = (decode(bits[name], "bf16", "gfx950") for name in "qkv")
    inputs = LaunchInputs(problem=p, q=split(p, q, p.seqlens_q), k=split(p, k, p.seqlens_k), v=split(p, v, p.seqlens_k))
    expected = exact(inputs, first.random_values)
    comparison = compare_o(p, decode(first.o, "bf16", "gfx950"), expected)
    assert comparison.passed, str(comparison)
    assert first.lse is not None
    assert compare_lse(p, first.lse.astype(np.float64), expected).passed
    assert foreign_random_values(p, first.random_values) == []
    again = replace(p, seed=8, dropout_offset=3)
    assert foreign_random_values(again, run_attention(hip, fwd, again, bits).random_values or ()) == []
    device.configure(**CHECKS, wave_order=1)
    assert np.array_equal(first.o, run_attention(hip, fwd, p, bits).o)

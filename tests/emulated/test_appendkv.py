"""Append-KV as the default upstream's templates give it, chosen by our dispatch and run on the emulator.

The caches hold random bits before a launch, NaNs among them. After it the appended rows hold K_new (rotated in float64,
within bf16's rounding) and V_new. All other rows are unchanged.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpm.attention.launch.appends import pose
from ckpm.attention.launch.c_abi import load
from ckpm.base.errors import LibraryError, ProblemError
from ckpm.kernels import abi
from ckpm.kernels.abi import Status
from ckpm.suites.appendkv_cases import differences, make_append, run_append
from ckpm_emulator.device import EmulatedGpu
from emulator_child import on_device
from tests.emulated.emulator_fwd import CHECKS, append_case, build, check_refusals, open_device

# each rotary embedding with both caches: padded everywhere over pages, whole tiles of Q over a contiguous cache
WHERE = "(key.pad == 'psskddv') == key.paged_kv"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six kernels in one unit: half a minute of compiling."""
    return build(tmp_path_factory, "appendkv", ("fwd_appendkv",), WHERE)


CASES: dict[str, dict[str, Any]] = {
    "psk": {"seqlens_q": (64, 64), "seqlens_k": (0, 37), "seqlen_knew": 64},
    "pskd_inter": {"seqlens_q": (64, 64), "seqlens_k": (5, 130), "seqlen_knew": 70, "rope": "inter"},
    "pskd_half": {"seqlens_q": (128, 128), "seqlens_k": (64, 1), "seqlen_knew": 1, "rope": "half"},
    "psskddv_pagedkv": {"seqlens_q": (1, 1, 1), "seqlens_k": (100, 0, 63), "seqlen_knew": 16, "page_size": 16},
    "psskddv_inter_pagedkv": {"seqlens_q": (3, 3), "seqlens_k": (127, 64), "seqlen_knew": 3, "rope": "inter"},
    "psskddv_half_pagedkv": {"seqlens_q": (70, 70), "seqlens_k": (50, 7), "seqlen_knew": 140, "rope": "half"},
}
CASES["pskd_inter"] |= {"rotary_dim": 96, "hdim_q": 96}
CASES["pskd_half"] |= {"rotary_dim": 32, "mask": "no"}
CASES["psskddv_pagedkv"] |= {"hdim_q": 72, "hdim_v": 40}
CASES["psskddv_inter_pagedkv"]["page_size"] = 128
CASES["psskddv_half_pagedkv"]["page_size"] = 64


@pytest.mark.parametrize("kernel", CASES)
@on_device("gfx950")
def test_new_rows_are_appended_and_nothing_else_is_written(device: EmulatedGpu, library: Path, kernel: str) -> None:
    append = make_append(append_case(**CASES[kernel]))
    hip, opened = open_device(device, library, abi.AppendKvArguments)
    assert (opened.family, opened.dialect, len(opened.kernels)) == ("fwd_appendkv", "ck-2025-11", 6)
    first = run_append(hip, opened, append)
    assert first.launch.status == Status.OK, first.launch
    assert first.launch.kernels == (f"fmha_fwd_appendkv_d128_bf16_b64x64x128x128_vr_{kernel}_gfx9",)
    assert differences(append, first.q, first.k, first.v) == []
    # nothing depends on what registers and LDS held, on loads that land early, or on the waves' order
    device.configure(**CHECKS, wave_order=1)
    again = run_append(hip, opened, append)
    assert all(np.array_equal(getattr(first, name), getattr(again, name)) for name in ("q", "k", "v"))


@on_device("gfx950")
def test_wrong_angle_page_or_row_is_noticed(device: EmulatedGpu, library: Path) -> None:
    """The comparison fails for what it must: each error is planted in what is expected."""
    append = make_append(append_case(**CASES["psskddv_half_pagedkv"]))
    hip, opened = open_device(device, library, abi.AppendKvArguments)
    outcome = run_append(hip, opened, append)
    assert append.cos is not None
    assert append.sin is not None
    assert append.block_table is not None
    planted: dict[str, tuple[dict[str, Any], str]] = {
        "angles of the position before": ({"cos": np.roll(append.cos, 1, 0), "sin": np.roll(append.sin, 1, 0)}, "q k"),
        "the other direction": ({"sin": append.sin ^ 0x8000}, "q k"),
        "pairs of neighbours": ({"rope": "inter"}, "q k"),
        "one position for Q": ({"causal": False}, "q"),
        "pages in another order": ({"block_table": append.block_table[:, ::-1].copy()}, "k v"),
        "a row later": ({"seqlens_k": append.seqlens_k + 1}, "k q v"),
        "no rotation": ({"rope": "no"}, "k q"),
    }
    for error, (changes, where) in planted.items():
        noticed = differences(dataclasses.replace(append, **changes), outcome.q, outcome.k, outcome.v)
        assert set(where.split()) <= set(noticed), error
    k, v = outcome.k.copy(), outcome.v.copy()
    unused = int(np.setdiff1d(np.arange(len(k)), append.block_table)[0])
    k[unused, 0, 0, 0] ^= 1
    v[unused, -1, -1, -1] ^= 1
    assert differences(append, outcome.q, k, v) == ["k elsewhere", "v elsewhere"]


@on_device("gfx950")
def test_what_no_kernel_serves_is_refused(device: EmulatedGpu, library: Path) -> None:
    """Over a contiguous cache only whole tiles of Q have a kernel here; memory stays as it was."""
    append = make_append(append_case(seqlens_q=(63,), seqlens_k=(3,), seqlen_knew=1))
    hip, opened = open_device(device, library, abi.AppendKvArguments)
    outcome = run_append(hip, opened, append)
    assert (outcome.launch.status, outcome.launch.kernels) == (Status.UNSUPPORTED, ())
    assert np.array_equal(outcome.k, append.k)


@on_device("gfx950")
def test_library_of_another_c_abi_is_told_apart(device: EmulatedGpu, library: Path) -> None:
    with pytest.raises(LibraryError, match="no library of ckpm_fwd's kernels"):
        load(library, abi.FwdArguments)


SOUND: dict[str, Any] = {
    "batch": 1, "nhead_q": 1, "nhead_k": 1, "hdim_q": 128, "hdim_v": 128, "seqlen_q": 1, "seqlen_knew": 1,
    "q": 1, "k": 1, "v": 1, "knew": 1, "vnew": 1, "seqlen_k_ptr": 1,
}  # fmt: skip
ROTARY = {"rope_type": 1, "rotary_dim": 128, "rotary_cos": 1, "rotary_sin": 1}
REFUSED: dict[str, dict[str, Any]] = {
    "nhead_k must be positive": {"nhead_k": 0},
    "nhead_q must be a multiple of nhead_k": {"nhead_k": 2},
    "rope_type must be 0 to 2": {"rope_type": 3},
    "seqlen_knew must be positive: without it there is nothing to do but to rotate rows of Q": {"seqlen_knew": 0},
    "seqlen_k_ptr must not be null": {"seqlen_k_ptr": None},
    "vnew must not be null with seqlen_knew": {"vnew": None},
    "q must not be null with a rope_type": {**ROTARY, "q": None},
    "rotary_sin must not be null with a rope_type": {**ROTARY, "rotary_sin": None},
    "rotary_cos must be null without a rope_type": {"rotary_cos": 1},
    "rotary_dim must be a multiple of 16, at most hdim_q, with a rope_type": {**ROTARY, "rotary_dim": 144},
    "rotary_dim must be 0 without a rope_type": {"rotary_dim": 16},
    "page_block_size must be positive, and at least the smaller of seqlen_knew and 64, with a block_table": {
        "block_table": 1,
        "page_block_size": 63,
        "seqlen_knew": 64,
    },
    "page_block_size must be 0 without a block_table": {"page_block_size": 64},
    "cache_batch_idx must be null with a block_table": {"block_table": 1, "page_block_size": 64, "cache_batch_idx": 1},
    "the caller's ckpm_appendkv_problem is of another version: use this library's ckpm_appendkv.h": {"abi_version": 2},
}


@on_device("gfx950")
def test_problem_that_contradicts_itself_is_refused(device: EmulatedGpu, library: Path) -> None:
    _, opened = open_device(device, library, abi.AppendKvArguments)
    check_refusals(opened, SOUND, REFUSED)


@pytest.mark.parametrize(
    ("changes", "output"),
    [
        ({"sin": np.zeros((100, 64), np.uint16)}, r"sin is \[100, 64\], not \[260, 64\]"),
        ({"cos": np.zeros((100, 64), np.uint16)}, "100 positions of cosines are too few: 190 are read"),
        ({"causal": False, "seqlens_k": np.array([7, 130], np.int32)}, "260 positions of cosines are too few: 270 are"),
        ({"rope": "no", "seqlens_k": np.array([7, 130], np.int32)}, "a sequence of 270 keys doesn't fit the 256 rows"),
        ({"block_table": np.full((2, 4), 10, np.int32)}, "places 10 to 10 are not all in a cache of 10"),
        ({"vnew": np.zeros((2, 139, 2, 128), np.uint16)}, r"knew is \[2, 140, 2, 128\], not \[2, 139, 2, 128\]"),
        ({"knew": np.zeros((2, 140, 2, 128), np.float32)}, "knew is of float32, not of uint16"),
        ({"sin": None}, "a rotary embedding needs cosines and sines"),
    ],
)
def test_what_c_abi_cannot_see_is_refused_before(changes: dict[str, Any], output: str) -> None:
    with pytest.raises(ProblemError, match=output):
        pose(dataclasses.replace(make_append(append_case(**CASES["psskddv_half_pagedkv"])), **changes), "gfx950")

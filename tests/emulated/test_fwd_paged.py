"""fwd_pagedkv and split-KV over a paged KV cache, as the default upstream's templates give them, run on the emulator.

Pages are scattered over a pool whose other bytes are NaN. O is compared with the float64 reference, which finds a
page taken for another. Unused table entries name a page outside of all memory: reading it faults.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpm.attention.launch.fwd_launching import laid_out, launch, run_attention
from ckpm.kernels.abi import Status
from ckpm.matrix.problems.case import SuiteCase
from ckpm_emulator.device import EmulatedGpu
from emulator_child import on_device
from tests.emulated.emulator_fwd import (
    UNRACED,
    build,
    check_refusals,
    compare_outcome,
    compare_twice,
    open_device,
    tensors,
)

PLAIN = "key.dtype == 'bf16' and key.hdim_q == 128"
FEATURES = (
    ("batch", "no", "no", False), ("batch", "mask", "alibi", False), ("group", "no", "bias", False),
    ("group", "mask", "no", True),
)  # fmt: skip
WHERE = f"{PLAIN} and key.pad == 'pssk' and (key.mode, key.mask, key.bias, key.logits) in {FEATURES}"
SPLIT = (
    f"{PLAIN} and key.pad in ('pssk', 'ps') and (key.family == 'fwd_splitkv_combine' and"
    " (key.mode == 'batch' or not key.lse) or key.mode == 'batch' and key.pad == 'pssk' and key.paged_kv and"
    " key.mask == 'mask' and key.bias == 'no' and not key.logits)"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four kernels, each feature in one of them: about half a minute of compiling."""
    return build(tmp_path_factory, "paged", ("fwd_pagedkv",), WHERE, tier="full")


@pytest.fixture(scope="module")
def split_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One key of the first stage, and combine kernels as in test_fwd_splitkv.py: half a minute of compiling."""
    families = ("fwd_splitkv", "fwd_splitkv_combine")
    return build(tmp_path_factory, "paged_splitkv", families, SPLIT, tier="full")


def problem(**changes: Any) -> SuiteCase:
    """bf16, head dim 128, two sequences of 70 queries in batch mode, over pages of 128 tokens."""
    sound = {
        "name": "paged", "suite": "batch-prefill", "tier": "full", "group": "paged", "mode": "batch",
        "seqlens_q": (70, 70), "seqlens_k": (300, 129), "nhead_q": 2, "page_size": 128, "kv_table": "vllm",
        "table_end": "minus_one", "alibi_per_batch": True,
    }  # fmt: skip
    return SuiteCase(**{**sound, **changes})


CAUSAL = {"mask": "bottom_right", "window_right": 0}
WINDOW = {"window_left": 60, "window_right": 7}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"seqlens_k": (256, 256), "page_size": 256},  # whole pages, one length
        {"seqlens_q": (1, 1), "seqlens_k": (1000, 5), "nhead_q": 4, "nhead_k": 2, "page_order": "reversed"},
        {"bias": "alibi", **CAUSAL},
        {"bias": "alibi", "seqlens_k": (700, 40), "page_size": 256, "mask": "bottom_right", **WINDOW},
        {"mode": "group", "bias": "bias", "seqlens_q": (5, 130), "seqlens_k": (257, 90)},
        {"mode": "group", "logits_soft_cap": 3.0, "seqlens_q": (130, 5), "seqlens_k": (90, 257), **CAUSAL},
        {"mode": "group", "logits_soft_cap": 1.0, "seqlens_q": (9, 40), "seqlens_k": (500, 70), "mask": "top_left"},
        {
            "mode": "group",
            "logits_soft_cap": 9.0,
            "seqlens_q": (3, 200),
            "seqlens_k": (5, 600),
            "mask": "window",
            **WINDOW,
        },
    ],
)
@on_device("gfx950")
def test_o_agrees_with_reference(device: EmulatedGpu, library: Path, changes: dict[str, Any]) -> None:
    p = problem(**changes)
    launched, (kernel,) = compare_twice(device, library, p)
    assert (launched.family, len(launched.kernels)) == ("fwd_pagedkv", 4)
    assert f"_{p.mode}_" in kernel
    assert ("_nmask_" in kernel, "_nlogits_" in kernel) == (p.mask == "no", p.logits_soft_cap == 0)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("splits", "changes"),
    [
        (3, {}),
        (2, {"seqlens_k": (512, 512), "page_size": 256, "lse": True}),  # whole kN0 steps in each split
        (5, {"seqlens_q": (1, 1), "seqlens_k": (40, 900), "nhead_q": 4, "lse": True}),  # splits without a key
    ],
)
@on_device("gfx950")
def test_split_kv_agrees_with_reference(
    device: EmulatedGpu, split_library: Path, splits: int, changes: dict[str, Any]
) -> None:
    p = problem(**CAUSAL, **changes)
    _, kernels = compare_twice(device, split_library, p, splits=splits, checks=UNRACED)
    assert "_pagedkv_" in kernels[0]


@on_device("gfx950")
def test_lengths_may_be_told_apart_from_places_of_keys(device: EmulatedGpu, library: Path) -> None:
    """Test group mode: seqlen_k_ptr goes before seqstart_k, and orders the workgroups otherwise."""
    p = problem(mode="group", bias="bias", seqlens_q=(5, 130), seqlens_k=(257, 90))
    bits = tensors(p)
    hip, opened = open_device(device, library)
    arrays = laid_out(p, bits)
    arrays["seqlen_k_ptr"] = np.array(p.seqlens_k, np.int32)
    arrays["seqstart_k"] = np.array([0, 500, 1000], np.int32)
    compare_outcome(p, bits, launch(hip, opened, p, arrays))


@on_device("gfx950")
def test_unused_entry_would_fault_if_it_were_read(device: EmulatedGpu, library: Path) -> None:
    p = problem()
    hip, opened = open_device(device, library)
    arrays = laid_out(p, tensors(p))
    assert (arrays["block_table"] == -1).sum() == 8 + 9  # beyond 3 and 2 pages
    arrays["block_table"][0, 2] = -1
    ended = launch(hip, opened, p, arrays).launch
    assert ended.status == Status.HIP_ERROR
    assert "an illegal memory access was encountered" in ended.message


@on_device("gfx950")
def test_page_taken_for_another_is_noticed(device: EmulatedGpu, library: Path) -> None:
    p = problem()
    bits = tensors(p)
    hip, opened = open_device(device, library)
    arrays = laid_out(p, bits)
    table = arrays["block_table"]
    table[0, [0, 1]] = table[0, [1, 0]]  # the order of whole pages doesn't matter without a mask
    compare_outcome(p, bits, launch(hip, opened, p, arrays))
    table[0, 1] = table[1, 0]
    with pytest.raises(AssertionError, match="elements differ"):
        compare_outcome(p, bits, launch(hip, opened, p, arrays))


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        ("block_table must not be null", {"block_table": 0}),
        ("page_block_size must be a positive multiple of 128 with a block_table", {"page_block_size": 64}),
        ("page_block_size must be a positive multiple of 128 with a block_table", {"page_block_size": 0}),
        ("cache_batch_idx must be null with a block_table", {"cache_batch_idx": 1}),
        ("is_gappy needs group mode, a block_table and seqlen_k_ptr", {"is_gappy": 1}),
        ("stride_o_acc must be 0: fwd_pagedkv doesn't know it", {"stride_o_acc": 1}),
        ("p_drop must be 0: fwd_pagedkv doesn't know it", {"p_drop": 0.5}),
        ("lse must not be null with has_lse", {"has_lse": 1}),
    ],
)
@on_device("gfx950")
def test_problem_that_contradicts_itself_is_refused(
    device: EmulatedGpu, library: Path, message: str, wrong: dict[str, int]
) -> None:
    _, opened = open_device(device, library)
    sound = {"batch": 1, "nhead_q": 1, "nhead_k": 1, "hdim_q": 128, "hdim_v": 128, "page_block_size": 128}
    pointers = dict.fromkeys(("q", "k", "v", "o", "block_table"), 1)
    check_refusals(opened, sound | pointers, {message: wrong})


@on_device("gfx950")
def test_there_is_no_kernel_that_gives_lse(device: EmulatedGpu, library: Path) -> None:
    """Upstream lists none: LSE over a paged cache is split-KV's."""
    p = problem(lse=True)
    hip, opened = open_device(device, library)
    assert run_attention(hip, opened, p, tensors(p)).launch.status == Status.UNSUPPORTED

"""Split-KV and its combine stage as the default upstream's templates give them, run on the emulator.

The keys are cut into splits, each of which has an O and an LSE in float32. The combine kernel merges them. The result
is compared with the float64 reference of the whole, within the suites' tolerances.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from ckpm.attention.launch.fwd_launching import laid_out, launch
from ckpm_emulator.device import EmulatedGpu
from emulator_child import on_device
from tests.emulated.emulator_fwd import (
    UNRACED,
    build,
    check_refusals,
    compare_outcome,
    compare_twice,
    open_device,
    problem,
    tensors,
)

pytestmark = pytest.mark.nightly  # compiles for a minute or two

FAMILIES = ("fwd_splitkv", "fwd_splitkv_combine")
STARTS = ("seqstart_q", "seqstart_k")
WHERE = (
    "key.pad in ('pssk', 'ps') and (key.mode == 'batch' or key.family == 'fwd_splitkv' and key.mask == 'mask' "
    "or key.family == 'fwd_splitkv_combine' and not key.lse)"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernels with and without mask, with and without LSE, and in group mode with mask and without LSE: 22 machine-code
    kernels, about two minutes of compiling.
    """
    return build(tmp_path_factory, "splitkv", FAMILIES, WHERE)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("shape", "splits", "lse"),  # seqlen_q, seqlen_k, nhead_q, nhead_k
    [
        ((70, 500, 2, 1), 3, True),  # uneven splits
        ((32, 512, 1, 1), 2, False),  # whole kN0 steps in each split
        ((1, 300, 4, 1), 2, True),  # one query: heads are merged into rows where there is no mask
        ((16, 200, 1, 1), 9, False),  # splits without a key; the combine kernel for up to 16
    ],
)
@on_device("gfx950")
def test_o_agrees_with_reference(
    device: EmulatedGpu, library: Path, shape: tuple[int, int, int, int], splits: int, lse: bool, causal: bool
) -> None:
    p = problem(*shape, causal, batch=2, lse=lse)
    opened, (split, combine) = compare_twice(device, library, p, splits=splits, checks=UNRACED)
    assert (opened.family, len(opened.kernels)) == ("fwd_splitkv", 6)
    assert (opened.kernels.index(split), opened.kernels.index(combine)) == (int(causal), 3 if lse else 4)


@pytest.mark.parametrize("splits", [2, 5])
@on_device("gfx950")
def test_o_of_group_agrees_with_reference(device: EmulatedGpu, library: Path, splits: int) -> None:
    """Sequences of different lengths; the second has no key in most of its splits."""
    p = dataclasses.replace(problem(1, 1, 2, 1, causal=True), mode="group", seqlens_q=(70, 9), seqlens_k=(500, 30))
    opened, kernels = compare_twice(device, library, p, splits=splits, checks=UNRACED)
    assert [opened.kernels.index(name) for name in kernels] == [2, 5]


@on_device("gfx950")
def test_sequences_are_found_in_cache_by_index_and_length(device: EmulatedGpu, library: Path) -> None:
    """A contiguous KV cache: places of 200 keys, of which sequences fill 200 and 77, in another order."""
    p = problem(16, 200, 1, 1, causal=False, batch=2)
    bits = tensors(p)
    hip, opened = open_device(device, library)
    arrays = laid_out(p, bits)
    for name in ("k", "v"):
        cache = np.full_like(bits[name], 0xFFFF)  # NaN
        cache[200:], cache[:77] = bits[name][:200], bits[name][200:277]
        arrays[name] = cache
    arrays["cache_batch_idx"] = np.array([1, 0], np.int32)
    arrays["seqlen_k_ptr"] = np.array([200, 77], np.int32)
    outcome = launch(hip, opened, dataclasses.replace(p, splits=3), arrays)
    short = dataclasses.replace(p, seqlens_k=(200, 77))
    compare_outcome(short, {**bits, "k": bits["k"][:277], "v": bits["v"][:277]}, outcome)


@on_device("gfx950")
def test_problem_that_contradicts_itself_is_refused(device: EmulatedGpu, library: Path) -> None:
    _, opened = open_device(device, library)
    sound = {"batch": 1, "nhead_q": 1, "nhead_k": 1, "hdim_q": 128, "hdim_v": 128, "q": 1, "k": 1, "v": 1, "o": 1}
    split, group = {"num_splits": 2, "lse_acc": 1, "o_acc": 1}, dict.fromkeys(("is_group_mode", *STARTS), 1)
    refused = {
        "num_splits must be 1 to 128": {"num_splits": 129},
        "o_acc must not be null": {"num_splits": 2, "lse_acc": 1},
        "cache_batch_idx must be null in group mode": {**split, **group, "cache_batch_idx": 1},
        "has_dropout must be 0: fwd_splitkv doesn't know it": {**split, "has_dropout": 1},
    }
    check_refusals(opened, sound, refused)

"""Kernels of fwd as the default upstream's templates give them, chosen by our dispatch and run on the emulator.

O and LSE are compared with the float64 reference within the suites' tolerances. The kernel of a request is compared
with upstream's conditions: a tile of 16 rows serves at most 16 queries, and whole tiles of keys need no padding.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpm.attention.launch.c_abi import load
from ckpm.attention.launch.fwd_launching import run_attention
from ckpm.kernels import abi
from ckpm.kernels.abi import Status
from ckpm_emulator.device import EmulatedGpu
from emulator_child import on_device
from tests.emulated.emulator_fwd import around, build, check_refusals, compare_twice, open_device, problem, tensors

# b16x32 with transposing loads and b128x128 in batch mode, with and without mask
PLAIN = (
    "key.dtype == 'bf16' and key.mode == 'batch' and key.tile.bm0 in (16, 128) and key.tile.bn0 != 64 "
    "and key.pad in ('psskddv', 'npad') and not (key.dropout or key.lse)"
)
# a kernel each, for test_fwd_features.py and test_kernel_cases.py: one library serves the three files
DROPOUT = (
    "key.dtype == 'bf16' and key.mode == 'group' and key.pad == 'psskddv' and key.dropout and key.lse "
    "and key.mask == 'mask'"
)
FP8 = (
    "key.dtype == 'fp8bf16' and key.mode == 'batch' and key.pad == 'pssk' and key.qscale == 'pertensor' "
    "and key.mask == 'no'"
)
WHERE = f"key.hdim_q == 128 and key.bias == 'no' and not (key.logits or key.skip) and ({PLAIN} or {DROPOUT} or {FP8})"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six kernels: about a minute and a half of compiling."""
    return build(tmp_path_factory, "fwd", ("fwd",), WHERE, tier="full")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("shape", "pipeline"),  # seqlen_q, seqlen_k, nhead_q, nhead_k
    [((16, 64, 2, 1), "qr_async_trload"), ((1, 130, 1, 1), "qr_async_trload"), ((200, 300, 2, 1), "qr_async")],
)
@on_device("gfx950")
def test_o_agrees_with_reference(
    device: EmulatedGpu, library: Path, shape: tuple[int, int, int, int], pipeline: str, causal: bool
) -> None:
    p = problem(*shape, causal, batch=2)
    opened, (kernel,) = compare_twice(device, library, p)
    assert (opened.family, opened.dialect, len(opened.kernels)) == ("fwd", "ck-2025-11", 6)
    assert f"_{pipeline}_vr_" in kernel
    assert ("_nmask_" in kernel) != causal


@on_device("gfx950")
def test_what_no_kernel_serves_is_refused(device: EmulatedGpu, library: Path) -> None:
    """The 128-row kernel here pads keys: whole tiles of them are another kernel's, which is not in the library."""
    p = problem(200, 256, 1, 1, causal=False)
    hip, opened = open_device(device, library)
    outcome = run_attention(hip, opened, p, tensors(p))
    assert (outcome.launch.status, outcome.launch.kernels) == (Status.UNSUPPORTED, ())
    assert outcome.launch.message == "no kernel of this library serves the request"


@on_device("gfx942")
def test_another_arch_has_no_kernel_here(device: EmulatedGpu, library: Path) -> None:
    p = problem(16, 64, 1, 1, causal=False)
    opened, hip = load(library, abi.FwdArguments), around(device)
    assert run_attention(hip, opened, p, tensors(p)).launch.status == Status.UNSUPPORTED


@on_device("gfx950")
def test_problem_that_contradicts_itself_is_refused(device: EmulatedGpu, library: Path) -> None:
    _, opened = open_device(device, library)
    refused = {
        "nhead_k must be positive": {"nhead_k": 0},
        "num_splits must be 0: fwd doesn't know it": {"num_splits": 2},
        "lse must not be null with has_lse": {"has_lse": 1},
        "the caller's ckpm_fwd_problem is of another version: use this library's ckpm_fwd.h": {"abi_version": 2},
    }
    sound = {"batch": 1, "nhead_q": 1, "nhead_k": 1, "hdim_q": 128, "hdim_v": 128, "q": 1, "k": 1, "v": 1, "o": 1}
    check_refusals(opened, sound, refused)

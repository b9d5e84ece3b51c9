"""fwd_v3 of the default upstream (bf16) as our templates give it, chosen by our dispatch and run on the emulator.

Its machine code has LDS reads that transpose, wide loads to LDS, swaps between lanes and packed conversions. O is
compared with the float64 reference within the suites' tolerances.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from ckpm.attention.launch.c_abi import load
from ckpm.attention.launch.fwd_launching import run_attention
from ckpm.kernels import abi
from ckpm.kernels.abi import Status
from ckpm_emulator.device import EmulatedGpu
from emulator_child import on_device
from tests.emulated.emulator_fwd import around, build, check_refusals, compare_twice, open_device, problem, tensors

pytestmark = pytest.mark.nightly  # compiles for a minute or two


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both kernels of a data type, with and without a causal mask: about a minute of compiling."""
    return build(tmp_path_factory, "fwd_v3", ("fwd_v3",), "key.dtype == 'bf16'")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("shape", "batch"),  # seqlen_q, seqlen_k, nhead_q, nhead_k
    [((256, 256, 1, 1), 1), ((300, 500, 2, 1), 1), ((64, 130, 2, 2), 2), ((1024, 1024, 1, 1), 1)],
)
@on_device("gfx950")
def test_o_agrees_with_reference(
    device: EmulatedGpu, library: Path, shape: tuple[int, int, int, int], batch: int, causal: bool
) -> None:
    p = problem(*shape, causal, batch=batch)
    opened, kernels = compare_twice(device, library, p)
    assert (opened.family, opened.dialect, len(opened.kernels)) == ("fwd_v3", "ck-2025-11", 2)
    assert kernels == (f"fmha_fwd_v3_d128_bf16_{'mask' if causal else 'nmask'}",)


@on_device("gfx950")
def test_problem_that_v3_computes_otherwise_is_refused(device: EmulatedGpu, library: Path) -> None:
    """Upstream's own function launches for any head dims, and its arguments have no place for most features."""
    _, opened = open_device(device, library)
    served: dict[str, Any] = {"data_type": "bf16", "batch": 1, "nhead_q": 1, "nhead_k": 1, "hdim_q": 128, "hdim_v": 128}
    served |= {"q": 1, "k": 1, "v": 1, "o": 1, "is_v_rowmajor": 1}
    kinds = abi.FwdArguments.kinds()
    foreign = [name for name, kind in kinds.items() if kind is ctypes.c_void_p and name not in (*"qkvo", "stream")]
    refused: dict[str, dict[str, Any]] = {
        f"{name} must be null: fwd_v3 doesn't know it": {name: 1} for name in foreign if "cu_seq" not in name
    }
    served_names = {
        *served,
        "struct_bytes",
        "abi_version",
        "seqlen_q",
        "seqlen_k",
        "mask_type",
        "window_left",
        "window_right",
    }
    served_names |= {f"{part}stride_{name}" for part in ("", "nhead_", "batch_") for name in "qkvo"}
    served_names |= {"scale_s", "warmup", "repeat"}
    numbers = [name for name, kind in kinds.items() if kind is not ctypes.c_void_p and name not in served_names]
    assert {"is_group_mode", "has_lse", "num_splits", "p_drop", "scale_p", "bias_type"} <= set(numbers)
    refused |= {f"{name} must be 0: fwd_v3 doesn't know it": {name: 1} for name in numbers}
    refused |= {
        "mask_type must be 0 to 2: fwd_v3 has no window": {"mask_type": 3, "window_left": 5},
        "window_left must be negative: fwd_v3's masks end on the right alone": {"mask_type": 2, "window_left": 5},
        "is_v_rowmajor must be 1: fwd_v3 has row-major V alone": {"is_v_rowmajor": 0},
    }
    check_refusals(opened, served, refused)
    for wrong in ({"hdim_q": 64}, {"hdim_v": 256}, {"data_type": "fp16"}, {"data_type": "fp32"}):
        launch = opened.launch(abi.FwdArguments(**{**served, **wrong}))
        assert (launch.status, launch.kernels) == (Status.UNSUPPORTED, ()), wrong


@on_device("gfx942")
def test_another_arch_has_no_kernel_here(device: EmulatedGpu, library: Path) -> None:
    p = problem(16, 64, 1, 1, causal=False)
    opened, hip = load(library, abi.FwdArguments), around(device)
    assert run_attention(hip, opened, p, tensors(p)).launch.status == Status.UNSUPPORTED

"""Libraries of fwd, paged and split-KV for tests that run them on the emulator, their problems, and the comparison."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpm.attention.launch.c_abi import Library, load
from ckpm.attention.launch.device import EmulatedDevice
from ckpm.attention.launch.fwd_launching import FwdOutcome, run_attention
from ckpm.attention.launch.hip_api import HipApi
from ckpm.base.settings import cache_folder
from ckpm.kernels import abi
from ckpm.kernels.abi import Status
from ckpm.kernels.code.toolchains import detect
from ckpm.kernels.library import building
from ckpm.kernels.library.request import LIBRARY, BuildRequest
from ckpm.kernels.upstream.trees import locate
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.selection import Selection
from ckpm.suites.fwd_cases import comparisons
from ckpm.suites.fwd_cases import tensors as tensors
from ckpm_emulator.device import EmulatedGpu
from tests.unit.shared import made_once

CHECKS = dict.fromkeys(("poison", "poison_memory", "late_loads", "lds_races"), True)
# Waves of the combine kernel beyond those that its LSE tile needs are replicas: they write the same numbers to the same
# places in LDS, by design (Replicate in block_fmha_fwd_splitkv_combine_pipeline_default_policy.hpp).
UNRACED = {**CHECKS, "lds_races": False}


def open_device(
    device: EmulatedGpu, library: Path, kind: type[abi.CheckedArguments] = abi.FwdArguments
) -> tuple[EmulatedDevice, Library]:
    device.load_library(library)
    return around(device), load(library, kind)


def around(device: EmulatedGpu) -> EmulatedDevice:
    """The device of launches, over the emulator that a test's process has already."""
    emulated = EmulatedDevice.__new__(EmulatedDevice)
    emulated._device, emulated._options, emulated.arch = device, device.options, device.options.arch
    emulated.hip = HipApi(ctypes.CDLL(None), device.last_error)
    return emulated


def build(
    factory: pytest.TempPathFactory, name: str, families: tuple[str, ...], where: str, tier: str = "smoke"
) -> Path:
    """A library of the default upstream for gfx950: the kernels of a tier that meet a --where expression.

    All workers share the library ``name``.
    """

    def make(folder: Path) -> None:
        request = BuildRequest(
            selection=Selection(archs=("gfx950",), families=families, tier=tier, where=(where,)),
            tree=locate("aiter", cache=cache_folder()),
            toolchain=detect("embedded", cache=cache_folder()),
            work=folder,
            object_cache=cache_folder() / "objects",
        )
        building.run(request, jobs=2)

    (library,) = made_once(factory, name, make).glob(f"build/**/{LIBRARY}")
    return library


def problem(
    seqlen_q: int, seqlen_k: int, nhead_q: int, nhead_k: int, causal: bool, *, batch: int = 1, lse: bool = False
) -> SuiteCase:
    """bf16 with head dim 128 in batch mode."""
    mask: dict[str, Any] = {"mask": "bottom_right", "window_right": 0} if causal else {}
    return SuiteCase(
        name="fwd", suite="batch-prefill", tier="full", group="fwd", mode="batch", seqlens_q=(seqlen_q,) * batch,
        seqlens_k=(seqlen_k,) * batch, nhead_q=nhead_q, nhead_k=nhead_k, lse=lse, **mask,
    )  # fmt: skip


def compare_outcome(p: SuiteCase, bits: dict[str, np.ndarray], outcome: FwdOutcome) -> None:
    """O, and LSE if there is one, are as near to the reference as rounding leaves them."""
    assert outcome.launch.status == Status.OK, outcome.launch
    assert (outcome.lse is not None) == p.lse
    compared = comparisons(p, bits, outcome)
    assert all(comparison.passed for comparison in compared), "; ".join(map(str, compared))
    assert compared[0].worst > 0.02  # the bound is tight


def compare_twice(
    device: EmulatedGpu, library: Path, p: SuiteCase, *, splits: int = 0, checks: Mapping[str, bool] = CHECKS
) -> tuple[Library, tuple[str, ...]]:
    """Compare O and LSE of random tensors; return the library and the names of the kernels.

    O is the same with ``checks`` and another order: nothing depends on what registers and LDS held, on loads that land
    early, or on the waves' order.
    """
    bits, request = tensors(p), dataclasses.replace(p, splits=splits)
    hip, opened = open_device(device, library)
    first = run_attention(hip, opened, request, bits)
    compare_outcome(p, bits, first)
    device.configure(**checks, wave_order=1)
    assert np.array_equal(first.o, run_attention(hip, opened, request, bits).o)
    return opened, first.launch.kernels


def check_refusals(opened: Library, sound: Mapping[str, Any], refused: Mapping[str, Mapping[str, Any]]) -> None:
    """Launches with fields that differ from a ``sound`` problem's are refused, each with its message."""
    for message, wrong in refused.items():
        launch = opened.launch(opened.arguments(**{**sound, **wrong}))
        assert (launch.status, launch.message) == (Status.BAD_PROBLEM, message)


def append_case(**fields: Any) -> SuiteCase:
    """A causal case over a contiguous cache, but for the ``fields``."""
    plain: dict[str, Any] = {"nhead_q": 4, "nhead_k": 2, "mask": "top_left", "page_size": 0, "rotary_dim": 128}
    return SuiteCase(name="", suite="", tier="", group="", mode="batch", **{**plain, **fields})

"""Decode problems without Triton: what is refused, what a cache stands for, and that forced launches are guarded."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpm.base.errors import UsageError
from ckpm.decode.guard.command import OWN
from ckpm.decode.guard.table import Guarded, read_guard_table
from ckpm.decode.problem import BASE, FORCED, DecodeLaunch, attention_candidate, quantise, reduction_candidate
from tests.decode.posed import dequantise
from tests.unit.shared import Run


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"stored": "fp4"}, "the cache is fp8, int8"),
        ({"head_dim": 96}, "head dims 64, 128, 256"),
        ({"groups": 3}, "3 groups"),
        ({"head_dim": 64, "groups": 8}, "8 groups of head dim 64"),
        ({"heads_q": 17}, "17 query heads"),
    ],
)
def test_shape_not_served_is_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        dataclasses.replace(BASE, **change)


@given(st.sampled_from(["fp8", "int8"]), st.sampled_from(["gfx942", "gfx950"]), st.integers(0, 1000))
def test_quantised_cache_is_within_step_of_its_values(stored: str, arch: str, seed: int) -> None:
    """A step of int8 is 1/254 of a group's extent, of fp8 at most 1/30 (16 of 480: 3 bits below the largest)."""
    values = np.random.default_rng(seed).normal(3.0, 2.0, (5, 2, 64))
    again = dequantise(*quantise(values, 4, stored, arch), stored, arch)
    grouped = values.reshape(5, 2, 4, 16)
    extent = np.repeat(grouped.max(-1) - grouped.min(-1), 16, axis=-1).reshape(values.shape)
    assert (np.abs(again - values) <= extent / (254 if stored == "int8" else 30)).all()


def configurations_of(kernel: Guarded, arch: str, head_dim: int) -> list[dict[str, Any]]:
    dims = {case.constexprs["HEAD_DIM"] for case in kernel.cases}
    if kernel.function != "streaming" or arch not in kernel.archs or head_dim not in dims:
        return []
    return [dict(configuration) for configuration in kernel.configurations]


@pytest.mark.parametrize(("arch", "head_dim"), FORCED)
def test_forced_launch_is_in_guard_table(arch: str, head_dim: int) -> None:
    launch: DecodeLaunch = FORCED[arch, head_dim]
    expected = {"BLOCK_M": launch.block_m, "BLOCK_N": launch.block_n, "STEP": launch.step, **launch.options}
    tables = [configurations_of(kernel, arch, head_dim) for kernel in read_guard_table(OWN).kernels]
    assert expected in [configuration for table in tables for configuration in table]


@pytest.mark.parametrize(
    "command", [["decode", "build"], ["decode", "compare", "--tune", "streaming-fp8"], ["gate", "--family", "decode"]]
)
def test_arch_without_launches_is_refused(monkeypatch: pytest.MonkeyPatch, run: Run, command: list[str]) -> None:
    for module in ("built", "compare"):
        monkeypatch.setattr(f"ckpm.decode.{module}.demand_triton", lambda: None)
    code, _, err = run(*command, "--arch", "gfx90a")
    assert (code, "no decode kernels of gfx90a, only of gfx942, gfx950" in err) == (UsageError.exit_code, True)


def test_each_arch_has_its_own_fp8() -> None:
    kinds = {
        arch: attention_candidate("streaming", BASE, FORCED[arch, 128], arch).signature["k"]
        for arch in ("gfx942", "gfx950")
    }
    assert kinds == {"gfx942": "*fp8e4b8:16", "gfx950": "*fp8e4nv:16"}


@pytest.mark.parametrize(("splits", "block"), [(1, 2), (2, 2), (3, 4), (8, 8), (9, 16)])
def test_reduction_reads_all_splits(splits: int, block: int) -> None:
    reduction = reduction_candidate(dataclasses.replace(BASE, splits=splits), "gfx950")
    assert reduction.constexprs["BLOCK_SPLITS"] == block

"""Launches over dies and compute units: cycles of schedules worked out by hand."""

from __future__ import annotations

import pytest

from ckpm.base.errors import InconclusiveError
from ckpm.timing.grid import DIES, cycles
from ckpm.timing.launches import Workgroup, answers, asm_keys, ck_keys, declared_copies, estimate, latency
from ckpm.timing.machine import launch_numbers
from ckpm.timing.published import PublishedShape, published_figures

ALONE = (1.0,)


def on_first_die(*lengths: float) -> list[float]:
    """Lengths of workgroups 0, 8, 16 and so on; the others take no time."""
    return [time for length in lengths for time in (length, *[0.0] * (DIES - 1))]


def test_equal_workgroups_take_rounds() -> None:
    assert cycles([10.0] * 16, 16, ALONE) == 10
    assert cycles([10.0] * 17, 16, ALONE) == 20
    assert cycles([10.0] * 64, 16, ALONE) == 40


def test_workgroup_goes_to_unit_that_is_free_first() -> None:
    """Two units of a die: one has 5 and then 1, the other 3 and then 4."""
    assert cycles(on_first_die(5, 3, 4, 1), 16, ALONE) == 7


def test_workgroups_alternate_between_dies() -> None:
    """A grid whose every eighth workgroup is long keeps one die busy."""
    assert cycles([9.0 if number % 8 == 3 else 1.0 for number in range(32)], 8, ALONE) == 36


def test_second_copy_comes_when_each_unit_has_one() -> None:
    speeds = (1.0, 0.5)
    assert cycles(on_first_die(4, 4), 16, speeds) == 4  # on two units
    assert cycles(on_first_die(4, 4), 8, speeds) == 8  # on one
    assert cycles(on_first_die(4, 2), 8, speeds) == 6  # 4 cycles together, then 2 alone


def test_causal_grids_have_their_keys() -> None:
    shape = PublishedShape(batch=1, heads=2, kv_heads=1, length=512, head_dim=128, causal=True)
    assert list(asm_keys(shape)) == [512] * 2  # tiles 0 and 1 of 256 queries together, for each head
    assert list(ck_keys(shape, 128)) == [512, 512, 384, 384, 256, 256, 128, 128]


def test_copies_declared_by_ck_come_from_kernel_name() -> None:
    """The name that clang gives ck_tile::kentry<gfx950_t, 3, FmhaFwdKernel<...>>."""
    assert declared_copies("_ZN7ck_tile6kentryINS_8gfx950_tELi3ENS_13FmhaFwdKernelINS_28BlockFmhaELi7EEEvv") == 3
    with pytest.raises(InconclusiveError, match="does not say"):
        declared_copies("_ZN5aiter19fmha_fwd_hd128_bf16E")


@pytest.mark.parametrize(
    ("batch", "length", "level"),
    [(1, 1024, "L2"), (1, 1025, "Infinity Cache"), (64, 1024, "Infinity Cache"), (65, 1024, "HBM")],
)
def test_latency_is_of_cache_that_holds_k_and_v(batch: int, length: int, level: str) -> None:
    """8 heads of K and V with 1,024 tokens of 128 dims in bf16 are 4 MiB, as much as L2 holds; 64 of them 256 MiB."""
    measured = {figure.label: figure.value for figure in published_figures() if figure.kernel == "global-chase"}
    shape = PublishedShape(batch=batch, heads=64, kv_heads=8, length=length, head_dim=128, causal=False)
    for arch in ("gfx942", "gfx950"):
        assert latency(shape, launch_numbers(arch)) == measured[level]


def test_workgroup_is_linear_in_its_keys() -> None:
    pairs = ((2400.0, 3000.0, 3600.0),)
    law = Workgroup(keys=(100, 200), cycles=(1000.0, 1800.0), matrix=(400.0, 800.0), together=pairs)
    assert law.at(400) == (3400, 1600)
    assert law.speeds() == pytest.approx((1, 0.6))
    estimated = estimate(law, [400] * 16, 8)  # two on each unit, at 0.6, 0.75 and 0.5 of the speed
    assert [estimated.value, estimated.least, estimated.most] == pytest.approx(
        [3400 / speed for speed in (0.6, 0.75, 0.5)]
    )
    assert estimated.matrix_share == pytest.approx(16 * 1600 / (8 * 3400 / 0.6))


def test_figure_of_ck_without_library_of_ck_is_refused() -> None:
    """The figure must not get the cycles of AITER's kernel."""
    figures = [
        figure for figure in published_figures() if figure.arch == "gfx950" and figure.model in ("stream", "fwd")
    ]
    count = sum(figure.model == "fwd" for figure in figures)
    with pytest.raises(InconclusiveError, match=f"^{count} figures are of CK's forward kernels, on gfx950: give a "):
        answers("gfx950", 256, figures, None)

"""Budgets: what a kernel may need, which are excused and until when, and mistakes in the table."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path

import pytest

from ckpm.base.errors import TableError
from ckpm.matrix.dialects import dialect
from ckpm.matrix.selection import Selection, select
from ckpm.reports.gates.budgets import BUDGETS, BuiltLibrary, read_budgets
from ckpm.reports.gates.comparing import read_thresholds
from ckpm.reports.verdicts import STATIC, VerdictRow
from tests.unit import manifests
from tests.unit.reports.test_gate import ALIBI, SMALL

FIGURES = {"vgpr": 200, "vgpr_spills": 0, "scratch_bytes": 0, "occupancy_waves": 2}
LOOP = {"loop_scratch": 0, "wait_hazards": 0, "missing_states": 0}
TODAY = datetime.date(2026, 11, 20)
BUILT = BuiltLibrary(arch="gfx950", upstream="aiter", toolchain="embedded")


def rows_of(
    name: str, figures: dict[str, int], file: Path = BUDGETS, today: datetime.date = TODAY, **built: str
) -> tuple[VerdictRow, ...]:
    """Judge one kernel by the project's own budgets, or by those of a file."""
    thresholds, (key,) = read_thresholds(STATIC), manifests.record(name).keys()
    budgets = read_budgets(thresholds, file)
    build = dataclasses.replace(BUILT, **built)
    return budgets.rows({name: key}, {name: figures}, thresholds, built=build, today=today)


def alibi_row(today: datetime.date, spills: int = 8) -> tuple[str, str]:
    """(verdict, note) for a kernel with ALiBi that spills."""
    (row,) = rows_of(ALIBI, {**FIGURES, **LOOP, "vgpr_spills": spills}, today=today)
    return row.verdict, row.note


def test_allowance_has_end_and_bound() -> None:
    verdict, note = alibi_row(TODAY)
    assert verdict == "unchanged"
    assert note.startswith("allowed until 2027-06-30")
    verdict, note = alibi_row(datetime.date(2027, 7, 1))
    assert verdict == "regressed"
    assert "expired on 2027-06-30" in note
    assert alibi_row(TODAY, spills=9)[0] == "regressed"


def own_rows(arch: str, **figures: int) -> set[tuple[str, str, str]]:
    """(subject's head dim and dtype, metric, verdict) for ckpm's smoke kernels that all have these figures."""
    thresholds = read_thresholds(STATIC)
    keys = {key.name: key for key in select(dialect("rocm-libraries-2026"), Selection(archs=(arch,), tier="smoke"))}
    stored = {name: {**FIGURES, **LOOP, **figures} for name in keys}
    built = BuiltLibrary(arch=arch, upstream="ckpm", toolchain="embedded")
    rows = read_budgets(thresholds).rows(keys, stored, thresholds, built=built, today=TODAY)
    return {(f"d{keys[row.subject].hdim_q}", row.metric, row.verdict) for row in rows}


def test_own_kernels_have_stricter_budgets() -> None:
    """Our kernels have none of the upstreams' excuses (ALiBi, the tile of 128 rows, a bias's tile)."""
    for arch in ("gfx942", "gfx950"):
        assert own_rows(arch, occupancy_waves=2) == set()
        for metric in ("vgpr_spills", "scratch_bytes", "loop_scratch"):
            regressed = {(dims, metric, "regressed") for dims in ("d128", "d256")}
            assert own_rows(arch, occupancy_waves=2, **{metric: 1}) == regressed
    wave = "occupancy_waves"
    assert own_rows("gfx950", occupancy_waves=1) == {("d128", wave, "regressed"), ("d256", wave, "unchanged")}
    # with dropout, random values beside K and V take gfx942's LDS
    assert own_rows("gfx942", occupancy_waves=1) == {("d128", wave, "regressed"), ("d128", wave, "unchanged")}


def test_budget_of_one_upstream_leaves_others_alone(tmp_path: Path) -> None:
    file = tmp_path / "budgets.yaml"
    text = "budgets:\n  b: {archs: '*', upstreams: [ckpm], reason: r, limits: {vgpr: {at_most: 1}}}\nallowed: {}\n"
    file.write_text(text)
    for upstream, count in (("ckpm", 1), ("aiter", 0)):
        assert len(rows_of(ALIBI, {**FIGURES, "vgpr": 2}, file, upstream=upstream)) == count
    file.write_text(text.replace("[ckpm]", "[ckpn]"))
    with pytest.raises(TableError, match=r"budgets\.yaml:2: .*unknown 'ckpn'; known: aiter, flash-attn, ckpm"):
        read_budgets(read_thresholds(STATIC), file)


ALLOWED = """\
budgets:
  b: {archs: "*", reason: r, limits: {vgpr_spills: {at_most: 0}}}
allowed:
  a:
    budget: b
    upstreams: "*"
    archs: "*"
    toolchains: [rocm]
    where: "key.bias == 'alibi'"
    limits: {vgpr_spills: {at_most: 8}}
    reason: its compiler spills
    expires: 2027-06-30
"""


def test_allowance_holds_for_its_toolchain_alone(tmp_path: Path) -> None:
    file = tmp_path / "budgets.yaml"
    file.write_text(ALLOWED)
    for toolchain, verdict in (("rocm", "unchanged"), ("embedded", "regressed")):
        (row,) = rows_of(ALIBI, {**FIGURES, "vgpr_spills": 8}, file, toolchain=toolchain)
        assert row.verdict == verdict
    file.write_text(ALLOWED.replace("[rocm]", "[hipcc]"))
    with pytest.raises(TableError, match=r"budgets\.yaml:8: .*unknown 'hipcc'; known: embedded, rocm"):
        read_budgets(read_thresholds(STATIC), file)


def test_limit_without_figure_is_not_pass() -> None:
    verdicts = {(row.metric, row.verdict) for row in rows_of(SMALL, FIGURES)}
    assert verdicts == {(metric, "missing") for metric in LOOP}


def test_mistake_in_budgets_is_named(tmp_path: Path) -> None:
    file = tmp_path / "budgets.yaml"
    budget = "budgets:\n  b:\n    archs: '*'\n    reason: r\n    where: {where}\n    limits: {limits}\nallowed: {{}}\n"
    for where, limits, complaint in (
        ("key.hdim == 1", "{vgpr: {at_most: 1}}", "unknown field 'key.hdim'"),
        ("key.hdim_q == 1", "{wgpr: {at_most: 1}}", "unknown 'wgpr'; known: vgpr"),
        ("key.hdim_q == 1", "{vgpr: {at_mots: 1}}", "unknown field; known here: at_most, at_least"),
    ):
        file.write_text(budget.format(where=where, limits=limits))
        with pytest.raises(TableError, match=r"budgets\.yaml:") as caught:
            read_budgets(read_thresholds(STATIC), file)
        assert complaint in str(caught.value)

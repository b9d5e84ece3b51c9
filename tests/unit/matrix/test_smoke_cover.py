"""The smoke libraries of the newest dialect serve every smoke problem with no superfluous kernel."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ckpm.matrix.dialects import dialect, dialect_names
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.asked import FIELDS
from ckpm.matrix.problems.case import SUITES, SuiteCase
from ckpm.matrix.problems.matching import not_asked
from ckpm.matrix.problems.performance import performance_problems
from ckpm.matrix.problems.problem import loads
from ckpm.matrix.problems.serving import measured_kernel, missing_kernel, missing_load, needed_values, serving_kernels
from ckpm.matrix.problems.tables import problems
from ckpm.matrix.selection import Selection, select_some, tiers
from ckpm.matrix.where import compile_where

NEWEST = "rocm-libraries-2026"
archs = pytest.mark.parametrize("arch", ["gfx942", "gfx950"])


@functools.cache
def smoke(arch: str, name: str = NEWEST) -> tuple[Key, ...]:
    return tuple(select_some(dialect(name), Selection(archs=(arch,), tier="smoke")))


@functools.cache
def asked_problems() -> tuple[SuiteCase, ...]:
    every = [problem for suite in SUITES for problem in problems(suite) if problem.expect == "ok"]
    left_out = not_asked(dialect(NEWEST), "gfx950", "simplified", every)
    return tuple(p for p in every if p.name not in left_out)


def unserved_problems(keys: Sequence[Key]) -> Iterator[str]:
    """The problems for which a library of these kernels may have none, whatever load mode its tree's selector takes."""
    for problem in asked_problems():
        if missing_kernel(keys, problem) or missing_load(keys, problem):
            yield problem.name


@archs
def test_smoke_problems_find_kernel_of_each_load_mode(arch: str) -> None:
    assert list(unserved_problems(smoke(arch))) == []


@pytest.mark.parametrize("name", dialect_names())
def test_smoke_tier_has_each_value_of_a_dialect(name: str) -> None:
    """A new value needs a row of matrix/selections.yaml. Our own dialects leave a bias to upstream's."""
    full = select_some(dialect(name), Selection(archs=("gfx950",)))
    for field in (*FIELDS, "mask", "load", "pipeline"):
        missing = {getattr(key, field) for key in full} - {getattr(key, field) for key in smoke("gfx950", name)}
        assert missing <= ({"bias", "alibi"} if name == "ckpm-extended" else set()), (
            f"{field}: add it to the tier smoke in matrix/selections.yaml"
        )


@archs
def test_smoke_tier_needs_each_of_its_kernels(arch: str) -> None:
    """The test above finds a kernel that the tier loses; this test finds a superfluous one."""
    keys = smoke(arch)
    only = {
        able[0].name
        for problem in asked_problems()
        for load in loads(problem)
        if len(able := [key for key in serving_kernels(keys, problem) if key.load == load]) == 1
    }
    assert {key.name for key in keys} - only == set()
    first = next(key for key in keys if key.page_size == 1024 and key.kv_layout == "linear" and key.mask == "no")
    without = set(unserved_problems([key for key in keys if key != first]))
    assert {"page-fault/paged.ps1024-linear-sglang", "dispatch/chosen_2026.ps1024"} <= without


@archs
def test_every_smoke_kernel_is_launched_by_our_own_selector(arch: str) -> None:
    """kernels/include_prefill: 64-bit loads for pages of one token and for pools that one descriptor does not reach.

    With ``tile_rows`` the first kernel that serves the problem is named. A pool at the default place is in reach.
    """
    launched = set()
    for problem in asked_problems():
        able = serving_kernels(smoke(arch), problem)
        if not problem.tile_rows:
            high = problem.placement in ("high", "crossing") or "bload" not in loads(problem)
            wanted = "gload" if problem.page_size == 1 or (problem.page_size < 128 and high) else "bload"
            able = tuple(key for key in able if key.load == wanted)
        launched.add(able[0].name)
    assert {key.name for key in smoke(arch)} - launched == set()


def test_figures_are_of_kernels_that_serving_takes() -> None:
    """Not of the 32-bit loads of pages of one token, which the newest selectors never take."""
    keys = {key.name: key for key in smoke("gfx950")}
    table = [p for p in performance_problems("smoke") if serving_kernels(keys.values(), p)]
    named = {p.name: keys[name] for p in table if (name := measured_kernel(keys.values(), p))}
    assert {(key.tile.bm0, key.mask) for key in named.values()} == {(m, k) for m in (64, 128) for k in ("no", "mask")}
    assert {key.load for key in named.values()} == {"gload"}
    assert {p.page_size for p in table if p.name not in named} == {1, 16}
    older = select_some(dialect("ck-2025-11"), Selection(archs=("gfx950",), tier="smoke"))
    for problem in table:
        name = measured_kernel(older, problem)
        able = serving_kernels(older, problem)
        assert name == (able[0].name if able and problem.tile_rows else None)


def test_load_modes_are_in_dialects_of_2026_only() -> None:
    """The selection for them does not change the smoke library, and the baselines, of packaged trees."""
    own = [compile_where(text) for text in tiers()["smoke"] if "key.load" in text]
    for name in ("ck-2025-06", "ck-2025-11"):
        assert not [key.name for key in smoke("gfx950", name) if any(keep(key) for keep in own)]


def test_left_out_problems_have_reason_others_kernel() -> None:
    every = [problem for suite in SUITES for problem in problems(suite)]
    left_out = not_asked(dialect(NEWEST), "gfx942", "simplified", every)
    older = {p.name for p in every if p.mode == "batch" or p.vlayout == "col"}
    assert older <= set(left_out)
    keys = enumerate_keys(dialect(NEWEST).family("batch_prefill"), arch="gfx942")
    served: dict[tuple[Any, ...], bool] = {}
    for problem in (p for p in every if p.expect == "ok"):
        needs = tuple(needed_values(problem).items())
        if needs not in served:
            served[needs] = bool(serving_kernels(keys, problem))
        assert (problem.name in left_out) != served[needs], problem.name
    assert not [problem.name for problem in every if problem.expect != "ok" and problem.name in left_out]
    assert left_out["batch-prefill/half.batch-q128k256"] == "mode batch: rule group_mode_only"
    assert left_out["batch-prefill/column_v.group-q64k128"] == "vlayout col: axis vlayout"


def test_child_dialect_leaves_out_problems_it_lacks() -> None:
    every = problems("batch-prefill")
    for name in ("ck-2025-06", "ck-2025-11"):
        assert not_asked(dialect(name), "gfx950", "simplified", every) == {}
    assert not_asked(dialect("rocm-libraries-2026-04"), "gfx950", "simplified", every)

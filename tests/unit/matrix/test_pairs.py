"""Pairwise designs: any two values meet that may, in few combinations; and the table's design, counted by its names."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ckpm.base.errors import TableError
from ckpm.matrix.dialects import dialect
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.pairs import AXES, cover, met, possible
from ckpm.matrix.problems.problem import serves
from ckpm.matrix.problems.tables import problems, read
from ckpm.matrix.selection import Selection, select


def allow_all(chosen: Mapping[int, int]) -> bool:
    return False


def meetings(combinations: Sequence[tuple[int, ...]]) -> set[tuple[tuple[int, int], tuple[int, int]]]:
    return {pair for one in combinations for pair in itertools.combinations(enumerate(one), 2)}


@pytest.mark.parametrize(
    ("sizes", "most"),
    [((2, 2), 4), ((3, 2, 2), 7), ((2, 2, 2, 2), 6), ((15, 7, 6, 7, 3), 115), ((4, 4, 4), 20), ((1, 3), 3)],
)
def test_cover_lets_any_two_values_meet_in_few_cases(sizes: Sequence[int], most: int) -> None:
    combinations = cover(sizes, allow_all)
    wanted = {
        ((i, a), (j, b))
        for i, j in itertools.combinations(range(len(sizes)), 2)
        for a, b in itertools.product(range(sizes[i]), range(sizes[j]))
    }
    assert meetings(combinations) == wanted
    assert len(combinations) == len(set(combinations)) <= most
    assert cover(sizes, allow_all) == combinations


def test_cover_leaves_out_what_is_forbidden_and_what_follows() -> None:
    """Axis 0 at 0 forbids both values of axis 1 unless axis 2 is 0: so 0 of axis 0 meets 0 of axis 2 alone."""

    def forbidden(chosen: Mapping[int, int]) -> bool:
        return chosen.get(0) == 0 and 1 in chosen and chosen.get(2) == 1

    found = meetings(cover((2, 2, 2), forbidden))
    every = meetings(list(itertools.product(range(2), repeat=3)))
    assert found == every - {((0, 0), (2, 1))}


def test_cover_without_possible_combination_is_empty() -> None:
    assert cover((2, 2), lambda chosen: 0 in chosen) == []


def name_words(group: str) -> list[tuple[str, ...]]:
    names = [p.name for p in problems("batch-prefill") if p.group == group]
    return [tuple(name.partition(".")[2].split("-")) for name in names]


@pytest.mark.parametrize(("group", "sizes"), [("pairs", (15, 7, 6, 7, 3)), ("pairs_paged", (11, 7, 6, 7, 3))])
def test_design_of_kernels_has_all_pairs_of_words(group: str, sizes: Sequence[int]) -> None:
    rows = name_words(group)
    assert tuple(len({row[axis] for row in rows}) for axis in range(5)) == sizes
    for i, j in itertools.combinations(range(5), 2):
        pairs = {(row[i], row[j]) for row in rows}
        out = {("fp16_vcol", "interleaved"), ("fp16_vcol", "gaps")} if (group, i, j) == ("pairs", 0, 4) else set()
        assert pairs == {*itertools.product({row[i] for row in rows}, {row[j] for row in rows})} - out


@pytest.mark.parametrize("name", ["ck-2025-11", "rocm-libraries-2026"])
def test_smoke_kernels_of_one_tile_see_many_counts_of_heads(name: str) -> None:
    """A mutant that was wrong for eight KV heads passed: most kernels saw (1, 1), (2, 1) and (6, 2) alone."""
    cases = [p for p in problems("batch-prefill") if p.expect == "ok"]
    for key in select(dialect(name), Selection(archs=("gfx950",), tier="smoke")):
        if key.hdim_q == 128 and key.dtype != "fp8bf16" and key.page_size in (None, 1, 16, 1024):
            heads = {(p.nhead_q, p.nhead_k) for p in cases if serves(key, p)}
            assert heads >= {(1, 1), (8, 8), (8, 1), (6, 2), (16, 4), (32, 8)}, key.name


TABLE = """suite: dispatch
groups:
  one:
    tier: smoke
    why: a test
    cover: pairs
    axes: {tile_rows: [64, 128], heads: [[1, 1], [2, 1]], lse: [false, true]}
    drop: [{tile_rows: 64, lse: true, why: a test}]
"""


def test_group_with_cover_keeps_its_drops(tmp_path: Path) -> None:
    file = tmp_path / "dispatch.yaml"
    file.write_text(TABLE)
    cases = read(file, "dispatch", "smoke")
    assert {(p.tile_rows, p.lse) for p in cases} == {(64, False), (128, False), (128, True)}
    assert {(p.tile_rows, p.nhead_q) for p in cases} == {(64, 1), (64, 2), (128, 1), (128, 2)}
    for text in (TABLE.replace(", heads: [[1, 1], [2, 1]], lse: [false, true]", ""), TABLE.replace("pairs", "triples")):
        file.write_text(text)
        with pytest.raises(TableError, match="cover"):
            read(file, "dispatch", "smoke")


def test_met_and_possible_count_pairs_of_values() -> None:
    def make(heads: int, lse: bool) -> SuiteCase:
        return SuiteCase(name="x", suite="dispatch", tier="smoke", group="x", nhead_q=heads, nhead_k=heads, lse=lse)

    some = [make(1, False), make(2, True)]
    axes = len(AXES)
    others = (axes - 2) * (axes - 3) // 2  # axes of one value each
    assert possible(some) == others + 2 * 2 * (axes - 2) + 4
    assert len(met(some)) == others + 2 * 2 * (axes - 2) + 2
    assert len(met([*some, make(1, True)])) == len(met(some)) + 1

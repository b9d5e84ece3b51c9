"""Pairwise designs: any two values meet that may, in few combinations, and in the cases of the suites."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ckpm.base.errors import TableError
from ckpm.matrix.dialects import dialect
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.pairs import AXES, cover, legal, met
from ckpm.matrix.problems.serving import serves
from ckpm.matrix.problems.tables import problems, read
from ckpm.matrix.selection import Selection, select


def allow_all(chosen: Mapping[int, int]) -> bool:
    return False


def meetings(combinations: Sequence[tuple[int, ...]]) -> set[tuple[tuple[int, int], tuple[int, int]]]:
    return {pair for combination in combinations for pair in itertools.combinations(enumerate(combination), 2)}


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

    covered = meetings(cover((2, 2, 2), forbidden))
    every = meetings(list(itertools.product(range(2), repeat=3)))
    assert covered == every - {((0, 0), (2, 1))}


def test_cover_without_possible_combination_is_empty() -> None:
    assert cover((2, 2), lambda chosen: 0 in chosen) == []


@pytest.mark.parametrize("name", ["ck-2025-11", "rocm-libraries-2026"])
def test_smoke_kernels_of_one_tile_see_many_counts_of_heads(name: str) -> None:
    """A mutant that was wrong for eight KV heads passed: most kernels saw (1, 1), (2, 1) and (6, 2) alone."""
    cases = [p for p in problems("batch-prefill") if p.expect == "ok"]
    heads: dict[str, set[tuple[int, int]]] = {}  # by the name without its load, which the size of the pool decides
    for key in select(dialect(name), Selection(archs=("gfx950",), tier="smoke")):
        seen = heads.setdefault(key.name.replace("_gload_", "_bload_"), set())
        seen |= {(p.nhead_q, p.nhead_k) for p in cases if serves(key, p)}
    for kernel, seen in heads.items():
        assert seen >= {(1, 1), (8, 8), (8, 1), (6, 2), (16, 4), (32, 8)}, kernel


@pytest.mark.parametrize(
    ("name", "pipeline"),
    [
        ("ck-2025-11", "qr_async"),
        ("rocm-libraries-2026", "qr_async"),
        ("prefill-v3", "qr_async_trload_v3"),
        ("ckpm-extended", "qr_async_trload_v3"),
        ("ckpm-extended", "qr_async"),
        ("ckpm-extended", "qr_async_split"),
    ],
)
def test_features_of_each_pipeline_meet_rows_beyond_one_tile(name: str, pipeline: str) -> None:
    """Sinks of split keys were read by a tile's row: no case had sinks, a second tile and a ratio such as 6 at once."""
    smoke_keys = select(dialect(name), Selection(archs=("gfx950",), tier="smoke"))
    keys = [key for key in smoke_keys if key.pipeline == pipeline]
    cases = [p for p in problems("batch-prefill") if p.expect == "ok" and any(serves(key, p) for key in keys)]
    rows = AXES["rows"].value
    for axis in ("mask", "sink", "feature", "LSE", "type"):
        value = AXES[axis].value
        beyond = {(value(p), rows(p)) for p in cases if rows(p)[0]}
        wanted = itertools.product({value(p) for p in cases}, [(True, False), (True, True)])
        assert beyond == {*wanted}, axis


def test_rows_are_of_all_heads_of_a_kv_head_where_keys_are_split() -> None:
    rows = AXES["rows"].value
    split = dataclasses.replace(make(12, False), nhead_k=2, seqlens_q=(11,), split_keys=128)
    assert rows(split) == (True, True)  # 66 rows of 64, 6 heads
    assert rows(dataclasses.replace(split, seqlens_q=(10,))) == (False, True)
    assert rows(dataclasses.replace(split, split_keys=0)) == (False, True)
    assert rows(dataclasses.replace(split, split_keys=0, nhead_q=8, seqlens_q=(65,), tile_rows=64)) == (True, False)
    assert rows(dataclasses.replace(split, split_keys=0, seqlens_q=(256,), v3="on")) == (False, True)


TABLE = """suite: dispatch
groups:
  one:
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


def test_legal_pairs_leave_out_what_no_kernel_can_have() -> None:
    """Counts of heads meet LSE and its absence in two kernels; in the one without LSE, LSE meets nothing."""
    smoke_keys = select(dialect("ck-2025-11"), Selection(archs=("gfx950",), tier="smoke"))
    plain = next(key for key in smoke_keys if serves(key, make(1, False)))
    with_lse = dataclasses.replace(plain, lse=True)
    some = [make(1, False), make(2, True)]
    axes = len(AXES)
    others = (axes - 2) * (axes - 3) // 2  # pairs of axes of one value each
    tried = met(some)
    assert len(tried) == others + 2 * 2 * (axes - 2) + 2
    assert tried < legal(some, [plain, with_lse])
    assert len(legal(some, [plain, with_lse])) == others + 2 * 2 * (axes - 2) + 4
    assert legal(some[:1], [plain, with_lse]) == met(some[:1])
    # the kernel without LSE alone: nothing meets LSE
    assert len(legal(some, [plain])) == others + (2 + 1) * (axes - 2) + 2
    assert not any(("LSE", True) in pair for pair in legal(some, [plain]))
    assert legal(some, []) == set()


def make(heads: int, lse: bool) -> SuiteCase:
    return SuiteCase(name="x", suite="dispatch", tier="smoke", group="x", nhead_q=heads, nhead_k=heads, lse=lse)

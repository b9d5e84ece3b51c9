"""The row of a launch of splits: kernels, launches and the time of the memory."""

from __future__ import annotations

import pytest

from ckpm.attention.splitting import best_split
from ckpm.timing.splits import PROBLEMS, QUERIES, SplitTime, case

FLOOR = 2 * 65536 * 8 * 128 * 2 / 8e12 * 2.4e9  # cycles: K and V of 8 heads in bf16, 8 TB/s, 2.4 GHz


@pytest.mark.parametrize(
    ("split", "times"),
    [
        # (90,000 + 24,000) / 2,400 MHz + 2 * 2.7 us = 52.9 us; 268 MB at 8 TB/s take 33.55 us
        (90_000, "90,000 + 24,000 cycles, 52.9 us, 1.58 times the 33.6 us"),
        # faster than the memory: 33.55 + 10 + 5.4 us
        (40_000, "40,000 + 24,000 cycles, 49.0 us, 1.46 times the 33.6 us"),
    ],
)
def test_row_adds_kernels_and_launches(split: float, times: str) -> None:
    row = SplitTime(problem="p", split_keys=1024, workgroups=512, split=split, combine=24_000, memory=FLOOR)
    assert str(row) == f"p: 512 workgroups of 1024 keys: {times} of reading K and V once"


def test_every_case_is_split_by_dispatcher() -> None:
    for fields in PROBLEMS:
        for queries in QUERIES:
            problem = case(fields, queries)
            split = best_split(problem, 256)
            assert split
            assert split.keys
            assert (problem.seqlen_k, problem.nhead_q, problem.rows_q) == (65536, 128, queries)

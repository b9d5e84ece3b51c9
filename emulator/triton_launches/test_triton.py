"""Triton's kernels on the emulated device against NumPy, for each arch; what does not pass is stored."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conformance.stored import differences, read
from triton_launches.__main__ import STORED
from triton_launches.cases import ARCHS, close, same

ROOT = Path(__file__).parents[1]


def outcomes(arch: str) -> dict[str, tuple[str, str]]:
    """Outcome and detail of each case."""
    done = subprocess.run(
        [sys.executable, "-m", "triton_launches", "--arch", arch],
        cwd=ROOT,
        env={**os.environ, "TRITON_DEFAULT_FP_FUSION": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    by_name = {line["name"]: (line["outcome"], line["detail"]) for line in lines}
    assert len(by_name) == len(lines), "two cases have one name"
    return by_name


@pytest.mark.parametrize("arch", ARCHS)
def test_every_case_ends_as_stored(arch: str) -> None:
    archs = read(STORED).archs
    assert arch in archs, f"nothing is stored of {arch}: python -m triton_launches --arch {arch} --store"
    stored = archs[arch]
    assert differences(stored, outcomes(arch)) == []
    assert not stored.wrong


def test_comparisons_see_element_another() -> None:
    right = np.arange(6.0).reshape(2, 3)
    other = right.copy()
    other[1, 2] += 0.01
    close(other, right, 0.01)
    for wrong in (other, np.full((2, 3), np.nan), right[:1]):
        with pytest.raises(AssertionError):
            close(wrong, right, 0.001)
        with pytest.raises(AssertionError):
            same(wrong, right)

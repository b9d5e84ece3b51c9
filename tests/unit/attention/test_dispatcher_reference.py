"""The agreement with the float64 reference. test_reference.py compares its numbers."""

from __future__ import annotations

import numpy as np
import pytest

from ckpm.attention import reference


def test_agreement_beyond_tolerance_fails() -> None:
    want = np.array([[1.0, -2.0], [0.0, 4.0]])
    assert reference.agreement(want, want, "bf16").passed
    assert reference.agreement(want + 0.0099, want, "bf16").passed
    off = want.copy()
    off[1, 0] += 0.011
    agreement = reference.agreement(off, want, "bf16")
    assert (agreement.passed, agreement.where) == (False, (1, 0))
    assert str(agreement) == "differs: largest error 1.10 of its tolerance at [1, 0]"
    for bad in (np.nan, np.inf):
        off[1, 0] = bad
        assert not reference.agreement(off, want, "bf16").passed
    empty = np.full((1, 2), -np.inf)
    assert reference.agreement(empty, empty, "lse").passed
    with pytest.raises(ValueError, match="differ"):
        reference.agreement(want[0], want, "bf16")

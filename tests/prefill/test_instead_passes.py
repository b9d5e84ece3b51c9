"""What the ledger excuses other upstreams for passes with ckpm's kernels, which are built and run."""

from __future__ import annotations

import pytest

from ckpm.matrix.keys import Key
from ckpm.matrix.problems.tables import find
from tests.prefill.copies import PrefillCopy
from tests.prefill.instead import INSTEAD, kernels_for


@pytest.fixture(scope="module")
def built(copy: PrefillCopy, keys: tuple[Key, ...]) -> PrefillCopy:
    """With a library of every kernel that the cases take."""
    copy.build([key for case in INSTEAD.values() for key in kernels_for(find(case), keys)])
    return copy


@pytest.mark.parametrize("entry", INSTEAD)
def test_its_case_passes(built: PrefillCopy, entry: str) -> None:
    suite, _, name = INSTEAD[entry].partition("/")
    case = built.case(suite, name)
    assert case.status == "passed", case

"""Cases that the ledger excuses for other upstreams pass with ckpm's kernels."""

from __future__ import annotations

import pytest

from ckpm.matrix.keys import Key
from ckpm.matrix.problems.tables import find
from tests.prefill.copies import PrefillCopy
from tests.prefill.instead import INSTEAD, kernels_for


@pytest.fixture(scope="module")
def built(copy: PrefillCopy, keys: tuple[Key, ...]) -> PrefillCopy:
    """A library of all kernels that the cases take."""
    copy.build([key for case in INSTEAD.values() for key in kernels_for(find(case), keys)])
    return copy


@pytest.mark.parametrize("entry", INSTEAD)
def test_case_of_ledger_entry_passes(built: PrefillCopy, entry: str) -> None:
    case = built.case(INSTEAD[entry])
    assert case.status == "passed", case

"""Each defect planted in the headers of ckpm is found by the case of a suite that the table names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from matrix.keys import Key
from matrix.problems.tables import find
from tests.prefill.copies import PrefillCopy
from tests.prefill.defects import DEFECTS, FOLDER, WRONG, Defect
from tests.prefill.instead import kernels_for


@pytest.fixture
def planted(copy: PrefillCopy) -> Iterator[PrefillCopy]:
    """What a test plants in the headers is taken back."""
    headers = {file: file.read_text() for file in (copy.project / FOLDER).glob("*.hpp")}
    yield copy
    for file, text in headers.items():
        file.write_text(text)


def build(copy: PrefillCopy, defect: Defect, keys: tuple[Key, ...]) -> None:
    """The one kernel that the case takes."""
    (key,) = kernels_for(find(f"{defect.suite}/{defect.case}"), keys)
    copy.build([key])


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found_by_the_case_that_passes_without_it(
    planted: PrefillCopy, keys: tuple[Key, ...], name: str
) -> None:
    defect = DEFECTS[name]
    build(planted, defect, keys)
    before = planted.case(defect.suite, defect.case)
    assert before.status == "passed", before
    for edit in defect.edits:
        planted.plant(planted.project / FOLDER / edit.header, edit.old, edit.new)
    build(planted, defect, keys)
    found = planted.case(defect.suite, defect.case)
    assert found.status == "failed", found
    assert (found.fault.kind if found.fault else WRONG) == defect.found_as, found
    assert found.fault or "elements differ" in found.message

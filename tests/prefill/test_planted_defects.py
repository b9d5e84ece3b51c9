"""Each defect planted in the headers of ckpm is found by the case of a suite that the table names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from matrix.keys import Key
from matrix.problems.tables import find
from tests.prefill.copies import PrefillCopy
from tests.prefill.defects import DEFECTS, FOLDER, WRONG, Defect
from tests.prefill.instead import kernels_for


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, keys: tuple[Key, ...]) -> PrefillCopy:
    """Without any defect, with the kernels of all cases."""
    copy = PrefillCopy(tmp_path_factory.mktemp("sound"))
    copy.build([kernel(defect, keys) for defect in DEFECTS.values()])
    return copy


@pytest.fixture
def planted(copy: PrefillCopy) -> Iterator[PrefillCopy]:
    """What a test plants in the headers is taken back."""
    headers = {file: file.read_text() for file in (copy.headers / FOLDER).glob("*.hpp")}
    yield copy
    for file, text in headers.items():
        file.write_text(text)


def kernel(defect: Defect, keys: tuple[Key, ...]) -> Key:
    """The one that the case takes."""
    (key,) = kernels_for(find(f"{defect.suite}/{defect.case}"), keys)
    return key


@pytest.mark.parametrize("name", DEFECTS)
def test_without_the_defect_its_case_passes(sound: PrefillCopy, name: str) -> None:
    case = sound.case(DEFECTS[name].suite, DEFECTS[name].case)
    assert case.status == "passed", case


@pytest.mark.parametrize("name", DEFECTS)
def test_the_case_finds_the_defect(planted: PrefillCopy, keys: tuple[Key, ...], name: str) -> None:
    defect = DEFECTS[name]
    for edit in defect.edits:
        header = planted.headers / FOLDER / edit.header
        text = header.read_text()
        assert text.count(edit.old) == 1, f"{edit.header} holds {text.count(edit.old)} times: {edit.old}"
        header.write_text(text.replace(edit.old, edit.new))
    planted.build([kernel(defect, keys)])
    found = planted.case(defect.suite, defect.case)
    assert found.status == "failed", found
    assert (found.fault.kind if found.fault else WRONG) == defect.found_as, found
    assert found.fault or "elements differ" in found.message

"""A case of a suite finds each defect planted in the headers of ckpm and its V3."""

from __future__ import annotations

import pytest

from ckpm.matrix.keys import Key
from ckpm.matrix.problems.tables import find
from tests.prefill.copies import PrefillCopy
from tests.prefill.defects import DEFECTS, WRONG, Defect
from tests.prefill.instead import EXTENDED, UPSTREAM, V3, kernels_for

Kernels = dict[str, tuple[Key, ...]]


@pytest.fixture(scope="module")
def kernels(keys: tuple[Key, ...], v3_keys: tuple[Key, ...], extended_keys: tuple[Key, ...]) -> Kernels:
    """The kernels of each upstream."""
    return {UPSTREAM: keys, V3: v3_keys, EXTENDED: extended_keys}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, kernels: Kernels) -> PrefillCopy:
    """A library without a defect, with the kernels of all cases."""
    copy = PrefillCopy(tmp_path_factory.mktemp("sound"))
    for upstream in kernels:
        copy.build([kernel(defect, kernels) for defect in DEFECTS.values() if defect.upstream == upstream], upstream)
    return copy


def kernel(defect: Defect, kernels: Kernels) -> Key:
    """The kernel that the case takes."""
    (key,) = kernels_for(find(defect.case), kernels[defect.upstream])
    return key


@pytest.mark.parametrize("name", DEFECTS)
def test_case_without_defect_passes(sound: PrefillCopy, name: str) -> None:
    defect = DEFECTS[name]
    case = sound.case(defect.case, defect.upstream)
    assert case.status == "passed", case


@pytest.mark.parametrize("name", DEFECTS)
def test_case_finds_defect(copy: PrefillCopy, kernels: Kernels, name: str) -> None:
    defect = DEFECTS[name]
    with copy.edit(defect.edits):
        copy.build([kernel(defect, kernels)], defect.upstream)
    ended = copy.case(defect.case, defect.upstream)
    assert ended.status == "failed", ended
    assert (ended.fault.kind if ended.fault else WRONG) == defect.found_as, ended
    assert ended.fault or "elements differ" in ended.message


def test_cases_of_defects_in_smoke_kernels_are_smoke() -> None:
    """The smoke library of ckpm-extended has few kernels of V3, so some defects are found in the full tier."""
    smoke = (defect for defect in DEFECTS.values() if defect.upstream != EXTENDED or not defect.of_v3)
    assert {find(defect.case).tier for defect in smoke} == {"smoke"}

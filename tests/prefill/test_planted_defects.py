"""A case of a suite finds each defect planted in the headers of ckpm and its V3."""

from __future__ import annotations

import pytest

from ckpm.matrix.keys import Key
from ckpm.matrix.problems.tables import find
from tests.prefill.copies import PrefillCopy
from tests.prefill.defects import DEFECTS, WRONG, Defect
from tests.prefill.instead import EXTENDED, UPSTREAM, V3, kernels_for
from tests.prefill.large_head_defects import LARGE_HEAD_DEFECTS
from tests.prefill.mixed_defects import MIXED_DEFECTS
from tests.prefill.page_defects import PAGE_DEFECTS
from tests.prefill.split_defects import SPLIT_DEFECTS
from tests.prefill.v3_defects import V3_DEFECTS

EVERY = {**DEFECTS, **V3_DEFECTS, **SPLIT_DEFECTS, **MIXED_DEFECTS, **LARGE_HEAD_DEFECTS, **PAGE_DEFECTS}
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
        copy.build([kernel(one, kernels) for one in EVERY.values() if one.upstream == upstream], upstream)
    return copy


def kernel(defect: Defect, kernels: Kernels) -> Key:
    """The kernel that the case takes."""
    (key,) = kernels_for(find(f"{defect.suite}/{defect.case}"), kernels[defect.upstream])
    return key


@pytest.mark.parametrize("name", EVERY)
def test_case_without_defect_passes(sound: PrefillCopy, name: str) -> None:
    defect = EVERY[name]
    case = sound.case(defect.suite, defect.case, defect.upstream)
    assert case.status == "passed", case


@pytest.mark.parametrize("name", EVERY)
def test_case_finds_defect(copy: PrefillCopy, kernels: Kernels, name: str) -> None:
    defect = EVERY[name]
    with copy.edit(defect.edits):
        copy.build([kernel(defect, kernels)], defect.upstream)
    found = copy.case(defect.suite, defect.case, defect.upstream)
    assert found.status == "failed", found
    assert (found.fault.kind if found.fault else WRONG) == defect.found_as, found
    assert found.fault or "elements differ" in found.message


def test_cases_of_defects_in_smoke_kernels_are_smoke() -> None:
    """The smoke library of ckpm-extended has few kernels of V3, so some defects are found in the full tier."""
    of_v3 = (one for one in V3_DEFECTS.values() if one.upstream == V3)
    smoke = [*of_v3, *MIXED_DEFECTS.values(), *LARGE_HEAD_DEFECTS.values(), *PAGE_DEFECTS.values()]
    assert {find(f"{one.suite}/{one.case}").tier for one in smoke} == {"smoke"}

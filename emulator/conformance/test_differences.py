"""Differences between a run and the stored outcomes of other projects' suites."""

from __future__ import annotations

import pytest

from conformance.stored import PASSED, UNSUPPORTED, WRONG, Ran, differences

STORED = Ran(tests=4, unsupported={"v_tbuffer_x": ["images"]}, wrong={"rounds up": ["tan"]})
AS_STORED = {
    **{"add": (PASSED, ""), "scan": (PASSED, "")},
    **{"images": (UNSUPPORTED, "v_tbuffer_x"), "tan": (WRONG, "2 of 9 differ")},
}


def test_differences_of_equal_run_are_empty() -> None:
    assert differences(STORED, AS_STORED) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"add": (WRONG, "1 of 4 differ")}, "add: wrong: 1 of 4 differ"),
        ({"add": (UNSUPPORTED, "s_x")}, "add: unsupported: s_x; stored: passed"),
        ({"images": (UNSUPPORTED, "s_x")}, "images: unsupported: s_x; stored: v_tbuffer_x"),
        ({"images": (PASSED, "")}, "images: passes now, stored as unsupported: take it off the list"),
        ({"tan": (PASSED, "")}, "tan: passes now, stored as wrong: take it off the list"),
        ({"more": (PASSED, "")}, "5 tests ran, 4 are stored"),
    ],
)
def test_differences_list_changed_outcome(changed: dict[str, tuple[str, str]], message: str) -> None:
    assert differences(STORED, AS_STORED | changed) == [message]


def test_differences_list_missing_test() -> None:
    seen = {name: ended for name, ended in AS_STORED.items() if name != "images"}
    assert differences(STORED, seen) == ["3 tests ran, 4 are stored", "images: stored as unsupported, did not run"]

"""The stored outcomes of peers' suites: what counts as a difference."""

from __future__ import annotations

import pytest

from tests.programs.conformance.stored import PASSED, UNSUPPORTED, WRONG, Ran, differences

STORED = Ran(tests=4, unsupported={"v_tbuffer_x": ["images"]}, wrong={"rounds up": ["tan"]})
AS_STORED = {
    **{"add": (PASSED, ""), "scan": (PASSED, "")},
    **{"images": (UNSUPPORTED, "v_tbuffer_x"), "tan": (WRONG, "2 of 9 differ")},
}


def test_a_run_that_ended_as_stored_has_no_difference() -> None:
    assert differences(STORED, AS_STORED) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"add": (WRONG, "1 of 4 differ")}, "add: wrong: 1 of 4 differ"),
        ({"add": (UNSUPPORTED, "s_x")}, "add: unsupported: s_x; stored: passed"),
        ({"images": (UNSUPPORTED, "s_x")}, "images: unsupported: s_x; stored: v_tbuffer_x"),
        ({"images": (PASSED, "")}, "images: passes now, stored as unsupported: take it off the list"),
        ({"tan": (PASSED, "")}, "tan: passes now, stored as wrong: take it off the list"),
        ({"more": (PASSED, "")}, "5 tests ran, 4 are stored"),
    ],
)
def test_every_other_end_is_one(changed: dict[str, tuple[str, str]], said: str) -> None:
    assert differences(STORED, AS_STORED | changed) == [said]


def test_a_test_that_did_not_run_is_one() -> None:
    seen = {name: ended for name, ended in AS_STORED.items() if name != "images"}
    assert differences(STORED, seen) == ["3 tests ran, 4 are stored", "images: stored as unsupported, did not run"]

"""A value of a kernel's key that no problem asks for is named with the number of its kernels."""

from __future__ import annotations

import dataclasses

import pytest

from ckpm.kernels.changes import plan
from ckpm.kernels.changes.manifest import Altered
from ckpm.matrix.dialects import dialect, dialect_names
from ckpm.matrix.keys import ANY_PAGE
from ckpm.matrix.problems import asked
from ckpm.matrix.problems.asked import FIELDS, unasked_values
from ckpm.matrix.problems.case import SUITES
from ckpm.matrix.problems.serving import needed_values
from ckpm.matrix.problems.tables import problems
from ckpm.matrix.selection import Selection, select
from tests.unit.shared import Run

NEWEST = "rocm-libraries-2026"


def test_new_page_size_is_named_with_its_kernels() -> None:
    keys = select(dialect(NEWEST), Selection(archs=("gfx950",), tier="smoke"))
    new = [dataclasses.replace(key, page_size=2**30) for key in keys if key.page_size == 1024]
    (line,) = unasked_values([*keys, *new])
    assert line.startswith(f"no problem of any suite asks for page_size {2**30}: nothing runs its {len(new)} kernels. ")


@pytest.mark.parametrize("name", dialect_names())
def test_every_value_of_a_dialect_is_asked_for(name: str) -> None:
    """Ask the problems themselves: the text of their tables, which decides first, may be wrong."""
    keys = select(dialect(name), Selection(archs=("gfx950",)))
    cases = [case for suite in SUITES for case in problems(suite, "nightly")]
    needs = [needed_values(case) for case in cases]
    for field in FIELDS:
        there = {getattr(key, field) for key in keys} - {None}
        assert there - {value for values in needs for value in values[field]} <= {ANY_PAGE}, (
            f"{field}: add it to a group of matrix/problems/"
        )
    assert unasked_values(keys) == []


def test_count_and_plan_name_value_without_problem(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the problems with pages of 1024 tokens."""
    cases = [case for case in problems("dispatch", "nightly") if case.page_size != 1024]
    monkeypatch.setattr(asked, "read_text", lambda *_: "")
    monkeypatch.setattr(asked, "problems", lambda *_: cases)
    where = ("--where", "key.page_size == 1024 and key.dtype == 'bf16' and key.hdim_q == 128")
    expected = "no problem of any suite asks for page_size 1024: nothing runs its "
    code, out, _ = run("count", "--dialect", NEWEST, *where)
    assert (code, f"\nnote: {expected}" in out) == (0, True)
    names = frozenset(key.name for key in select(dialect(NEWEST), Selection(archs=("gfx950",), where=where[1:])))
    (line, *_) = plan._unasked_lines([Altered(NEWEST, "batch_prefill", names, "added")])
    assert line.startswith(f"{NEWEST}: {expected}{len(names)} kernels")

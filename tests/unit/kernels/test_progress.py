"""A log of a build lists its steps, and counts to the end."""

from __future__ import annotations

import json
import re

import pytest

from ckpm.base.console import number
from ckpm.kernels.library.plan import BuildStep
from ckpm.kernels.library.progress import Tally, follow
from ckpm.kernels.library.run_step import EVENT
from tests.unit.shared import capture_logs

STEPS = [
    BuildStep(kind="unit", target="a.o", sources=("a",), argv=(), signature="", label="a", kernels=("k1", "k2")),
    BuildStep(kind="unit", target="b.o", sources=("b",), argv=(), signature="", label="b", kernels=("k3",)),
    BuildStep(kind="host", target="c.o", sources=("c",), argv=(), signature="", label="c"),
    BuildStep(kind="library", target="l", sources=("a.o", "b.o", "c.o"), argv=(), signature="", label="l"),
    BuildStep(kind="manifest", target="m", sources=("l",), argv=(), signature="", label="m"),
]
ERROR = "a.hpp:3:5: error: no member named 'p_scale'"


def follow_events(*events: tuple[str, str]) -> tuple[Tally, list[str]]:
    """Return the tally and the lines, without times, of events given as (target, event)."""
    steps = {step.target: step for step in STEPS}
    lines = []
    for target, event in events:
        fields = {"event": event, "kind": steps[target].kind, "label": steps[target].label, "target": target}
        fields |= {"error": ERROR} if event == "failed" else {}
        lines.append(EVENT + json.dumps(fields))
    tally, text = capture_logs(lambda: follow(lines, STEPS, linking="linking it"))
    return tally, [re.sub(r" +\d+ s  ", " ", line) for line in text.splitlines()]


def test_starts_are_logged_until_step_ends_and_for_link() -> None:
    tally, lines = follow_events(
        ("a.o", "start"), ("b.o", "start"), ("a.o", "done"), ("c.o", "start"), ("b.o", "failed"), ("c.o", "done"),
    )  # fmt: skip
    assert lines == [
        "[0/3] compiling a (2 kernels)",
        "[0/3] compiling b (1 kernel)",
        "[1/3] compiled a (2 kernels)",
        f"[2/3] FAILED b (1 kernel): {ERROR}",
        "[3/3] compiled c",
    ]
    assert tally.failed == 1


def test_unchanged_steps_count_when_it_comes_to_link() -> None:
    tally, lines = follow_events(("b.o", "retrieved"), ("l", "start"), ("l", "done"), ("m", "start"), ("m", "done"))
    assert lines == ["[1/3] from cache b (1 kernel)", "[3/3] linking it", "[3/3] linked"]
    assert tally.summary() == "0 compiled (0 kernels), 1 from the cache, 2 unchanged, linked, manifest written"


@pytest.mark.parametrize(
    ("events", "summary"),
    [
        ([], "nothing to do"),
        ([("l", "start"), ("l", "done")], "linked"),
        ([("l", "retrieved"), ("m", "done")], "library from the cache, manifest written"),
    ],
)
def test_summary_counts_finished_steps(events: list[tuple[str, str]], summary: str) -> None:
    assert follow_events(*events)[0].summary() == summary


def test_number_of_one_is_singular() -> None:
    assert (number(0, "kernel"), number(1, "kernel"), number(2, "kernel")) == ("0 kernels", "1 kernel", "2 kernels")

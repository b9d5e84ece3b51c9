"""A known defect goes out only if a person accepted it, for a while."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
import yaml

from ckpm.base.errors import CheckFailedError, TableError
from ckpm.matrix.problems.ledger import LEDGER, read_ledger
from ckpm.reports.release.verdict import Findings, Waiver, demand_accepted, judge, read_waivers
from tests.unit.reports.release.samples import DEFECT, EPOCH, FACTS, WAIVERS

TODAY = datetime.date(2026, 6, 1)


def waivers(tmp_path: Path, text: str = WAIVERS, known: tuple[str, ...] = (DEFECT,)) -> dict[str, Waiver]:
    file = tmp_path / "waivers.yaml"
    file.write_text(text)
    return dict(read_waivers(file, known))


def test_waiver_holds_on_its_last_day_and_not_day_after(tmp_path: Path) -> None:
    found = waivers(tmp_path, WAIVERS.replace("2099-12-31", "2026-06-01"))
    demand_accepted({DEFECT: 3}, found, TODAY)
    with pytest.raises(
        CheckFailedError, match=rf"{DEFECT} \(3\): waivers\.yaml:\d+: the acceptance ended on 2026-06-01"
    ):
        demand_accepted({DEFECT: 3}, found, TODAY + datetime.timedelta(days=1))


def test_waiver_of_tomorrow_is_none(tmp_path: Path) -> None:
    found = waivers(tmp_path, WAIVERS.replace("2026-01-01", "2026-06-02"))
    with pytest.raises(CheckFailedError, match="accepted only on 2026-06-02"):
        demand_accepted({DEFECT: 1}, found, TODAY)


def test_every_defect_that_no_one_accepted_is_named() -> None:
    with pytest.raises(CheckFailedError, match=r"one \(1\): not accepted\n  two \(2\): not accepted"):
        demand_accepted({"two": 2, "one": 1}, {}, TODAY)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("accepted_by:", "accepted_bx:"), "unknown field"),
        (("    accepted_by: A Person\n", ""), "field 'accepted_by' is missing"),
        (("A Person", "''"), "accepted_by: is empty"),
        (("2026-01-01", "soon"), "accepted_on: must be a date"),
        (("    until: 2099-12-31\n", ""), "field 'until' is missing"),
        (("2099-12-31", "2025-12-31"), "until: is before 2026-01-01"),
        ((DEFECT, "table-read-past-endx"), "did you mean 'table-read-past-end'"),
        (("waivers:", "waiver:"), "unknown field"),
    ],
)
def test_mistake_in_waiver_is_named(tmp_path: Path, change: tuple[str, str], complaint: str) -> None:
    assert change[0] in WAIVERS
    with pytest.raises(TableError, match=rf"waivers\.yaml:\d+: .*{complaint}"):
        waivers(tmp_path, WAIVERS.replace(*change))


@pytest.mark.parametrize(
    ("defects", "text", "unneeded"),
    [
        ({}, "passed", ("one", "two")),
        ({"one": 7}, "passed with 1 waived defect", ("two",)),
        ({"one": 7, "two": 1}, "passed with 2 waived defects", ()),
    ],
)
def test_verdict_counts_defects_and_names_needless_waivers(
    defects: dict[str, int], text: str, unneeded: tuple[str, ...]
) -> None:
    accepted = {
        name: Waiver(name=name, place="w:1", accepted_by="P", accepted_on=TODAY, until=TODAY, reason="r")
        for name in ("one", "two")
    }
    verdict = judge(
        FACTS,
        Findings(defects=defects, cases={}),
        accepted,
        epoch=EPOCH,
        archs=("gfx950",),
        toolchain="embedded",
        today=TODAY,
    )
    assert (verdict.text, verdict.unneeded) == (text, unneeded)


def test_own_waivers_are_for_existing_defects() -> None:
    root = Path(__file__).parents[4]
    release = yaml.safe_load((root / "workflows" / "workflows.yaml").read_text())["release"]
    entries = {entry.name: entry for entry in read_ledger(LEDGER).entries}
    waivers = read_waivers(root / release["waivers"], tuple(entries))
    for name, waiver in waivers.items():
        assert {release["upstream"], "*"} & set(entries[name].upstreams), name
        assert waiver.until <= entries[name].expires, name
    suites = ("batch-prefill/", "large-kv/", "page-fault/", "dispatch/", "sanitize/")
    needed = {
        entry.name
        for entry in entries.values()
        if release["upstream"] in entry.upstreams and entry.problems[0].startswith(suites)
    }
    assert set(waivers) == needed

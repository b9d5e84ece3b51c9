"""Stages are run once for the same inputs, and again when anything that they depend on is different or damaged.

A known defect goes out only if a person accepted it, for a while.
"""

from __future__ import annotations

import dataclasses
import datetime
import logging
import re
import shutil
import time
from pathlib import Path

import pytest
import yaml

from ckpm.base.errors import CheckFailedError, InconclusiveError, RecordError, TableError
from ckpm.matrix.problems.case import SUITES
from ckpm.matrix.problems.ledger import LEDGER, read_ledger
from ckpm.reports.release.run import OVERDUE, QualificationPlan, demand_all, execute, run
from ckpm.reports.release.stages import read_stages, steps
from ckpm.reports.release.verdict import Findings, Waiver, demand_accepted, examine, judge, read_waivers
from tests.unit.reports.release.samples import BASIS, DEFECT, FACTS, FOREIGN, WAIVERS, Stages, plan, planned_steps

ALL = {step.name for step in planned_steps()}
ON_LIBRARY = {f"gfx950/{stage}" for stage in ("reproduce", *SUITES)}
TODAY = datetime.date(2026, 6, 1)


def test_stages_have_every_promised_suite_and_check() -> None:
    assert set(read_stages().stages) >= {"build", "reproduce", "parity", "gates", *SUITES}


def test_steps_come_after_their_needs() -> None:
    both = steps(read_stages(), ("gfx942", "gfx950"), upstream="aiter", tier="full", toolchain="embedded")
    seen: set[str] = set()
    for step in both:
        assert seen >= set(step.needs), step.name
        seen.add(step.name)
    report = next(step for step in both if step.stage == "report")
    assert {f"{arch}/sanitize" for arch in ("gfx942", "gfx950")} <= set(report.needs)
    assert sum(step.stage == "parity" for step in both) == 1
    suite = next(step for step in both if step.name == "gfx942/large-kv")
    assert suite.shown == "ckpm test --suite large-kv --arch gfx942 --upstream aiter --tier full --device emulator"


def test_sanitize_of_library_for_gpu_runs_on_emulator() -> None:
    of_rocm = steps(read_stages(), ("gfx950",), upstream="aiter", tier="full", toolchain="rocm")
    devices = {step.stage: step.command[-1] for step in of_rocm if step.command[0] == "test"}
    assert devices == {**dict.fromkeys(SUITES, "hip"), "sanitize": "emulator"}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("needs: [build]", "needs: [bxild]"), "unknown 'bxild'; known: "),
        (("{tier}", "{teir}"), "unknown blank {teir}"),
        (("{tier}", "{tier:>9999999999}"), "unknown blank {tier}; known: "),
        (("{tier}", "{tier!r}"), "unknown blank {tier}; known: "),
        (("{tier}", "{tier"), "no text with blanks: expected '}' before end of string"),
        (("library:", "libxary:"), "unknown word 'libxary'; known here: gate"),
        (("upstream: aiter", "upstream: aiter\narchs: [gfx943]"), "unknown 'gfx943'; known: gfx90a"),
        (("upstream: aiter", "upstream: checkout"), "unknown 'checkout'; known: aiter"),
    ],
)
def test_mistake_in_table_is_named(tmp_path: Path, change: tuple[str, str], complaint: str) -> None:
    text = (Path(__file__).parents[4] / "reports/release/stages.yaml").read_text()
    assert change[0] in text
    file = tmp_path / "stages.yaml"
    file.write_text(text.replace(*change))
    with pytest.raises(TableError, match=rf"stages\.yaml:\d+: .*{re.escape(complaint)}"):
        read_stages(file)


def test_passed_stage_is_not_repeated(tmp_path: Path) -> None:
    first, second = Stages(), Stages()
    passed = run(plan(tmp_path), first)
    assert set(first.called) == ALL == set(passed)
    assert run(plan(tmp_path), second) == passed
    assert second.called == []


@pytest.mark.parametrize("field", ["commit", "tier", "upstream_identity", "toolchain"])
def test_other_facts_repeat_everything(tmp_path: Path, field: str) -> None:
    run(plan(tmp_path), Stages())
    again = Stages()
    run(plan(tmp_path, dataclasses.replace(FACTS, **{field: "another"})), again)
    assert set(again.called) == ALL


def test_another_library_repeats_what_was_run_on_it(tmp_path: Path) -> None:
    run(plan(tmp_path), Stages())
    (tmp_path / "build/gfx950/aiter/libckpm.so").unlink()
    again = Stages(code=(b"other code",))
    run(plan(tmp_path), again)
    assert set(again.called) == {"gfx950/build", *ON_LIBRARY, "project/report"}


def test_stage_is_announced_with_its_number(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    run(plan(tmp_path), Stages())
    started = [text for text in caplog.messages if text.startswith("stage ")]
    assert [text.partition(",")[0] for text in started] == [f"stage {n} of {len(ALL)}" for n in range(1, len(ALL) + 1)]
    assert started[0].split(", ")[1].startswith(next(step.name for step in plan(tmp_path).steps))


def test_changed_output_repeats_its_stage_and_what_reads_it(tmp_path: Path) -> None:
    run(plan(tmp_path), Stages())
    (tmp_path / "build/gfx950/aiter/large-kv.json").write_text("{}")
    again = Stages()
    run(plan(tmp_path), again)
    assert again.called == ["gfx950/large-kv"]  # it left the same bytes, which the report was made of


@pytest.mark.parametrize("at", [0, 30, 200, -3])
def test_damaged_record_is_not_believed(tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int) -> None:
    run(plan(tmp_path), Stages())
    record = tmp_path / "build/release/records/gfx950/dispatch.json"
    data = bytearray(record.read_bytes())
    data[at] ^= 1
    record.write_bytes(data)
    again = Stages()
    run(plan(tmp_path), again)
    assert again.called == ["gfx950/dispatch"]
    assert any(text.startswith("gfx950/dispatch: record ignored") for text in caplog.messages)


def test_failed_stage_is_named_and_what_passed_before_is_kept(tmp_path: Path) -> None:
    with pytest.raises(CheckFailedError, match=r"gfx950/page-fault: exit code 21\. .*ckpm test --suite page-f"):
        run(plan(tmp_path), Stages(fails={"gfx950/page-fault"}))
    again = Stages()
    run(plan(tmp_path), again)
    assert again.called[0] == "gfx950/page-fault"
    assert "gfx950/build" not in again.called


def test_run_that_goes_on_records_finished_failure_alone(tmp_path: Path) -> None:
    failed: list[tuple[str, int]] = []

    def go_on(*finished: int) -> QualificationPlan:
        return plan(tmp_path, finished=finished, after_failure=lambda step, code: failed.append((step.name, code)))

    records = run(go_on(0), Stages(fails={"gfx950/dispatch", "gfx950/gated-build"}))
    assert failed == [("gfx950/dispatch", 21), ("gfx950/gated-build", 21)]
    assert ALL - records.keys() == {"gfx950/dispatch", "gfx950/gated-build", "gfx950/gates", "project/report"}
    records = run(go_on(0, 21), stages := Stages(fails={"gfx950/dispatch"}))
    assert (records["gfx950/dispatch"].code, "project/report" in records) == (21, False)
    run(go_on(0, 21), stages)
    assert stages.called.count("gfx950/dispatch") == 1
    run(plan(tmp_path), release := Stages())  # which takes no failed step
    assert set(release.called) == {"gfx950/dispatch", "project/report"}


def test_execute_at_time_limit_ends_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckpm.reports.release.run.python_command", lambda *_: ("sh", "-c", "echo begun; sleep 1000"))
    started = time.monotonic()
    assert execute(planned_steps()[0], tmp_path, 0, tmp_path / "log.txt", 5) == OVERDUE  # Python starts in it, too
    assert time.monotonic() - started < 60
    assert (tmp_path / "log.txt").read_text() == "begun\n"


def test_stage_that_leaves_nothing_has_not_passed(tmp_path: Path) -> None:
    class Idle(Stages):
        def __call__(self, step: object, work: Path, epoch: int) -> int:
            return 0

    with pytest.raises(CheckFailedError, match=r"gfx950/build: ended without an error, but left no .*libckpm\.so"):
        run(plan(tmp_path), Idle())


def test_shards_together_are_whole_run(tmp_path: Path) -> None:
    builder = tmp_path / "builder"
    run(plan(builder, only=("build", "reproduce")), Stages())
    suites = Path(shutil.copytree(builder, tmp_path / "suites"))
    run(plan(suites, only=SUITES), Stages())
    rest = tmp_path / "rest"
    run(plan(rest, only=("parity", "image", "gated-build", "gates")), Stages())
    final = Stages()
    passed = run(plan(tmp_path / "final", shards=(builder, suites, rest)), final)
    demand_all(planned_steps(), passed)
    assert final.called == ["project/report"]
    assert (tmp_path / "final/build/gfx950/aiter/sanitize.json").is_file()


def test_stage_that_no_one_ran_is_missing(tmp_path: Path) -> None:
    passed = run(plan(tmp_path, only=("build", "dispatch")), Stages())
    with pytest.raises(InconclusiveError, match=r"not run, and in no shard: .*gfx950/sanitize"):
        demand_all(planned_steps(), passed)


def test_suite_without_its_library_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(InconclusiveError, match=r"gfx950/dispatch needs gfx950/build"):
        run(plan(tmp_path, only=("dispatch",)), Stages())


def shard_of(tmp_path: Path, **change: str) -> Path:
    shard = tmp_path / "shard"
    run(plan(shard, dataclasses.replace(FACTS, **change), only=("build", "dispatch")), Stages())
    return shard


@pytest.mark.parametrize("field", ["commit", "tier", "upstream_identity", "toolchain"])
def test_shard_of_something_else_is_refused(tmp_path: Path, field: str) -> None:
    shard = shard_of(tmp_path, **{field: "another"})
    with pytest.raises(RecordError, match=rf"gfx950/build\.json: results that don't belong.*{field} another, not"):
        run(plan(tmp_path / "here", shards=(shard,)), Stages())


@pytest.mark.parametrize("folder", ["build", "nowhere"])
def test_shard_without_record_is_not_shard(tmp_path: Path, folder: str) -> None:
    """Name build/ instead of its folder: all stages would run again."""
    idle = Stages()
    with pytest.raises(RecordError, match=rf"{folder}: no record of a stage in build/release/records"):
        run(plan(tmp_path / "here", shards=(shard_of(tmp_path) / folder,)), idle)
    assert idle.called == []


def test_shard_on_another_library_is_refused(tmp_path: Path) -> None:
    shard = shard_of(tmp_path)
    shutil.rmtree(shard / "build/release/records/gfx950", ignore_errors=False)
    run(plan(shard, only=("build", "dispatch")), Stages(code=(b"x",)))
    (shard / "build/release/records/gfx950/build.json").unlink()
    with pytest.raises(RecordError, match=r"dispatch\.json: .*libckpm\.so with sha256 [0-9a-f]{16}, not"):
        run(plan(tmp_path / "here", shards=(shard,)), Stages())


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("build/gfx950/aiter/dispatch.json", "{}", r"build/gfx950/aiter/dispatch\.json has sha256"),
        ("build/release/records/gfx950/dispatch.json", None, r"dispatch\.json: is damaged"),
    ],
)
def test_shard_with_changed_file_is_refused(tmp_path: Path, file: str, text: str | None, complaint: str) -> None:
    changed = shard_of(tmp_path) / file
    changed.write_text(text or changed.read_text().replace('"smoke"', '"full"', 1))
    with pytest.raises(RecordError, match=rf"dispatch\.json: .*{complaint}" if text else complaint):
        run(plan(tmp_path / "here", shards=(tmp_path / "shard",)), Stages())


def test_shards_that_disagree_are_refused(tmp_path: Path) -> None:
    first_folder, second_folder = tmp_path / "one", tmp_path / "two"
    run(plan(first_folder, only=("parity",)), Stages())
    run(plan(second_folder, only=("parity",)), Stages(outcomes={"project/parity": "skipped"}))
    with pytest.raises(RecordError, match=r"two/.*parity\.json: other outputs than another shard has"):
        run(plan(tmp_path / "here", shards=(first_folder, second_folder)), Stages())


@pytest.mark.parametrize(
    ("stages", "error", "complaint"),
    [
        (Stages(gate="inconclusive"), InconclusiveError, "inconclusive: 1 of 1 figures"),
        (Stages(gate="regressed"), CheckFailedError, "regressed"),
        (Stages(gate="not comparable"), InconclusiveError, "not comparable"),
        (Stages(outcomes={"gfx950/sanitize": "failed"}), CheckFailedError, r"sanitize\.json: 1 of 2 cases failed"),
        (Stages(outcomes={"project/parity": "error"}), CheckFailedError, r"parity\.json: 1 of 2 cases failed"),
        (Stages(outcomes={"gfx950/large-kv": "skipped"}), CheckFailedError, r"large-kv\.json: every one of its 2"),
        (Stages(facts=FOREIGN), RecordError, r"results of the library dddd"),
    ],
)
def test_what_stage_left_is_judged_again(
    tmp_path: Path, stages: Stages, error: type[Exception], complaint: str
) -> None:
    """Refuse a shard whose stage ended well with results that are not a pass."""
    records = run(plan(tmp_path), stages)
    with pytest.raises(error, match=complaint):
        examine(planned_steps(), records, lambda step, role: tmp_path / step.outputs[role])


def test_library_not_its_manifest_s_is_refused(tmp_path: Path) -> None:
    records = dict(run(plan(tmp_path), Stages()))
    build = records["gfx950/build"]
    outputs = {name: "f" * 64 if name.endswith(".so") else digest for name, digest in build.outputs.items()}
    records["gfx950/build"] = dataclasses.replace(build, outputs=outputs)
    with pytest.raises(RecordError, match=r"gfx950/build: the library .*manifest"):
        examine(planned_steps(), records, lambda step, role: tmp_path / step.outputs[role])


def test_defects_are_counted_with_kernels_that_were_left_out(tmp_path: Path) -> None:
    left = {"split-kv-of-generic-masks-does-not-compile": {"reason": "r", "kernels": ["one", "two"]}}
    records = run(plan(tmp_path), Stages(left_out=left))
    findings = examine(planned_steps(), records, lambda step, role: tmp_path / step.outputs[role])
    assert findings.defects == {"split-kv-of-generic-masks-does-not-compile": 2, "table-read-past-end": 1}
    assert findings.cases["gfx950/page-fault"] == {"known defect": 1, "passed": 1}


def waivers(tmp_path: Path, text: str = WAIVERS, defects: tuple[str, ...] = (DEFECT,)) -> dict[str, Waiver]:
    file = tmp_path / "waivers.yaml"
    file.write_text(text)
    return dict(read_waivers(file, defects))


def test_waiver_holds_on_its_last_day_and_not_day_after(tmp_path: Path) -> None:
    waivers_by_defect = waivers(tmp_path, WAIVERS.replace("2099-12-31", "2026-06-01"))
    demand_accepted({DEFECT: 3}, waivers_by_defect, TODAY)
    with pytest.raises(
        CheckFailedError, match=rf"{DEFECT} \(3\): waivers\.yaml:\d+: the acceptance ended on 2026-06-01"
    ):
        demand_accepted({DEFECT: 3}, waivers_by_defect, TODAY + datetime.timedelta(days=1))


def test_waiver_of_tomorrow_is_none(tmp_path: Path) -> None:
    waivers_by_defect = waivers(tmp_path, WAIVERS.replace("2026-01-01", "2026-06-02"))
    with pytest.raises(CheckFailedError, match="accepted only on 2026-06-02"):
        demand_accepted({DEFECT: 1}, waivers_by_defect, TODAY)


def test_every_defect_that_no_one_accepted_is_named() -> None:
    with pytest.raises(CheckFailedError, match=r"one \(1\): not accepted\n  two \(2\): not accepted"):
        demand_accepted({"two": 2, "one": 1}, {}, TODAY)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("    accepted_by: A Person\n", ""), "field 'accepted_by' is missing"),
        (("A Person", "''"), "accepted_by: is empty"),
        (("2099-12-31", "2025-12-31"), "until: is before 2026-01-01"),
        (("    reason:", "    location: w\n    reason:"), "known here: accepted_by, accepted_on, until, reason$"),
        ((DEFECT, "table-read-past-endx"), "did you mean 'table-read-past-end'"),
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
        name: Waiver(name=name, location="w:1", accepted_by="P", accepted_on=TODAY, until=TODAY, reason="r")
        for name in ("one", "two")
    }
    verdict = judge(BASIS, Findings(defects=defects, cases={}), accepted, today=TODAY)
    assert (verdict.text, verdict.unneeded) == (text, unneeded)


def test_own_waivers_are_for_existing_defects() -> None:
    root = Path(__file__).parents[4]
    release = yaml.safe_load((root / ".github" / "template_values.yaml").read_text())["release"]
    entries, upstream = {entry.name: entry for entry in read_ledger(LEDGER).entries}, read_stages().upstream
    waivers = read_waivers(root / release["waivers"], tuple(entries))
    for name, waiver in waivers.items():
        assert {upstream, "*"} & set(entries[name].upstreams), name
        assert waiver.until <= entries[name].expires, name
    needed = {
        entry.name
        for entry in entries.values()
        if upstream in entry.upstreams and entry.problems[0].partition("/")[0] in SUITES
    }
    assert set(waivers) == needed

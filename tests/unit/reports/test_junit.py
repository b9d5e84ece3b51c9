"""JUnit XML has the content of results, whatever text they contain. Shards are merged whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from junitparser import Error, Failure, JUnitXml, Skipped

from ckpm.base.errors import InputError, RecordError
from ckpm.base.junit import junit_text, write_junit
from ckpm.base.outputs import write_output
from ckpm.base.results import OUTCOMES, CaseFault, CaseResult, LedgerUse, NearestAllocation, Results
from ckpm.reports.junit import gate_results, merge, summary, write_gate
from ckpm.reports.verdicts import Gate, VerdictRow
from tests.unit.shared import Run

ROW = VerdictRow(gate="static", subject="k", metric="vgpr", baseline=1.0, candidate=1.0, verdict="unchanged")
PASSED = CaseResult(suite="a", classname="a.gfx950", name="one", outcome="passed", text="same: 3 names", seconds=1.5)
FAILED = CaseResult(
    suite="a", classname="a.gfx950", name="two", outcome="failed", message="1 < 2 & 3", text=']]> "x"\n+ y'
)
ERROR = CaseResult(suite="b", classname="b.gfx942", name="three", outcome="error", message="no", text="trace")
SKIPPED = CaseResult(suite="b", classname="b.gfx942", name="four", outcome="skipped", message="not here")
RESULTS = Results((PASSED, FAILED, ERROR, SKIPPED))
NEAREST = NearestAllocation(
    id=3, base=0x1000, bytes=64, kind="device", label="K pool", freed=False, distance=5, overrun=0
)
FULL = CaseResult(
    suite="page-fault", arch="gfx950", upstream="aiter", family="fwd", classname="page-fault.x", name="n",
    outcome="passed", text="O agrees", kernel="k", tolerance_used=0.25, reproduce="nox -s x", seconds=2.0,
    ledger=LedgerUse(name="known-one", location="ledger.yaml:3", reason="reads on", link="https://example.org/1"),
    fault=CaseFault(
        kind="memory", message="load outside", access="load", instruction="global_load_dword", pc=16, address=4096,
        bytes=4, workgroup=(1, 0, 0), wave=2, lane=0, error=700, nearest=NEAREST,
    ),
)  # fmt: skip


def stored_case() -> dict[str, Any]:
    """The first case of RESULTS as JSON."""
    return {"suite": "a", "classname": "a.gfx950", "name": "one", "outcome": "passed", "seconds": 1.5}


def test_junit_holds_every_case() -> None:
    suites = {suite.name: list(suite) for suite in JUnitXml.fromstring(junit_text(RESULTS).encode())}
    assert list(suites) == ["a", "b"]
    first, second = suites["a"]
    third, fourth = suites["b"]
    assert (first.name, first.classname, first.time, first.result) == ("one", "a.gfx950", 1.5, [])
    assert first.system_out == "same: 3 names"
    (failure,) = second.result
    assert isinstance(failure, Failure)
    assert (failure.message, failure.text) == ("1 < 2 & 3", ']]> "x"\n+ y')
    assert isinstance(third.result[0], Error)
    assert isinstance(fourth.result[0], Skipped)
    assert fourth.result[0].message == "not here"


_CASES = st.builds(
    CaseResult,
    suite=st.sampled_from(["s", "t"]),
    classname=st.text("abc.", min_size=1),
    name=st.text(min_size=1),
    outcome=st.sampled_from(OUTCOMES),
    message=st.text(),
    text=st.text(),
    seconds=st.floats(0, 1e6),
)


@given(st.lists(_CASES, max_size=5))
def test_any_text_gives_well_formed_xml(cases: list[CaseResult]) -> None:
    results = Results(tuple(cases))
    document = JUnitXml.fromstring(junit_text(results).encode())
    assert sum(len(list(suite)) for suite in document) == len(cases)


def test_people_read_every_field_of_case() -> None:
    (suite,) = JUnitXml.fromstring(junit_text(Results((FULL,))).encode())
    assert suite.name == "page-fault-gfx950-aiter-fwd"
    (case,) = suite
    lines = case.system_out.splitlines()
    assert lines[:3] == ["ledger: known-one (ledger.yaml:3): reads on https://example.org/1", "kernel: k", "O agrees"]
    assert json.loads(lines[3].removeprefix("fault: "))["nearest"]["label"] == "K pool"
    assert lines[4:] == ["reproduce: nox -s x"]
    assert FULL.status == "known defect"
    assert replace(FULL, outcome="failed").status == "failed"


def test_json_round_trip(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "results.json"
    RESULTS.write(file)
    assert Results.read(file) == RESULTS
    Results((FULL,), {"device": "emulator"}).write(file)
    assert Results.read(file) == Results((FULL,), {"device": "emulator"})
    assert sorted(path.name for path in file.parent.iterdir()) == [".ckpm-outputs", "results.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 1}, "no results of format 2"),
        ({"facts": {"device": 3}}, "facts.device: is '3', expected text"),
        ({"cases": [{**stored_case(), "outcome": "odd"}]}, "cases[0].outcome: 'odd' is none of passed, failed"),
        ({"cases": [{**stored_case(), "more": 1}]}, "cases[0].more: no such field"),
        (
            {"cases": [{**stored_case(), "fault": {"kind": "memory", "message": "m", "nearest": {"id": 1}}}]},
            "cases[0].fault.nearest: field 'base' is missing",
        ),
        (
            {"cases": [{**stored_case(), "ledger": {"name": "x", "location": "y"}}]},
            "cases[0].ledger: field 'reason' is missing",
        ),
    ],
)
def test_malformed_results_name_field(tmp_path: Path, change: dict[str, object], message: str) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"format": 2, "cases": [stored_case()]} | change))
    with pytest.raises(RecordError) as caught:
        Results.read(file)
    assert message in str(caught.value)
    assert str(file) in str(caught.value)


def test_report_junit_command_writes_file_and_exit_code(tmp_path: Path, run: Run) -> None:
    source, output = tmp_path / "results.json", tmp_path / "junit.xml"
    RESULTS.write(source)
    code, out, err = run("report", "--junit", source, "--output", output)
    assert (code, "failed: two: 1 < 2 & 3" in out, "2 of 4 cases failed" in err) == (8, True, True)
    assert len(JUnitXml.fromfile(str(output))) == 2
    Results((PASSED,)).write(source)
    assert run("report", "--junit", source, "--output", output)[0] == 0
    assert run("report", "--junit", tmp_path / "none.json", "--output", output)[0] == 3
    assert run("report", "--junit")[0] == 2


@pytest.mark.parametrize("output", ["", "results.json/below.xml"])
def test_report_to_unwritable_path_leaves_no_file(tmp_path: Path, run: Run, output: str) -> None:
    source = tmp_path / "results.json"
    RESULTS.write(source)
    code, _, err = run("report", "--junit", source, "--output", tmp_path / output)
    assert (code, f"{tmp_path / output}: can't be written: " in err) == (10, True)
    assert {path.name for path in tmp_path.iterdir()} <= {source.name, ".ckpm-outputs"}


def test_lines_of_message_are_joined_by_spaces() -> None:
    row = replace(ROW, baseline=None, candidate=None, verdict="missing", note="not built:\n  its unit")
    assert str(row) == "missing: vgpr: k; not built: its unit"
    case = CaseResult(
        suite="parity", arch="", upstream="", classname="p", name="n", outcome="failed", message="1 missing:\n a"
    )
    assert summary(Results((case,))).splitlines()[-1] == "failed: n: 1 missing: a"


def test_gate_is_case_for_each_kernel_with_its_worst_verdict() -> None:
    worse = replace(ROW, metric="vgpr_spills", candidate=2.0, verdict="regressed")
    noisy = replace(ROW, gate="gpu", subject="p", verdict="inconclusive")
    results = gate_results(Gate.of([ROW, worse, noisy, replace(ROW, subject="l")], {}))
    assert [(case.suite, case.name, case.outcome) for case in results.cases] == [
        ("static-gate", "k", "failed"),
        ("gpu-gate", "p", "error"),
        ("static-gate", "l", "passed"),
    ]
    assert results.cases[0].message == "regressed: 1 of 2 figures"
    assert "vgpr_spills: 1 -> 2" in results.cases[0].text


def test_gates_of_several_libraries_are_joined_as_shards(tmp_path: Path) -> None:
    """Each library has kernels of the same names; one library given twice is still refused."""
    of = [("gfx942", "aiter", {}), ("gfx950", "aiter", {}), ("gfx950", "ck", {}), ("gfx950", "ck", {"library": "fwd"})]
    shards = []
    for at, (arch, upstream, family) in enumerate(of):
        provenance = {"arch": arch, "upstream": upstream, **family}
        write_gate(Gate.of([ROW], provenance), tmp_path / f"{at}.json")
        shards.append(tmp_path / f"{at}.xml")
    joined = merge(shards, tmp_path / "all.xml")
    assert [suite.name for suite in joined] == [
        "static-gate-gfx942-aiter", "static-gate-gfx950-aiter", "static-gate-gfx950-ck", "static-gate-gfx950-ck-fwd",
    ]  # fmt: skip
    with pytest.raises(InputError, match="Was a shard given twice"):
        merge([*shards, shards[0]], tmp_path / "all.xml")


def shard(file: Path, *names: str, outcome: str = "passed") -> Path:
    cases = [
        CaseResult(suite="s", classname="c", name=name, outcome=outcome, message="m", seconds=1.0) for name in names
    ]
    write_junit(Results(tuple(cases)), file)
    return file


def test_suites_of_one_name_are_joined(tmp_path: Path, run: Run) -> None:
    output = tmp_path / "merged.xml"
    shards = [shard(tmp_path / "1.xml", "a", "b"), shard(tmp_path / "2.xml", "c")]
    assert run("report", "--merge", *shards, "--output", output)[0] == 0
    (suite,) = JUnitXml.fromfile(str(output))
    assert [case.name for case in suite] == ["a", "b", "c"]
    assert (suite.name, suite.tests, suite.failures, suite.time) == ("s", 3, 0, 3.0)


def test_failure_of_shard_fails_whole(tmp_path: Path, run: Run) -> None:
    shards = [shard(tmp_path / "1.xml", "a"), shard(tmp_path / "2.xml", "b", outcome="failed")]
    code, _, err = run("report", "--merge", *shards, "--output", tmp_path / "m.xml")
    assert (code, "1 of 2 cases failed, the first is b" in err) == (8, True)
    assert JUnitXml.fromfile(str(tmp_path / "m.xml")).failures == 1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], "no whole XML, was it cut short?"),
        (lambda text: "", "no whole XML, was it cut short?"),
        (lambda text: text.replace('tests="2"', 'tests="3"'), "its header counts 3 cases, the file has 2"),
        (lambda text: "<testsuites/>", "no case in it"),
        (lambda text: "<html/>", "no JUnit"),
        (
            lambda text: '<!DOCTYPE x [<!ENTITY a "b">]><testsuite name="&a;"/>',
            "line 1: no JUnit: it declares a document type",
        ),
        (lambda text: text.replace('tests="2"', 'tests="many"'), "no whole XML, was it cut short? "),
        (
            lambda text: '<testsuite name="\u202e" tests="2"><testcase name="a"/></testsuite>',
            "suite \\u202e: its header counts 2 cases, ",
        ),
    ],
)
def test_damaged_shard_is_named(tmp_path: Path, run: Run, damage: Callable[[str], str], message: str) -> None:
    good, bad, output = shard(tmp_path / "1.xml", "a"), tmp_path / "2.xml", tmp_path / "merged.xml"
    shard(bad, "b", "c")
    bad.write_text(damage(bad.read_text()))
    write_output(output, b"an earlier run's")
    code, _, err = run("report", "--merge", good, bad, "--output", output)
    assert (code, f"error: {bad}: " in err, message in err) == (3, True, True), err
    assert not output.exists()


def test_missing_or_repeated_shard_is_refused(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    good, again, output = shard(tmp_path / "1.xml", "a"), shard(tmp_path / "2.xml", "a"), tmp_path / "merged.xml"
    assert run("report", "--merge", good, tmp_path / "none.xml", "--output", output)[0] == 3
    code, _, err = run("report", "--merge", good, again, "--output", output)
    assert (code, f"{again}: a is in {good}, too" in err) == (3, True)
    assert run("report", "--merge", good, "--output", good)[0] == 2
    monkeypatch.chdir(tmp_path)
    assert run("report", "--merge", good, "--output", "1.xml")[0] == 2
    assert [case.name for suite in JUnitXml.fromfile(str(good)) for case in suite] == ["a"]

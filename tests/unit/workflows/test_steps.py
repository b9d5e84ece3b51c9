"""Programs that steps of workflows call: tries, outputs, the verdict, joined results."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ckpm import __version__
from ckpm.base.entry import exit_code
from ckpm.base.errors import CkPrefillError, CompileError, InconclusiveError, ServiceError
from ckpm.base.paths import PROJECT
from ckpm.workflows.attempt import attempt, is_infrastructure
from ckpm.workflows.collect import collect
from ckpm.workflows.outputs import jobs
from ckpm.workflows.tag import PATTERNS
from ckpm.workflows.tag import complaints as tag_complaints
from ckpm.workflows.verdict import complaints
from tests.unit.shared import Run

PLAN: dict[str, Any] = {
    "check_commands": {"lint": "nox -s lint"},
    "builds": [{"arch": "gfx950", "upstream": "aiter", "library": "fwd", "shard": "1/2", "command": "build it"}],
    "runs": [
        {
            "arch": "gfx950",
            "upstream": "aiter",
            "library": "fwd",
            "suites": ["dispatch", "sanitize"],
            "gate": True,
            "command": "run it",
        }
    ],
}


@pytest.mark.parametrize(("error", "tries"), [(ServiceError, 3), (CompileError, 1)])
def test_attempt_repeats_failures_of_infrastructure_only(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: type[CkPrefillError],
    tries: int,
) -> None:
    """The command records a failure as our programs do, in the file of CKPM_FAILURES."""
    row = {"exit_code": error.exit_code, "infrastructure": error.infrastructure, "message": "x"}
    command = f"echo x >> {tmp_path}/tries; echo '{json.dumps(row)}' >> $CKPM_FAILURES; exit {error.exit_code}"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    pauses: list[float] = []
    assert attempt(command, pauses.append) == error.exit_code
    assert len((tmp_path / "tries").read_text().split()) == tries
    assert len(pauses) == tries - 1
    assert command in (tmp_path / "summary.md").read_text()
    assert capfd.readouterr().out.startswith(f"reproduce: {command}\n")


def test_attempt_repeats_no_success_or_unrecorded_failure(tmp_path: Path) -> None:
    for code in (0, 7):
        assert attempt(f"echo x >> {tmp_path}/{code}; exit {code}", lambda _: pytest.fail("a pause")) == code
        assert (tmp_path / str(code)).read_text() == "x\n"


def test_attempt_ends_when_infrastructure_recovers(tmp_path: Path) -> None:
    row = json.dumps({"exit_code": 12, "infrastructure": True, "message": "x"})
    command = f"test -e {tmp_path}/up || (touch {tmp_path}/up; echo '{row}' >> $CKPM_FAILURES; exit 12)"
    pauses: list[float] = []
    assert (attempt(command, pauses.append), len(pauses)) == (0, 1)


def test_commands_record_their_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> int:
        raise ServiceError("the index is down", kind="download")

    monkeypatch.setenv("CKPM_FAILURES", str(tmp_path / "failures"))
    assert exit_code(fails) == 12
    row = json.loads((tmp_path / "failures").read_text())
    assert row == {"exit_code": 12, "kind": "download", "infrastructure": True, "message": "the index is down"}


def test_jobs_have_names_and_commands() -> None:
    planned_jobs = jobs(PLAN)
    assert [job["name"] for kind in planned_jobs.values() for job in kind] == [
        "check-lint",
        "library-gfx950-aiter-fwd-1of2",
        "results-gfx950-aiter-fwd",
    ]
    assert planned_jobs["checks"][0]["command"] == "nox -s lint"


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ({"plan": "success", "check": "success", "library": "skipped", "results": "success"}, []),
        ({"plan": "success", "check": "skipped"}, ["check: skipped"]),
        ({"plan": "failure", "check": "skipped"}, ["plan: failure", "check: skipped"]),
        ({"plan": "success", "check": "cancelled"}, ["check: cancelled"]),
    ],
)
def test_verdict_lists_jobs_without_success(results: dict[str, str], expected: list[str]) -> None:
    outputs = {"checks": "[1]", "builds": "[]", "runs": "[1]"} if results["plan"] == "success" else {}
    needs = {job: {"result": result, "outputs": outputs} for job, result in results.items()}
    assert complaints(needs) == expected


def junit(file: Path, suite: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'<testsuite name="{suite}" tests="1"><testcase classname="{suite}" name="one"/></testsuite>')


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """Artifacts of jobs that wrote every result."""
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    library = tmp_path / "artifacts" / "library-gfx950-aiter-fwd-1of2" / "gfx950" / "aiter"
    library.mkdir(parents=True)
    (library / "manifest.json").write_text('{"kernels": {"k": {}}, "archs": ["gfx950"]}')
    results = tmp_path / "artifacts" / "results-gfx950-aiter-fwd" / "gfx950" / "aiter"
    for suite in ("dispatch", "sanitize"):
        junit(results / f"{suite}.xml", suite)
        cases = [{"arch": "gfx950", "outcome": outcome} for outcome in ("skipped", "passed")]
        (results / f"{suite}.json").write_text(json.dumps({"cases": cases}))
    (results / "gate.json").write_text('{"rows": [1]}')
    return tmp_path


def collect_all(left: Path) -> None:
    collect(left / "plan.json", left / "artifacts", left / "build")


def test_tag_is_the_version_of_every_file(tmp_path: Path) -> None:
    assert tag_complaints(f"v{__version__}") == []
    assert len(tag_complaints("v9.9.9")) == len(PATTERNS)
    for file in PATTERNS:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text((PROJECT / file).read_text())
    text = (
        (tmp_path / "emulator/pyproject.toml").read_text().replace(f'version = "{__version__}"', 'version = "9.9"', 1)
    )
    (tmp_path / "emulator/pyproject.toml").write_text(text)
    expected = f"emulator/pyproject.toml: version 9.9, and the tag is v{__version__}"
    assert tag_complaints(f"v{__version__}", tmp_path) == [expected]


def test_collect_copies_every_result(left: Path, run: Run) -> None:
    paths = ("--plan", left / "plan.json", "--artifacts", left / "artifacts", "--output", left / "build")
    assert run("workflows", "collect", *paths)[0] == 0
    assert (left / "build" / "gfx950" / "aiter" / "gate.json").is_file()
    assert (left / "build" / "all.xml").read_text().count("<testcase") == 2


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("library-gfx950-aiter-fwd-1of2/gfx950/aiter/manifest.json", '{"kernels": {}}', "no manifest with a kernel"),
        ("results-gfx950-aiter-fwd/gfx950/aiter/sanitize.xml", None, "no results of sanitize"),
        ("results-gfx950-aiter-fwd/gfx950/aiter/gate.json", '{"rows": []}', "no results of gate"),
        ("results-gfx950-aiter-fwd/gfx950/aiter/gate.json", "{", "can't be read"),
        (
            "library-gfx950-aiter-fwd-1of2/gfx950/aiter/manifest.json",
            '{"kernels": {"k": {}}, "archs": ["gfx950", "gfx942"]}',
            "library-gfx950-aiter-fwd-1of2: results of gfx942 in a job of gfx950",
        ),
        (
            "results-gfx950-aiter-fwd/gfx950/aiter/sanitize.json",
            '{"cases": [{"arch": "gfx942", "outcome": "passed"}]}',
            "results-gfx950-aiter-fwd: results of gfx942 in a job of gfx950",
        ),
    ],
)
def test_collect_without_result_fails(left: Path, file: str, text: str | None, message: str) -> None:
    path = left / "artifacts" / file
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    with pytest.raises(InconclusiveError, match=message):
        collect_all(left)


def test_lane_proves_its_arch(left: Path, run: Run) -> None:
    folder = left / "artifacts/results-gfx950-aiter-fwd"
    code, out, _ = run("workflows", "ran-on", folder, "--arch", "gfx950")
    assert (code, "4 cases, all of gfx950" in out) == (0, True)
    code, _, err = run("workflows", "ran-on", folder, "--arch", "gfx942")
    assert (code, "results of gfx950 in a job of gfx942" in err) == (InconclusiveError.exit_code, True)
    for file in folder.rglob("*.json"):
        file.write_text(file.read_text().replace("passed", "failed"))
    code, _, err = run("workflows", "ran-on", folder, "--arch", "gfx950")
    assert (code, "no case of a suite passed" in err) == (InconclusiveError.exit_code, True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"runs": [{}]}, r"runs\[0\].arch: is missing, expected text"),
        ({"runs": [{**PLAN["runs"][0], "arch": "../.."}]}, "'results-../..-aiter-fwd' is not a name of a job"),
        ({"check_commands": {"a\n": "x"}}, "is not a name of a job"),
    ],
)
def test_collect_with_damaged_plan_writes_nothing(left: Path, change: dict[str, object], message: str) -> None:
    (left / "plan.json").write_text(json.dumps({**PLAN, **change}))
    with pytest.raises(InconclusiveError, match=message):
        collect_all(left)
    assert not (left / "build").exists()


def test_collect_keeps_links(left: Path) -> None:
    folder = left / "artifacts" / "results-gfx950-aiter-fwd" / "gfx950"
    (folder / "again").symlink_to("..")
    collect_all(left)
    assert (left / "build" / "gfx950" / "again").is_symlink()


def test_collect_refuses_files_too_large_for_results(left: Path) -> None:
    file = left / "artifacts" / "results-gfx950-aiter-fwd" / "large.log"
    file.touch()
    os.truncate(file, 1 << 40)
    with pytest.raises(InconclusiveError, match=r"large\.log: has more than 1024 MiB"):
        collect_all(left)


def test_cut_off_record_is_not_infrastructure(tmp_path: Path) -> None:
    for text in ('{"infrastructure": true}\n{"infra', "[]\n", "3\n", "{}\n"):
        (tmp_path / "record").write_text(text)
        assert not is_infrastructure(tmp_path / "record")

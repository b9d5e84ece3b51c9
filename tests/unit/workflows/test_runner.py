"""The runner for this machine: values, order of jobs, failures, artifacts, the clone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ckpm.base.errors import InconclusiveError, InputError
from ckpm.base.paths import PROJECT
from ckpm.commands import main
from ckpm.workflows.render import BASE, FOLDER, names
from ckpm.workflows.runner import WorkflowRun, fill, run_jobs
from tests.unit.shared import git

VALUES = {"matrix.name": "a", "needs.plan.outputs.builds": '[{"name": "x"}]'}
CHECKOUT = {"uses": "actions/checkout@1", "with": {}}


def test_fill_replaces_known_values() -> None:
    assert fill("${{ matrix.name }}-1", VALUES) == "a-1"
    assert fill("${{matrix.name}} $NAME plain", VALUES) == "a $NAME plain"


@pytest.mark.parametrize("text", ["${{ secrets.x }}", "${{ !cancelled() }}", "${{ matrix.name || 'b' }}", "${{ }}"])
def test_fill_unknown_value_fails(text: str) -> None:
    with pytest.raises(InputError, match="this runner has no value for it"):
        fill(text, VALUES)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """``run(jobs)``: outcomes, and what was printed. Jobs clone a repository with one file."""
    source = tmp_path / "source"
    git(tmp_path, "init", "-q", str(source))
    (source / "file").write_text("content\n")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "x")
    commit = git(source, "rev-parse", "HEAD")
    (source / "file").write_text("changed and not committed\n")

    def make(jobs: dict[str, Any], only: tuple[str, ...] = (), values: dict[str, str] | None = None) -> tuple[Any, str]:
        jobs = {name: {"runs-on": "x", **job} for name, job in jobs.items()}
        outcomes = run_jobs(WorkflowRun({"jobs": jobs}, values or {}, source, commit, tmp_path / "work", only))
        return outcomes, capsys.readouterr().out

    return make


def results(outcomes: Any) -> dict[str, str]:
    return {name: outcome.result for name, outcome in outcomes.items()}


def test_jobs_share_outputs_and_artifacts(run: Any, tmp_path: Path) -> None:
    first = {
        "outputs": {"word": "${{ steps.one.outputs.word }}"},
        "steps": [
            CHECKOUT,
            {"id": "one", "run": 'echo "word=$(cat file)" >$GITHUB_OUTPUT; echo s >$GITHUB_STEP_SUMMARY'},
            {
                "run": 'test "$B" = content; mkdir -p build/x; echo yes > build/x/r.json',
                "env": {"B": "${{ steps.one.outputs.word }}"},
            },
            {
                "uses": "actions/upload-artifact@1",
                "with": {"name": "r", "path": "build/*/r.json", "if-no-files-found": "error"},
            },
        ],
    }
    second = {
        "needs": "first",
        "steps": [
            CHECKOUT,
            {"uses": "actions/download-artifact@1", "with": {"path": "all"}},
            {"run": 'grep yes all/r/x/r.json; test "$W" = content', "env": {"W": "${{ needs.first.outputs.word }}"}},
        ],
    }
    outcomes, printed = run({"first": first, "second": second})
    assert results(outcomes) == {"first": "success", "second": "success"}, printed
    assert (tmp_path / "work" / "first" / "summary.md").read_text() == "s\n"


def test_failing_step_skips_later_steps_and_jobs(run: Any) -> None:
    bad = {
        "steps": [
            CHECKOUT,
            {"name": "breaks", "run": "false; true"},
            {"name": "next", "run": "true"},
            {"name": "last", "if": "${{ !cancelled() }}", "run": "true"},
            {"name": "verdict", "if": "${{ always() }}", "run": "true"},
        ]
    }
    after = {"needs": "bad", "steps": [{"run": "true"}]}
    always = {"needs": ["bad"], "if": "${{ always() }}", "steps": [CHECKOUT, {"run": "true"}]}
    outcomes, printed = run({"bad": bad, "after": after, "always": always})
    assert results(outcomes) == {"bad": "failure", "after": "skipped", "always": "success"}
    assert "breaks: failed: exit code 1" in printed
    assert "next: skipped" in printed
    assert "after: skipped, it needs bad, which did not succeed" in printed
    assert "last: done" in printed
    assert "verdict: done" in printed


def test_matrix_runs_each_entry_and_worst_counts(run: Any) -> None:
    job = {
        "name": "job-${{ matrix.n }}",
        "strategy": {"matrix": {"include": "${{ fromJSON(inputs.list) }}"}},
        "steps": [CHECKOUT, {"run": 'test "$N" != 2', "env": {"N": "${{ matrix.n }}"}}],
    }
    values = {"inputs.list": '[{"n": "1"}, {"n": "2"}, {"n": "3"}]'}
    outcomes, _ = run({"job": job}, values=values)
    assert outcomes["job"].result == "failure"
    outcomes, printed = run({"job": job}, only=("job-1", "job-3"), values=values)
    assert outcomes["job"].result == "success"
    assert "job-2: not chosen" in printed
    outcomes, _ = run({"job": job}, values={"inputs.list": "[]"})
    assert outcomes["job"].result == "skipped"
    job["strategy"] = {"matrix": {"n": ["1", "2", "3"]}}
    outcomes, printed = run({"job": job}, only=("job-[12]",))
    assert outcomes["job"].result == "failure"
    assert "job-3: not chosen" in printed


def test_job_that_writes_to_github_is_skipped(run: Any) -> None:
    job = {"permissions": {"contents": "write"}, "steps": [CHECKOUT, {"run": "false"}]}
    outcomes, printed = run({"job": job})
    assert outcomes["job"].result == "skipped"
    assert "skipped, it writes to GitHub" in printed


def test_jobs_have_one_home_and_other_actions_are_left_out(run: Any) -> None:
    save = {"uses": "actions/cache/save@1", "with": {"key": "${{ hashFiles('x') }}"}}
    fill_cache = {"steps": [CHECKOUT, {"run": "mkdir -p ~/.cache; echo 1 > ~/.cache/f"}, save]}
    outcomes, printed = run({"one": fill_cache, "two": {"steps": [CHECKOUT, {"run": "cat ~/.cache/f"}]}})
    assert results(outcomes) == {"one": "success", "two": "success"}
    assert "left out: actions/cache/save" in printed


@pytest.mark.parametrize("name", names())
def test_runner_has_every_value_of_workflow(name: str, run: Any) -> None:
    """Every job runs with `true` as its lines, a plan of one job of each kind, and artifacts that are optional."""
    jobs = yaml.safe_load((PROJECT / FOLDER / f"{name}.yml").read_text())["jobs"]
    for step in (step for job in jobs.values() for step in job["steps"]):
        if "run" in step:
            step["run"] = "true"
        if step.get("id") == "jobs":
            entry = '[{"name": "n", "command": "c"}]'
            step["run"] = f"for kind in checks builds runs; do echo $kind='{entry}' >> $GITHUB_OUTPUT; done"
        step.get("with", {}).pop("if-no-files-found", None)
        if "setup-python" in step.get("uses", "") or "download-artifact" in step.get("uses", ""):
            step["uses"] = "left/out@1"
    outcomes, printed = run(
        jobs, values={BASE: "b", "inputs.baseline": "", "github.ref_name": "v1", "vars.CK_SEEN": ""}
    )
    assert set(results(outcomes).values()) <= {"success", "skipped"}, printed
    assert [job for job, result in results(outcomes).items() if result == "skipped"] == (
        ["publish", "pypi"] if name == "release" else []
    )


def test_command_runs_jobs_of_workflow_in_clones_of_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commit of this checkout in place of its branch `main`, which a clone of one branch may lack."""
    command = ["workflows", "run", "pull-request", "--since", "HEAD", "--work", str(tmp_path)]
    assert main([*command, "--only", "no-such-job"]) == InconclusiveError.exit_code
    assert "plan: not chosen" in capsys.readouterr().out
    job = {"runs-on": "x", "steps": [CHECKOUT, {"run": "test -f noxfile.py"}]}
    monkeypatch.setattr(yaml, "safe_load", lambda text: {"jobs": {"plan": job}})
    assert main(command) == 0
    assert "plan: on this machine instead of x" in capsys.readouterr().out

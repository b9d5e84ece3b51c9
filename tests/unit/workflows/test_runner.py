"""The runner for this machine: expressions, order of jobs, conditions, environment files, artifacts, caches."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from workflows.errors import WorkflowError
from workflows.expressions import filled
from workflows.runner import Run, run_workflow

CONTEXT = {
    "github": {"ref": "refs/heads/main", "event": {"n": 3}, "workspace": "."},
    "matrix": {"name": "a"},
    "needs": {"plan": {"outputs": {"builds": '[{"name": "x"}]'}}},
    "job": {"status": "success"},
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${{ matrix.name }}-1", "a-1"),
        ("${{ fromJSON(needs.plan.outputs.builds) }}", [{"name": "x"}]),
        ("${{ needs.plan.outputs.builds != '[]' && github.event.n == 3 }}", True),
        ("${{ matrix.nothing || 'it''s' }}", "it's"),
        ("${{ format('refs/heads/{0}', 'main') == github.ref }}", True),
        ("${{ !cancelled() && (failure() || success()) }}", True),
        ("plain", "plain"),
    ],
)
def test_expressions(text: str, value: object) -> None:
    assert filled(text, CONTEXT) == value


@pytest.mark.parametrize("text", ["${{ secrets.x }}", "${{ join(matrix) }}", "${{ 'a' ? }}", "${{ (1 }}", "${{ 1 2 }}"])
def test_an_expression_that_is_not_known_is_an_error(text: str) -> None:
    with pytest.raises(WorkflowError):
        filled(text, CONTEXT)


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """``run(jobs)``: outcomes, and what was said; jobs clone a repository with one file."""
    repository = tmp_path / "work" / "shared" / "repository"
    source = tmp_path / "source"
    for words in (["init", "-q", str(source)], ["init", "-q", "--bare", str(repository)]):
        subprocess.run(["git", *words], check=True)
    (source / "file").write_text("content\n")
    git = ["git", "-C", str(source), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["add", "-A"], ["commit", "-qm", "x"], ["push", "-q", str(repository), "HEAD:commit"]):
        subprocess.run([*git, *words], check=True)

    def make(jobs: dict[str, Any], only: tuple[str, ...] = ()) -> tuple[Any, str]:
        said: list[str] = []
        jobs = {name: {"runs-on": "x", **job} for name, job in jobs.items()}
        github = {"sha": "0" * 40, "ref": "refs/heads/main"}
        found = run_workflow(Run({"jobs": jobs}, github, tmp_path / "work", source, only, said.append))
        return found, "\n".join(said)

    return make


CHECKOUT = {"uses": "actions/checkout@1", "with": {}}


def test_steps_share_outputs_and_environment_and_jobs_share_artifacts(run: Any, tmp_path: Path) -> None:
    first = {
        "outputs": {"word": "${{ steps.one.outputs.word }}"},
        "steps": [
            CHECKOUT,
            {
                "id": "one",
                "run": 'echo "word=$(cat file)" >$GITHUB_OUTPUT; echo A=1 >$GITHUB_ENV; echo s >$GITHUB_STEP_SUMMARY',
            },
            {
                "run": 'test "$A-$B" = 1-content; mkdir -p build/x; echo yes > build/x/r.json',
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
        "if": "needs.first.outputs.word == 'content'",
        "steps": [
            CHECKOUT,
            {"uses": "actions/download-artifact@1", "with": {"path": "all"}},
            {"run": "grep yes all/r/x/r.json"},
        ],
    }
    found, said = run({"second": second, "first": first})
    assert {name: one.result for name, one in found.items()} == {"first": "success", "second": "success"}, said
    assert (tmp_path / "work" / "first" / "summary.md").read_text() == "s\n"


def test_a_failing_step_skips_what_follows_and_what_needs_the_job(run: Any) -> None:
    bad = {
        "steps": [
            CHECKOUT,
            {"name": "breaks", "run": "false; true"},
            {"name": "next", "run": "true"},
            {"name": "last", "if": "${{ !cancelled() }}", "run": "true"},
        ]
    }
    after = {"needs": "bad", "steps": [{"run": "true"}]}
    always = {"needs": ["bad"], "if": "${{ !cancelled() }}", "steps": [CHECKOUT, {"run": "true"}]}
    found, said = run({"bad": bad, "after": after, "always": always})
    assert {name: one.result for name, one in found.items()} == {
        "bad": "failure",
        "after": "skipped",
        "always": "success",
    }
    assert "breaks: failed with exit code 1" in said
    assert "next: skipped" in said
    assert "last: done" in said


def test_a_matrix_has_a_job_for_each_entry_and_the_worst_counts(run: Any) -> None:
    job = {
        "name": "job-${{ matrix.n }}",
        "strategy": {"matrix": {"include": '${{ fromJSON(\'[{"n": 1}, {"n": 2}, {"n": 3}]\') }}'}},
        "steps": [CHECKOUT, {"run": 'test "$N" != 2', "env": {"N": "${{ matrix.n }}"}}],
    }
    found, _ = run({"job": job})
    assert found["job"].result == "failure"
    found, said = run({"job": job}, only=("job-1", "job-3"))
    assert found["job"].result == "success"
    assert "job-2: not chosen" in said


def test_caches_come_back_by_key_and_by_its_start(run: Any, tmp_path: Path) -> None:
    def job(key: str, script: str) -> dict[str, Any]:
        inputs = {"path": "~/.cache/x", "key": key, "restore-keys": "k-"}
        restore = {"id": "c", "uses": "actions/cache/restore@1", "with": inputs}
        save = {"uses": "actions/cache/save@1", "with": inputs}
        return {"steps": [CHECKOUT, restore, {"run": script, "env": {"HIT": "${{ steps.c.outputs.cache-hit }}"}}, save]}

    fill = 'test "$HIT" = false; mkdir -p ~/.cache/x; echo 1 > ~/.cache/x/f'
    for key, script in (
        ("k-1", fill),
        ("k-1", 'test "$HIT$(cat ~/.cache/x/f)" = true1'),
        ("k-2", 'test "$HIT$(cat ~/.cache/x/f)" = false1'),
    ):
        found, said = run({"job": job(key, script)})
        assert found["job"].result == "success", said


def test_an_action_that_nothing_stands_for_fails_the_job(run: Any) -> None:
    found, said = run({"job": {"steps": [{"uses": "somebody/else@1"}]}})
    assert found["job"].result == "failure"
    assert "nothing on this machine stands for this action" in said

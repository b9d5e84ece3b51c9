"""Run a workflow's jobs on this machine: the ``run:`` lines of each job in order, in a clone of HEAD.

Checkout, Python and artifacts have a replacement here. Other actions are left out, and jobs that write to GitHub are
skipped. ``${{ NAME }}`` is replaced by the values that our templates use. Unknown names are errors. Conditions are not
evaluated, but a job or step with ``cancelled()`` or ``always()`` in its condition also runs after a failure.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ckpm import __version__
from ckpm.base.display import show
from ckpm.base.errors import CheckFailedError, InconclusiveError, InputError, UnknownWordError
from ckpm.base.paths import PROJECT
from ckpm.base.processes import SERVERS, python_command, tool_environment
from ckpm.kernels.changes.history import commit_of
from ckpm.workflows.render import BASE, FOLDER, check, names

Texts = Mapping[str, str]
_VALUE = re.compile(r"\$\{\{ *(.*?) *\}\}")
_LIST = re.compile(r"fromJSON\((.*)\)")
# The environment of a fresh machine: paths, language, and the way of pip and git to their servers.
_KEPT = re.compile(rf"PATH|LANG|LC_\w+|TZ|TMPDIR|{SERVERS}")


@dataclass(frozen=True, slots=True)
class WorkflowRun:
    """A workflow's document, the values of its event, and the folders of its run. ``only`` are globs of job names."""

    document: Mapping[str, Any]
    values: Texts
    repository: Path
    commit: str
    work: Path
    only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The outcome of a job. ``result`` is success, failure or skipped; with a matrix, the worst result."""

    result: str
    outputs: Texts = field(default_factory=dict)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=f"workflow to run: {', '.join(names())}")
    parser.add_argument("--since", default="main", metavar="REV", help="base of the pull request (default: main)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="GLOB", help="run only jobs that match; may be repeated"
    )
    parser.add_argument("--work", type=Path, default=Path("build/workflow"), help="(default: %(default)s)")
    parser.set_defaults(run=lambda args: run(args.name, args.since, tuple(args.only), args.work))


def run(name: str, since: str, only: tuple[str, ...], work: Path) -> None:
    """Run a workflow's jobs in clones of HEAD. The workflow file is this checkout's, with uncommitted changes."""
    if name not in names():
        raise UnknownWordError("workflow", name, names())
    check()
    document = yaml.safe_load((PROJECT / FOLDER / f"{name}.yml").read_text(encoding="utf-8"))
    values = {BASE: commit_of(PROJECT, since), "github.ref_name": f"v{__version__}"}
    values |= dict.fromkeys(("inputs.baseline", "vars.CK_SEEN"), "")
    outcomes = run_jobs(WorkflowRun(document, values, PROJECT, commit_of(PROJECT, "HEAD"), work.absolute(), only))
    if not any(outcome.result != "skipped" for outcome in outcomes.values()):
        raise InconclusiveError("no job ran. Choose others with --only, and what these need.", kind="nothing-done")
    if failed := [job for job, outcome in outcomes.items() if outcome.result == "failure"]:
        raise CheckFailedError(
            f"failed: {', '.join(failed)}. Each job's log.txt is in its folder below {work}.", kind="jobs"
        )


def run_jobs(run: WorkflowRun) -> dict[str, JobOutcome]:
    """Run every job in the order of the document."""
    done: dict[str, JobOutcome] = {}
    for name, job in run.document["jobs"].items():
        needs = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
        own = {need: {"result": done[need].result, "outputs": dict(done[need].outputs)} for need in needs}
        values = {**run.values, "toJSON(needs)": json.dumps(own)}
        for need in needs:
            values |= {f"needs.{need}.outputs.{key}": text for key, text in done[need].outputs.items()}
        reason = "it writes to GitHub" if "write" in job.get("permissions", {}).values() else ""
        lacking = [need for need in needs if done[need].result != "success"]
        if lacking and not _runs_after_failure(job):
            reason = f"it needs {', '.join(lacking)}, which did not succeed"
        done[name] = JobOutcome("skipped") if reason else _run_entries(run, name, job, values)
        if reason:
            show(f"{name}: skipped, {reason}", flush=True)
    return done


def fill(text: str, values: Texts) -> str:
    """Replace every ``${{ NAME }}``; a name without a value is refused."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise InputError(
                f"{match[0]}: this runner has no value for it, only {', '.join(sorted(values))}. "
                "Use one of these, or add a value to ckpm/workflows/runner.py.",
                kind="workflow",
            )
        return values[match[1]]

    return _VALUE.sub(value, text)


def _runs_after_failure(part: Mapping[str, Any]) -> bool:
    return any(call in str(part.get("if", "")) for call in ("cancelled()", "always()"))


def _run_entries(run: WorkflowRun, name: str, job: Mapping[str, Any], values: Texts) -> JobOutcome:
    outcomes = []
    for entry in _matrix(job, values):
        entry_values = {**values, **{f"matrix.{key}": text for key, text in entry.items()}}
        label = fill(job.get("name", name), entry_values)
        if not run.only or any(fnmatch.fnmatchcase(label, pattern) for pattern in run.only):
            outcomes.append(_run_job(run, label, job, entry_values))
        else:
            show(f"{label}: not chosen", flush=True)
    results = {outcome.result for outcome in outcomes}
    worst = next((result for result in ("failure", "success") if result in results), "skipped")
    return JobOutcome(worst, outcomes[0].outputs if len(outcomes) == 1 else {})


def _matrix(job: Mapping[str, Any], values: Texts) -> list[Texts]:
    """The entries of a job's matrix, listed in it or by an earlier job's output; one empty entry without a matrix."""
    if "strategy" not in job:
        return [{}]
    matrix = job["strategy"]["matrix"]
    if "include" not in matrix:
        return [dict(zip(matrix, combination, strict=True)) for combination in itertools.product(*matrix.values())]
    listed = _VALUE.fullmatch(str(matrix["include"]))
    source = _LIST.fullmatch(listed[1]) if listed else None
    if source is None:
        raise InputError("this runner needs a matrix of the form `include: ${{ fromJSON(NAME) }}`.", kind="workflow")
    entries: list[Texts] = json.loads(fill(f"${{{{ {source[1]} }}}}", values))
    return entries


def _run_job(run: WorkflowRun, label: str, job: Mapping[str, Any], values: Texts) -> JobOutcome:
    """Run the steps of one job in a folder of its own, which is emptied first."""
    folder = run.work / re.sub(r"[^\w.-]", "_", label)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    show(f"{label}: on this machine instead of {job['runs-on']}", flush=True)
    values, result = dict(values), "success"
    for number, step in enumerate(job["steps"], start=1):
        step = {**step, "env": {**job.get("env", {}), **step.get("env", {})}}
        title = fill(step.get("name", f"step {number}"), values)
        if result == "failure" and not _runs_after_failure(step):
            show(f"  {title}: skipped", flush=True)
            continue
        started = time.monotonic()
        try:
            text = _act(run, step, folder, values) if "uses" in step else _shell(run, step, folder, values)
        except (OSError, subprocess.CalledProcessError) as error:
            text, result = f"failed: {error}", "failure"
        show(f"  {title}: {text}, {time.monotonic() - started:.1f} s", flush=True)
    return JobOutcome(result, {key: fill(text, values) for key, text in job.get("outputs", {}).items()})


def _act(run: WorkflowRun, step: Mapping[str, Any], folder: Path, values: Texts) -> str:
    action, inputs, clone = step["uses"].partition("@")[0], step.get("with", {}), folder / "clone"
    if action == "actions/checkout":
        _git("clone", "--quiet", "--no-checkout", str(run.repository), str(clone))
        _git("-C", str(clone), "checkout", "--quiet", "--detach", run.commit)
        return f"cloned {run.commit[:12]}"
    if action == "actions/setup-python":
        subprocess.run(python_command("-m", "venv", str(folder / "python")), check=True)
        return f"this machine's Python {sys.version_info.major}.{sys.version_info.minor} in a new environment"
    artifacts = run.work / "artifacts"
    if action == "actions/upload-artifact":
        return upload({key: fill(str(text), values) for key, text in inputs.items()}, clone, artifacts)
    if action == "actions/download-artifact":
        return download({key: fill(str(text), values) for key, text in inputs.items()}, clone, artifacts)
    return f"left out: {action}"


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], env=tool_environment(), check=True)


def upload(inputs: Texts, clone: Path, artifacts: Path) -> str:
    """Copy files to an artifact, with paths relative to the folder before the first path's wildcard."""
    patterns = inputs["path"].split()
    files = {file for pattern in patterns if pattern[0] != "!" for file in clone.glob(pattern)}
    files -= {file for pattern in patterns if pattern[0] == "!" for file in clone.glob(pattern[1:])}
    if not files and inputs.get("if-no-files-found") == "error":
        raise FileNotFoundError(f"no file fits {', '.join(patterns)}")
    start = clone / Path(patterns[0].partition("*")[0] + "x").parent
    shutil.rmtree(artifacts / inputs["name"], ignore_errors=True)
    for source in sorted(files):
        file = artifacts / inputs["name"] / source.relative_to(start)
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, file)
    return f"{len(files)} files"


def download(inputs: Texts, clone: Path, artifacts: Path) -> str:
    """Copy one artifact to the path, or all artifacts to folders of their names there."""
    target, name = clone / inputs["path"], inputs.get("name", "")
    shutil.copytree(artifacts / name, target, dirs_exist_ok=True)
    return name or "all artifacts"


def _shell(run: WorkflowRun, step: Mapping[str, Any], folder: Path, values: dict[str, str]) -> str:
    """Run a step's lines in the job's clone and add its outputs to ``values``. Raises OSError if they fail."""
    output, home = folder / "outputs.txt", run.work / "home"  # one home for all jobs, in place of actions/cache
    output.write_text("")
    home.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if _KEPT.fullmatch(name)}
    environment |= {"CI": "true", "GITHUB_ACTIONS": "true", "HOME": str(home), "GITHUB_OUTPUT": str(output)}
    environment |= {"GITHUB_SERVER_URL": run.repository.as_uri(), "GITHUB_REPOSITORY": "local"}
    environment |= {"GITHUB_RUN_ID": "0", "GITHUB_RUN_ATTEMPT": "1"}
    environment |= {"GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    environment |= {name: fill(str(text), values) for name, text in step.get("env", {}).items()}
    environment["PATH"] = f"{folder / 'python' / 'bin'}:{environment.get('PATH', '/usr/bin:/bin')}"
    with (folder / "log.txt").open("a") as log:
        log.write(f"--- {step.get('name', '')}\n")
        log.flush()
        code = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", fill(step["run"], values)],
            cwd=folder / "clone",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    for line in output.read_text(encoding="utf-8").splitlines():
        key, _, text = line.partition("=")
        values[f"steps.{step.get('id', '')}.outputs.{key}"] = text
    if code:
        raise OSError(f"exit code {code}")
    return "done"

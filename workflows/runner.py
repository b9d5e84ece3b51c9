"""Run a workflow's jobs on this machine as a runner would: `run:` steps in order, each job in a clone of its own.

Actions are replaced by what workflows/actions.py has for them. Below the work folder are a folder for each job (clone,
home, ``log.txt``, ``summary.md``) and ``shared/`` with caches and artifacts.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workflows.actions import Place, perform
from workflows.errors import WorkflowError
from workflows.expressions import as_text, evaluate, filled, truth

Say = Callable[[str], None]
_STATUS = re.compile(r"\b(always|cancelled|failure|success)\(\)")
# what a runner's machine has besides its steps: paths, pip's and git's ways to their servers
_KEPT = re.compile(
    r"PATH|LANG|LC_\w+|TZ|TMPDIR|PIP_\w+|\w*_proxy|\w*_PROXY|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|GIT_SSL_\w+"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended: success, failure or skipped; of a job with a matrix, the worst of its entries."""

    result: str
    outputs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """A workflow's run: its document, what `github` is, where things are put, and which jobs are wanted (globs)."""

    document: Mapping[str, Any]
    github: Mapping[str, Any]
    work: Path
    repository: Path
    only: tuple[str, ...]
    say: Say

    def chosen(self, name: str) -> bool:
        return not self.only or any(fnmatch.fnmatchcase(name, pattern) for pattern in self.only)


def run_workflow(run: Run) -> dict[str, Outcome]:
    """Run every job in the order of their needs; how each ended.

    Raises WorkflowError: an expression or action that this runner does not know.
    """
    done: dict[str, Outcome] = {}
    waiting = dict(run.document["jobs"])
    while waiting:
        ready = [name for name, job in waiting.items() if set(_needs(job)) <= set(done)]
        if not ready:
            raise WorkflowError(f"{', '.join(waiting)}: these jobs need one another.")
        for name in ready:
            done[name] = _job(run, name, waiting.pop(name), done)
    return done


def _needs(job: Mapping[str, Any]) -> list[str]:
    needs = job.get("needs", [])
    return [needs] if isinstance(needs, str) else list(needs)


def _job(run: Run, name: str, job: Mapping[str, Any], done: Mapping[str, Outcome]) -> Outcome:
    """All entries of a job's matrix, or the job itself if it has none."""
    own = {need: done[need] for need in _needs(job)}
    needs = {need: {"result": one.result, "outputs": one.outputs} for need, one in own.items()}
    status = "success" if all(one.result == "success" for one in own.values()) else "failure"
    github = {**run.github, "workspace": str(run.repository)}
    context = {"github": github, "needs": needs, "inputs": {}, "job": {"status": status}}
    if not _wanted(job.get("if"), context):
        run.say(f"{name}: skipped by its condition")
        return Outcome("skipped")
    outcomes = []
    for entry in _matrix(job, context):
        entry_context = {**context, "matrix": entry}
        label = as_text(filled(job.get("name", name), entry_context))
        if run.chosen(label):
            outcomes.append(_entry(run, label, job, entry_context))
        else:
            run.say(f"{label}: not chosen")
    results = {one.result for one in outcomes}
    worst = next((result for result in ("failure", "success") if result in results), "skipped")
    return Outcome(worst, outcomes[0].outputs if len(outcomes) == 1 else {})


def _matrix(job: Mapping[str, Any], context: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    given = job.get("strategy", {}).get("matrix")
    if given is None:
        return [{}]
    if set(given) != {"include"}:
        raise WorkflowError("this runner knows a matrix of `include` alone.")
    listed = given["include"]
    combinations: list[Mapping[str, Any]] = filled(listed, context) if isinstance(listed, str) else listed
    return combinations


def _wanted(condition: Any, context: Mapping[str, Any]) -> bool:
    """A condition that asks for no status holds only after success."""
    if condition is None:
        return bool(context["job"]["status"] == "success")
    text = str(condition).strip().removeprefix("${{").removesuffix("}}")
    value = truth(evaluate(text, context))
    return value if _STATUS.search(text) else value and context["job"]["status"] == "success"


def _entry(run: Run, label: str, job: Mapping[str, Any], context: Mapping[str, Any]) -> Outcome:
    """One job on its machine: prepare its folder, then its steps; outputs are read at the end."""
    folder = run.work / re.sub(r"[^\w.-]", "_", label)
    if folder.exists():
        shutil.rmtree(folder)
    home = folder / "home"
    (home / "bin").mkdir(parents=True)
    _stub(home / "bin" / "gh")
    place = Place(folder / "clone", home, run.work / "shared", run.repository, str(run.github["sha"]))
    github = {**run.github, "workspace": str(place.clone)}
    context = {**context, "github": github, "runner": {"os": "Linux", "temp": str(folder)}, "steps": {}}
    context["job"] = {"status": "success"}
    run.say(f"{label}: on this machine instead of {as_text(job['runs-on'])}")
    for number, step in enumerate(job["steps"], start=1):
        title = as_text(filled(step.get("name", f"step {number}"), context))
        if not _wanted(step.get("if"), context):
            run.say(f"  {title}: skipped")
            continue
        started = time.monotonic()
        text, outputs, good = _step(step, run, place, folder, context)
        run.say(f"  {title}: {text}, {time.monotonic() - started:.1f} s")
        context["steps"][step.get("id", "")] = {"outputs": outputs}
        if not good:
            context["job"] = {"status": "failure"}
    outputs = {name: as_text(filled(text, context)) for name, text in job.get("outputs", {}).items()}
    return Outcome(context["job"]["status"], outputs)


def _stub(file: Path) -> None:
    """A `gh` that says what it would have been asked."""
    file.write_text('#!/bin/sh\necho "left out on this machine: gh $*"\n')
    file.chmod(0o755)


def _step(
    step: Mapping[str, Any], run: Run, place: Place, folder: Path, context: Mapping[str, Any]
) -> tuple[str, dict[str, str], bool]:
    """What happened in a line, the step's outputs, and whether it succeeded."""
    if "uses" in step:
        inputs = {name: as_text(filled(as_text(value), context)) for name, value in step.get("with", {}).items()}
        try:
            text, outputs = perform(step["uses"], inputs, place)
        except WorkflowError as error:
            return f"failed: {error}", {}, False
        return f"{step['uses'].partition('@')[0]}: {text}", outputs, True
    code, outputs = _shell(step, run, place, folder, context)
    return ("done" if code == 0 else f"failed with exit code {code}"), outputs, code == 0


def _shell(
    step: Mapping[str, Any], run: Run, place: Place, folder: Path, context: Mapping[str, Any]
) -> tuple[int, dict[str, str]]:
    files = {name: folder / f"{name.lower()}.txt" for name in ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH")}
    files["GITHUB_OUTPUT"].write_text("")
    environment = {name: value for name, value in os.environ.items() if _KEPT.fullmatch(name)}
    environment |= {name: str(file) for name, file in files.items()}
    environment |= {"CI": "true", "GITHUB_ACTIONS": "true", "HOME": str(place.home), "RUNNER_TEMP": str(folder)}
    environment |= {"GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "GITHUB_WORKSPACE": str(place.clone)}
    environment |= _pairs(files["GITHUB_ENV"])
    for scope in (run.document.get("env", {}), step.get("env", {})):
        environment |= {name: as_text(filled(as_text(value), context)) for name, value in scope.items()}
    added = files["GITHUB_PATH"].read_text().split("\n") if files["GITHUB_PATH"].exists() else []
    first = [*reversed([path for path in added if path]), str(place.home / "python" / "bin"), str(place.home / "bin")]
    environment["PATH"] = ":".join([*first, environment.get("PATH", "/usr/bin:/bin")])
    script = folder / "step.sh"
    script.write_text(as_text(filled(step["run"], context)))
    with (folder / "log.txt").open("ab") as log:
        log.write(f"--- {step.get('name', '')}\n".encode())
        log.flush()
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=place.clone if place.clone.is_dir() else folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    return done.returncode, _pairs(files["GITHUB_OUTPUT"])


def _pairs(file: Path) -> dict[str, str]:
    """``NAME=value`` lines, and ``NAME<<END`` with lines up to END, as steps write them."""
    outputs: dict[str, str] = {}
    lines = iter(file.read_text(encoding="utf-8").splitlines() if file.exists() else [])
    for line in lines:
        if "=" not in line.partition("<<")[0] and "<<" in line:
            name, _, end = line.partition("<<")
            value = []
            for inner in lines:
                if inner == end:
                    break
                value.append(inner)
            outputs[name] = "\n".join(value)
        elif line:
            name, _, one = line.partition("=")
            outputs[name] = one
    return outputs

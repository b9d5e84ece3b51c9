"""``ckpm workflows run NAME``: a rendered workflow's jobs on this machine."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path
from typing import Any

import yaml

from kernels.base.files import make_folder
from matrix.base.display import show
from matrix.changes.history import commit_of
from workflows.errors import JobsFailedError, NothingDoneError, UnknownWorkflowError
from workflows.render import FOLDER, PROJECT, check, names
from workflows.runner import Run, run_workflow


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=", ".join(names()))
    parser.add_argument("--since", default="main", metavar="REV", help="what a pull request's base is (default: main)")
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="jobs by name; repeat it")
    parser.add_argument("--work", type=Path, default=Path("build/workflow"), help="(default: %(default)s)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Run HEAD's workflow; uncommitted changes are not part of it, as they are not of a push.

    Raises:
        UnknownWorkflowError, StaleWorkflowError, WorkflowError; NotACheckoutError and its like for ``--since``.
        JobsFailedError: a job failed. NothingDoneError: no job ran.
    """
    if args.name not in names():
        raise UnknownWorkflowError(args.name, names())
    check()
    document: dict[Any, Any] = yaml.safe_load((PROJECT / FOLDER / f"{args.name}.yml").read_text(encoding="utf-8"))
    work = args.work.absolute()
    head, base = commit_of(PROJECT, "HEAD"), commit_of(PROJECT, args.since)
    repository = work / "shared" / "repository"
    _publish(repository, head, base)
    github = _github(document, head, base)
    outcomes = run_workflow(Run(document, github, work, PROJECT, tuple(args.only), lambda line: show(line, flush=True)))
    if not any(one.result != "skipped" for one in outcomes.values()):
        raise NothingDoneError("no job ran. Choose others with --only, or see their conditions.")
    failed = [name for name, one in outcomes.items() if one.result == "failure"]
    if failed:
        raise JobsFailedError(f"failed: {', '.join(failed)}. Each job's log.txt lies in its folder below {args.work}.")


def _publish(repository: Path, head: str, base: str) -> None:
    """A repository that jobs clone from: the commit as a branch, and the base that it is compared with."""
    if not repository.is_dir():
        make_folder(repository)
        subprocess.run(["git", "init", "--quiet", "--bare", str(repository)], check=True)
    refs = [f"+{head}:refs/heads/commit", f"+{base}:refs/heads/base"]
    subprocess.run(["git", "-C", str(PROJECT), "push", "--quiet", str(repository), *refs], check=True)


def _github(document: dict[Any, Any], head: str, base: str) -> dict[str, Any]:
    """The ``github`` context of the event that starts a workflow. YAML 1.1 reads the key ``on`` as true."""
    triggers: dict[str, Any] = document[True]
    event: dict[str, Any] = {"repository": {"default_branch": "main"}}
    ref = "refs/heads/main"
    if "pull_request" in triggers:
        event["pull_request"] = {"number": 1, "base": {"sha": base}}
        ref = "refs/pull/1/merge"
    elif "push" in triggers:
        ref = "refs/tags/v0"
    name = next(iter(triggers))
    known = {"sha": head, "ref": ref, "ref_name": ref.rpartition("/")[2], "event": event, "event_name": name}
    return {**known, "token": "", "repository": "local/ck-prefill-matrix"}

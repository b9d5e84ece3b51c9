"""Run what a change needs beyond the tests of every commit, within a bound of time: the second part of `.ci/run`.

The change is everything since the commit in `.ci/proven`, where the long sessions were seen green. Suites and gates run
first, then checks, then builds; in each kind the short commands. A command begins if its planned minutes are left. It
is ended when the time is over, or after three times its planned minutes and five more. What was left out is printed
with the reason; only a command that failed is a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ckpm.base.display import show
from ckpm.base.errors import CheckFailedError, SetupError
from ckpm.base.paths import PROJECT
from ckpm.base.processes import ended_by_signals, session_members
from ckpm.kernels.changes.history import commit_of
from ckpm.kernels.changes.plan import ChangePlan, Planned, plan_since
from ckpm.kernels.changes.rules import rules

PROVEN = Path(".ci/proven")  # its first word is a commit
BEFORE = ("unit", "compiled")  # the checks that `.ci/run` has run before, beside those of every change
WITHOUT_HISTORY = {"nox -s build-gfx950 test-large-kv perf-gate": 4}  # README's first command, and its minutes
_PATIENCE = 30.0  # seconds that an ended command has to stop its compilers and remove its files, then again to vanish


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, required=True, help="the time for all commands")
    parser.set_defaults(run=lambda args: run(PROJECT, args.minutes))


def run(root: Path, minutes: float) -> None:
    """Plan for the change since the proven commit, and run the plan's commands."""
    end = time.monotonic() + 60 * minutes
    proven = (root / PROVEN).read_text(encoding="utf-8").split()[0]
    try:
        plan = plan_since(root, proven)
    except SetupError as error:  # a shallow clone, or none
        show(f"planned: {error}\nplanned: without a plan, a smoke build is all that runs", flush=True)
        commands: Mapping[str, int] = WITHOUT_HISTORY
    else:
        commands = order_commands(plan)
        show(f"planned: {len(commands)} commands for {len(plan.changes)} files changed since {proven[:12]}", flush=True)
    failed, left_out = run_commands(commands, end)
    for line in left_out:
        show(f"left out: {line}")
    if failed:
        raise CheckFailedError("\n".join(f"failed: {line}" for line in failed), kind="jobs")
    if commands and commands is not WITHOUT_HISTORY and not left_out:
        show(f"planned: every command passed, so that {PROVEN} can name {commit_of(root, 'HEAD')}")


def order_commands(plan: ChangePlan) -> dict[str, int]:
    """The commands of a plan that `.ci/run` has not run before, with their planned minutes."""
    checks = [check for name, check in rules().checks.items() if name in plan.checks]
    earlier = {check.command for check in checks if check.always} | {rules().checks[name].command for name in BEFORE}
    later = [check for check in checks if check.command not in earlier]
    kinds: tuple[Sequence[Planned], ...] = (plan.runs, later, plan.builds)
    return {row.command: row.minutes for kind in kinds for row in sorted(kind, key=lambda row: row.minutes)}


def run_commands(commands: Mapping[str, int], end: float) -> tuple[list[str], list[str]]:
    """Run the commands that fit before ``end``; return lines about the failed ones, and about those left out."""
    needs = {check.command: check.needs for check in rules().checks.values()}
    failed, left_out = [], []
    for command, minutes in commands.items():
        left = end - time.monotonic()
        programs = needs.get(command, ())
        if programs and not any(map(shutil.which, programs)):
            left_out.append(f"{command}: no {', '.join(programs)} in PATH")
        elif left < 60 * minutes:
            left_out.append(f"{command}: {minutes} min planned, {max(left, 0) / 60:.0f} min left")
        else:
            show(f"planned: {command}", flush=True)
            started = time.monotonic()
            limit = min(left, 60 * (3 * minutes + 5))  # a command that hangs leaves time for the next ones
            code = run_within(command, limit)
            if code is None:
                left_out.append(f"{command}: did not end in {limit / 60:.0f} min")
            elif code:
                failed.append(f"{command}: exit code {code}")
            show(f"planned: exit code {code}, {time.monotonic() - started:.0f} s: {command}", flush=True)
    return failed, left_out


def run_within(command: str, seconds: float) -> int | None:
    """Run a line of shell as a person does; return its exit code, None if it did not end in time.

    Its processes are one session, and none is left: a group of its own, such as a build's, is in the session, too.
    """
    shell = ["bash", "-euo", "pipefail", "-c", command]
    process = subprocess.Popen(shell, cwd=PROJECT, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        with ended_by_signals():
            return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(process)


def _end(leader: subprocess.Popen[bytes]) -> None:
    """End all processes of a session: by SIGTERM, and after a while by SIGKILL."""
    started = time.monotonic()
    while (members := session_members(leader.pid)) and (waited := time.monotonic() - started) < 2 * _PATIENCE:
        for member in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGTERM if waited < _PATIENCE else signal.SIGKILL)
        leader.poll()
        time.sleep(0.2)

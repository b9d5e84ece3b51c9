"""``python -m matrix plan --since REV``: what a change can touch, for people and for runners."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ckpm.base.files import write_atomically
from ckpm.matrix.changes.history import PROJECT
from ckpm.matrix.changes.plan import Plan, Touched, plan_since

_SHOWN = 3  # names and reasons in the text form; --json has all of them


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--since", required=True, metavar="REV", help="a commit, branch or tag to compare with")
    parser.add_argument("--json", action="store_true", help="everything, for programs")
    parser.add_argument("--output", type=Path, default=None, metavar="FILE", help="write it there, too, as JSON")


def plan_text(args: argparse.Namespace) -> str:
    """What the command prints.

    Raises what :func:`ckpm.matrix.changes.plan.plan_since` raises; DiskFullError, OutputError.
    """
    plan = plan_since(PROJECT, args.since)
    if args.output:
        write_atomically(args.output, to_json(plan).encode())
    return to_json(plan) if args.json else _text(plan)


def to_json(plan: Plan) -> str:
    """The plan as a document: the fields of Plan, sets as sorted lists."""
    document = {"archs": list(plan.archs), **dataclasses.asdict(plan)}
    return json.dumps(document, indent=1, default=_listed) + "\n"


def _listed(value: Any) -> list[str]:
    return sorted(value)


def _text(plan: Plan) -> str:
    lines = [f"{len(plan.changes)} changed files since {plan.commit[:12]}"]
    lines += [f"  {one.path}: {one.reason}" for one in plan.changes]
    if plan.everything:
        lines.append("kernels: all, of every dialect")
    else:
        lines += ["kernels", *(_kernels(one) for one in plan.kernels)] if plan.kernels else ["kernels: none"]
    if plan.suites:
        lines += ["suites", *(f"  {suite}: {_some(reasons)}" for suite, reasons in plan.suites.items())]
    else:
        lines.append("suites: none")
    lines.append(f"gates: {_some(plan.gates) or 'none'}")
    lines.append(f"archs: {', '.join(plan.archs) or 'none'}")
    lines += ["commands", *(f"  {command}" for command in plan.commands)]
    return "\n".join(lines) + "\n"


def _kernels(touched: Touched) -> str:
    which = "all" if touched.names is None else _some(sorted(touched.names), separator=", ")
    return f"  {touched.dialect} {touched.family}: {which} ({_some(touched.reasons)})"


def _some(words: Sequence[str], separator: str = "; ") -> str:
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return separator.join(words[:_SHOWN]) + more

"""``python -m workflows.outputs PLAN.json``: what the jobs of a workflow need of a plan, as outputs of a step.

Writes ``checks``, ``builds`` and ``runs`` to GITHUB_OUTPUT, each a JSON list of {"name", "command"}, an entry for each
job; ``name`` is also the name of the job's artifact. Standard library only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Jobs = dict[str, list[dict[str, str]]]


def jobs(plan: Mapping[str, Any]) -> Jobs:
    """The jobs of each kind, in the order of the plan."""
    checks = [{"name": f"check-{name}", "command": command} for name, command in plan["check_commands"].items()]
    builds = [
        {"name": f"library-{_place(one)}-{one['shard'].replace('/', 'of')}", **_command(one)} for one in plan["builds"]
    ]
    runs = [{"name": f"results-{_place(one)}", **_command(one)} for one in plan["runs"]]
    return {"checks": checks, "builds": builds, "runs": runs}


def _place(one: Mapping[str, str]) -> str:
    return f"{one['arch']}-{one['upstream']}-{one['library']}"


def _command(one: Mapping[str, str]) -> dict[str, str]:
    return {"command": one["command"], "arch": one["arch"]}


def main(file: str) -> None:
    try:
        planned = jobs(json.loads(Path(file).read_text(encoding="utf-8")))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        sys.exit(f"error: {file}: no plan can be read there: {error!r}. Write it by ckpm plan --output.")
    lines = [f"{name}={json.dumps(entries)}" for name, entries in planned.items()]
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as stream:
        stream.write("\n".join(lines) + "\n")
    for name, entries in planned.items():
        print(f"{name}: {', '.join(one['name'] for one in entries) or 'none'}")


if __name__ == "__main__":
    main(sys.argv[1])

"""Write a plan's jobs as outputs of a step: ``python -m ckpm.workflows.outputs PLAN.json``. Standard library only.

The outputs ``checks``, ``builds`` and ``runs`` are JSON lists with {"name", "command"} of each job. A job's artifact
has the name of the job.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckpm.base.files import append

Jobs = dict[str, list[dict[str, str]]]


def jobs(plan: Mapping[str, Any]) -> Jobs:
    """The jobs of each kind, in the order of the plan."""
    checks = [{"name": f"check-{name}", "command": command} for name, command in plan["check_commands"].items()]
    builds = [
        {"name": f"library-{_library_name(row)}-{row['shard'].replace('/', 'of')}", **_command(row)}
        for row in plan["builds"]
    ]
    runs = [{"name": f"results-{_library_name(row)}", **_command(row)} for row in plan["runs"]]
    return {"checks": checks, "builds": builds, "runs": runs}


def _library_name(row: Mapping[str, str]) -> str:
    return f"{row['arch']}-{row['upstream']}-{row['library']}"


def _command(row: Mapping[str, str]) -> dict[str, str]:
    return {"command": row["command"], "arch": row["arch"]}


def main(file: str) -> None:
    try:
        planned = jobs(json.loads(Path(file).read_text(encoding="utf-8")))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        sys.exit(f"error: {file}: is not a readable plan: {error!r}. Write it with ckpm plan --output.")
    lines = [f"{name}={json.dumps(entries)}" for name, entries in planned.items()]
    append(Path(os.environ["GITHUB_OUTPUT"]), "\n".join(lines) + "\n")
    for name, entries in planned.items():
        print(f"{name}: {', '.join(entry['name'] for entry in entries) or 'none'}")


if __name__ == "__main__":
    main(sys.argv[1])

"""Fail if a planned job had no success: ``python -m ckpm.workflows.verdict NEEDS``. Standard library only.

NEEDS is GitHub's ``toJSON(needs)``. The job `plan` must have succeeded: its outputs list the jobs that may be skipped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def complaints(needs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The planned jobs without success, with their results."""
    bad = []
    planned = needs["plan"].get("outputs", {})
    kinds = {"check": "checks", "library": "builds", "results": "runs"}
    for job, outcome in needs.items():
        result = outcome["result"]
        skipped = result == "skipped" and job in kinds and planned.get(kinds[job]) == "[]"
        if result != "success" and not skipped:
            bad.append(f"{job}: {result}")
    return bad


if __name__ == "__main__":
    lines = complaints(json.loads(sys.argv[1]))
    print("\n".join(lines) or "every planned job succeeded")
    sys.exit(1 if lines else 0)

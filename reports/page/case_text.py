"""What the text of a GPU case tells, read back as fields: kernel, ledger entry, fault, use of the tolerance.

tests/gpu/suites.py writes these lines (``recorded``); results of other checks simply have none of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernels.base.results import Case

# the worst first; symbols, because colour alone tells nothing to many
STATUSES = {
    "error": "!",
    "failed": "✗",
    "known defect": "≈",
    "skipped": "○",
    "passed": "✓",
}
_TOLERANCE = re.compile(r", (\S+) of its tolerance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """``kernel`` and ``entry`` are '' where there is none; ``tolerance_used`` is the largest error over its bound."""

    status: str  # one of STATUSES
    kernel: str
    entry: str
    tolerance_used: float | None
    fault: Mapping[str, Any] | None


def told(case: Case) -> Told:
    """Read a case's text. A fault line that is no JSON is none: the text still shows it as written."""
    kernel = entry = ""
    fault: Mapping[str, Any] | None = None
    for line in case.text.splitlines():
        word, _, rest = line.partition(": ")
        if word == "kernel" and not kernel:
            kernel = "" if rest == "none" else rest
        elif word == "ledger" and not entry:
            entry = rest.partition(" ")[0]
        elif word == "fault" and fault is None:
            fault = _decoded(rest)
    used = [_number(word) for word in _TOLERANCE.findall(case.text)]
    return Told(
        status="known defect" if case.outcome == "passed" and entry else case.outcome,
        kernel=kernel,
        entry=entry,
        tolerance_used=max((value for value in used if value is not None), default=None),
        fault=fault,
    )


def _decoded(text: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None

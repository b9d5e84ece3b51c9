"""Failures of a build, kernel by kernel, with the compiler's messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckpm.kernels.library.run_step import FAILURE

_ERROR = re.compile(r"[^\s:]+:\d+:\d+: (?:fatal )?error: .*")
_NOISE = re.compile(r"\s*(In file included from|from) ")
_LINES = 25  # lines of the compiler's message shown for each unit; the record keeps all


def collect(folder: Path) -> list[Mapping[str, Any]]:
    """Return the failure records below an output folder, in the order of their labels."""
    records = [json.loads(file.read_text()) for file in folder.rglob(f"*{FAILURE}")]
    return sorted(records, key=lambda record: str(record["label"]))


def common_reason(records: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the compiler's first error if all failed steps, with and without kernels, have the same one.

    No kernel is to blame for such an error: it is in a file that all steps include.
    """
    matches = {_ERROR.search(str(record["output"])) for record in records}
    reasons = {match[0] if match else "" for match in matches}
    if len(reasons) != 1 or not {"unit", "host"} <= {str(record["kind"]) for record in records}:
        return None
    return reasons.pop() or None


def describe(record: Mapping[str, Any], folder: Path) -> str:
    """Describe a failed step: the kernels to blame, the command's exit code, the compiler's first lines."""
    kernels = failing_kernels(record, folder)
    head = f"{record['label']}: {Path(record['argv'][0]).name} ended with {record['code']}"
    if kernels:
        head += f"; at fault: {len(kernels)} of {len(record['kernels'])} kernels of this unit"
    # include chains and CK's own path don't identify the kernel
    lines = [line for line in str(record["output"]).splitlines() if line.strip() and not _NOISE.match(line)]
    shown = lines[:_LINES] + ([f"... {len(lines) - _LINES} more lines"] if len(lines) > _LINES else [])
    return "\n".join([head, *(f"  {name}" for name in kernels), *(f"    {line}" for line in shown)])


def failing_kernels(record: Mapping[str, Any], folder: Path) -> list[str]:
    """Return the kernels whose instance a compiler message points into, all of the unit's if there is none.

    A message about a template names the line of our source that uses it, and each instance has its own lines.
    """
    if not record["kernels"]:
        return []
    source = folder / str(record["source"])
    lines = source.read_text(encoding="utf-8").splitlines() if source.is_file() else []
    starts = [number for number, line in enumerate(lines, 1) if line.startswith("namespace ckpm::k")]
    pointed = [int(n) for n in re.findall(rf"{re.escape(source.name)}:(\d+)", str(record["output"]))]
    blamed = {sum(start <= line for start in starts) - 1 for line in pointed}
    names = list(record["kernels"])
    return [names[index] for index in sorted(blamed) if 0 <= index < len(names)] or names

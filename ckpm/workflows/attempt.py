"""Run one line of shell as a step of a workflow does: ``python -m ckpm.workflows.attempt COMMAND``.

The program prints the command and runs it. It repeats the command only if every failure that our programs recorded in
CKPM_FAILURES (see ckpm/base/entry.py) is of class infrastructure. It ends with the exit code of the last try. Standard
library only, because it runs before anything is installed.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ckpm.base.files import append

PAUSES = (10.0, 60.0)  # seconds before the second and third try: a package index is often back after a minute


def is_infrastructure(record: Path) -> bool:
    """Return True if at least one failure was recorded and all are of class infrastructure."""
    try:
        rows = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
        return bool(rows) and all(row["infrastructure"] for row in rows)
    except (ValueError, LookupError, TypeError):  # the writer was killed in the middle of a line
        return False


def attempt(command: str, pause: Callable[[float], None] = time.sleep) -> int:
    """Run the command, and repeat it with PAUSES while infrastructure fails; return the last exit code."""
    print(f"reproduce: {command}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for number, seconds in enumerate((*PAUSES, None), start=1):
            record = Path(folder) / f"failures-{number}"
            record.touch()
            code = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command],
                env={**os.environ, "CKPM_FAILURES": str(record)},
                check=False,
            ).returncode
            if code == 0 or seconds is None or not is_infrastructure(record):
                break
            print(f"::warning::infrastructure failed, try {number}; next in {seconds:.0f} s", flush=True)
            pause(seconds)
    if code != 0:
        _explain(command, code)
    return code


def _explain(command: str, code: int) -> None:
    """Write the exit code and the command to the log and to the job's summary."""
    print(f"::error::exit code {code}. To reproduce it, in a clone of this commit: {command}", flush=True)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        text = f"Failed with exit code {code}. To reproduce it, in a clone of this commit:\n\n    {command}\n\n"
        with contextlib.suppress(OSError):  # the command's exit code counts
            append(Path(summary), text)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m ckpm.workflows.attempt COMMAND")
    sys.exit(attempt(sys.argv[1]))

"""Runs one step of a plan inside SCons and tells the surrounding build what happened, one JSON line an event.

A step that fails leaves ``<target>.failure.json`` with the compiler's words; the build reads them at the end, so that
one failing kernel neither stops the others nor gets lost among their output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from kernels.files import write_atomically
from kernels.plan import Step

EVENT = "@ckpm "
FAILURE = ".failure.json"


def spawn(step: Step, environment: Mapping[str, str]) -> int:
    """Run the step's command; its exit code. Standard streams of the command go to the failure record."""
    Path(step.target).parent.mkdir(parents=True, exist_ok=True)
    failure = Path(step.target + FAILURE)
    failure.unlink(missing_ok=True)
    started = time.monotonic()
    _emit("start", step)
    try:
        run = subprocess.run(
            step.argv,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        code, output = run.returncode, run.stdout
    except OSError as error:
        code, output = 127, f"{step.argv[0]} can't be started: {error}"
    seconds = time.monotonic() - started
    if code != 0:
        # the next build must not take a half-written target for a finished one
        Path(step.target).unlink(missing_ok=True)
        record = {"kind": step.kind, "label": step.label, "kernels": step.kernels, "code": code, "output": output}
        record |= {"source": step.sources[0], "argv": list(step.argv)}
        write_atomically(failure, json.dumps(record).encode())
    _emit("failed" if code else "done", step, seconds=round(seconds, 2))
    return code


def announce(text: str, step: Step) -> None:
    """SCons's words before an action: of these only the retrieval of an object from the cache is an event."""
    if text.startswith("Retrieved "):
        _emit("retrieved", step)


def _emit(event: str, step: Step, **more: float) -> None:
    line = json.dumps({"event": event, "kind": step.kind, "label": step.label, "target": step.target, **more})
    sys.stdout.write(f"{EVENT}{line}{os.linesep}")
    sys.stdout.flush()

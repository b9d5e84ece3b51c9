"""Runs one step of a plan inside SCons and tells the surrounding build what happened, one JSON line an event.

A step that fails leaves ``<target>.failure.json`` with the compiler's words; the build reads them at the end, so that
one failing kernel neither stops the others nor gets lost among their output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from kernels.base import warming
from kernels.base.files import write_atomically
from kernels.build import finished as built
from kernels.build.plan import Step
from kernels.upstream import headers

EVENT = "@ckpm "
FAILURE = ".failure.json"
_stopping = threading.Event()


def run_step(step: Step, environment: Mapping[str, str], folder: str) -> int:
    """Run the step's command; its exit code. Standard streams of the command go to the failure record.

    ``folder`` is the plan's output folder: its record of finished targets is kept here. No library is linked from
    objects that are not as they were finished.
    """
    if _stopping.is_set():
        return 1
    Path(step.target).parent.mkdir(parents=True, exist_ok=True)
    failure = Path(step.target + FAILURE)
    failure.unlink(missing_ok=True)
    started = time.monotonic()
    _emit("start", step)
    if step.kind == "library":
        warming.wait(environment)
    damaged = built.discard_damaged(Path(folder), step.sources) if step.kind == "library" else []
    for name in damaged:
        announce_damage(step, name)
    code, output = (1, f"damaged: {', '.join(damaged)}") if damaged else _run(step, environment)
    if code == 0 and step.kind in ("unit", "host") and (header := headers.changed(Path(folder))):
        code, output = 1, f"{header} changed while this was compiled"
    if code == 0:
        try:
            built.note(Path(folder), step)
        except OSError as error:
            code, output = 1, f"{step.target} can't be recorded as finished: {error}"
    seconds = time.monotonic() - started
    if code != 0:
        # the next build must not take a half-written target for a finished one
        Path(step.target).unlink(missing_ok=True)
        record = {"kind": step.kind, "label": step.label, "kernels": step.kernels, "code": code, "output": output}
        record |= {"source": step.sources[0], "argv": list(step.argv)}
        write_atomically(failure, json.dumps(record).encode())
    _emit("failed" if code else "done", step, seconds=round(seconds, 2))
    return code


def _run(step: Step, environment: Mapping[str, str]) -> tuple[int, str]:
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
            close_fds=False,  # a compiler that outlives everything else still holds the build's lock
        )
    except OSError as error:
        return 127, f"{step.argv[0]} can't be started: {error}"
    return run.returncode, run.stdout


def refuse_steps() -> None:
    """The build is to end: no step starts any more in this process."""
    _stopping.set()


def announce(text: str, step: Step) -> None:
    """SCons's words before an action: of these only the retrieval of an object from the cache is an event."""
    if text.startswith("Retrieved "):
        _emit("retrieved", step)


def announce_damage(step: Step, what: str) -> None:
    """``what`` was found damaged and is deleted; the step is going to be repeated."""
    _emit("damaged", step, what=what)


def _emit(event: str, step: Step, **more: float | str) -> None:
    line = json.dumps({"event": event, "kind": step.kind, "label": step.label, "target": step.target, **more})
    sys.stdout.write(f"{EVENT}{line}{os.linesep}")
    sys.stdout.flush()

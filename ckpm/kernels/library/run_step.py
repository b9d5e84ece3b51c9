"""Run one step of a plan inside SCons and report each event to the surrounding build as a JSON line.

A step that fails leaves ``<target>.failure.json`` with the compiler's messages, which the build reads at the end. So a
failing kernel neither stops the others nor gets lost among their output.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base import warming
from ckpm.base.errors import CkPrefillError
from ckpm.base.files import hold_lock, write_atomically
from ckpm.base.zig_cache import checked_link, renew
from ckpm.kernels.code import precompiled
from ckpm.kernels.library import finished as built
from ckpm.kernels.library.plan import BuildStep
from ckpm.kernels.upstream import headers

EVENT = "@ckpm "
FAILURE = ".failure.json"
_ERROR = re.compile(r"[^\s:]+:\d+:\d+: (?:fatal )?error: .*")
_stopping = threading.Event()


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """The result of a command: exit code and output. ``host`` is the machine if it is not this one.

    ``refused`` is the exit code of the failure because of which another machine did not run the command, else 0.
    """

    code: int
    output: str
    host: str = ""
    refused: int = 0


Execute = Callable[[BuildStep, Mapping[str, str]], FinishedStep]


def execute_here(step: BuildStep, environment: Mapping[str, str]) -> FinishedStep:
    """Run a step's command in this folder."""
    if step.kind == "unit":
        return FinishedStep(*precompiled.run_unit(step.argv, environment, run_command, step.headers))
    return FinishedStep(*run_command(step.argv, environment))


def run_step(step: BuildStep, environment: Mapping[str, str], folder: str, execute: Execute = execute_here) -> int:
    """Run the step's command, return its exit code. The command's output goes to the failure record.

    ``folder`` is the plan's output folder, with its record of finished targets. A library is not linked if an object
    differs from its record. ``execute`` writes the target if it succeeds.
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
    ran = FinishedStep(1, f"damaged: {', '.join(damaged)}") if damaged else _execute(step, environment, execute)
    if ran.code == 0 and step.kind in ("unit", "host") and (header := headers.first_changed(Path(folder))):
        ran = FinishedStep(1, f"{header} changed while this was compiled")
    if ran.code == 0:
        try:
            built.note(Path(folder), step)
        except OSError as error:
            ran = FinishedStep(1, f"{step.target} can't be recorded as finished: {error}")
    seconds = time.monotonic() - started
    if ran.code != 0:
        # the next build must not take a half-written target for a finished one
        Path(step.target).unlink(missing_ok=True)
        record = {"kind": step.kind, "label": step.label, "kernels": step.kernels, "code": ran.code}
        record |= {"output": ran.output, "source": step.sources[0], "argv": list(step.argv), "refused": ran.refused}
        write_atomically(failure, json.dumps(record).encode())
    where = {"host": ran.host} if ran.host else {}
    why = {"error": first_error(ran.output) or ran.output.strip().rpartition("\n")[2]} if ran.code else {}
    _emit("failed" if ran.code else "done", step, seconds=round(seconds, 2), **where, **why)
    return ran.code


def _execute(step: BuildStep, environment: Mapping[str, str], execute: Execute) -> FinishedStep:
    """Run the command. Before a link, damaged entries of zig's cache are deleted, and its notes are those of this zig.

    By the notes of an environment that was made again, zig would build libc++ for minutes. So links of one zig follow
    one another, and nothing else renews its notes.
    """
    kept = environment.get(warming.ZIG_CACHE) if step.kind == "library" else None
    if not kept:
        return execute(step, environment)
    try:
        with hold_lock(Path(kept) / "link.lock"):
            renew(Path(kept), Path(step.argv[0]).with_name("lib"))
            with checked_link(Path(kept)):
                return execute(step, environment)
    except (OSError, CkPrefillError) as error:
        return FinishedStep(1, f"zig's cache can't be checked: {error.__cause__ or error}")


def run_command(argv: Sequence[str], environment: Mapping[str, str], folder: Path | None = None) -> tuple[int, str]:
    """Run a compiler or linker in ``folder`` (default: here); return its exit code and output."""
    try:
        run = subprocess.run(
            argv,
            cwd=folder,
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
        return 127, f"{argv[0]} can't be started: {error}"
    return run.returncode, run.stdout


def first_error(output: str) -> str:
    """The compiler's first error with its file and line, or an empty text."""
    match = _ERROR.search(output)
    return match[0] if match else ""


def refuse_steps() -> None:
    """Start no further step in this process, because the build ends."""
    _stopping.set()


def announce(text: str, step: BuildStep) -> None:
    """Report the retrieval of an object from the cache; SCons's other messages before an action are dropped."""
    if text.startswith("Retrieved "):
        _emit("retrieved", step)


def announce_damage(step: BuildStep, what: str) -> None:
    """Report that ``what`` was damaged and is deleted; the step will be repeated."""
    _emit("damaged", step, what=what)


def _emit(event: str, step: BuildStep, **more: float | str) -> None:
    line = json.dumps({"event": event, "kind": step.kind, "label": step.label, "target": step.target, **more})
    sys.stdout.write(f"{EVENT}{line}{os.linesep}")
    sys.stdout.flush()

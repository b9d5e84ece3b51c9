"""Progress of a build: a bar on a terminal, plain lines elsewhere. Fed with the events of run_step.py."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kernels.plan import Step
from kernels.run_step import EVENT


@dataclass
class Tally:
    """What happened to the steps that compile: counts, and SCons's own words that belong to no event."""

    compiled: int = 0
    failed: int = 0
    retrieved: int = 0
    seconds: float = 0.0
    kernels_compiled: int = 0
    other: list[str] = field(default_factory=list)


def follow(lines: Iterable[str], steps: Sequence[Step], console: Console) -> Tally:
    """Read SCons's output to its end, show progress, return the tally."""
    compiles = {step.target: step for step in steps if step.kind in ("unit", "host")}
    tally = Tally()
    plain = not console.is_terminal or "CI" in os.environ
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=plain,
    )
    started = time.monotonic()
    done = 0
    with bar:
        task = bar.add_task("units", total=len(compiles))
        for line in lines:
            event = _event(line)
            if event is None:
                if line.strip():
                    tally.other.append(line.rstrip())
                continue
            step = compiles.get(event["target"])
            if step is None or event["event"] == "start":
                if step is not None:
                    bar.update(task, description=f"compiling {event['label']}")
                elif event["event"] == "start" and event["kind"] == "library":
                    bar.update(task, description="linking")
                continue
            _count(tally, event, step)
            done += 1
            bar.advance(task)
            if plain:
                word = {"done": "compiled", "failed": "FAILED", "retrieved": "from cache"}[event["event"]]
                took = f" in {event['seconds']:.0f} s" if "seconds" in event else ""
                number = f" ({len(step.kernels)} kernels)" if step.kernels else ""
                console.print(
                    f"[{done}/{len(compiles)}] {time.monotonic() - started:5.0f} s  {word} {step.label}{number}{took}",
                    markup=False,
                    highlight=False,
                    soft_wrap=True,
                )
    return tally


def _event(line: str) -> dict[str, Any] | None:
    if not line.startswith(EVENT):
        return None
    event: dict[str, Any] = json.loads(line[len(EVENT) :])
    return event


def _count(tally: Tally, event: dict[str, Any], step: Step) -> None:
    if event["event"] == "retrieved":
        tally.retrieved += 1
        return
    tally.seconds += event.get("seconds", 0)
    if event["event"] == "failed":
        tally.failed += 1
    else:
        tally.compiled += 1
        tally.kernels_compiled += len(step.kernels)

"""Progress of a build from the events of run_step.py: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ckpm.base.console import number
from ckpm.base.progress import Steps
from ckpm.kernels.library.plan import BuildStep
from ckpm.kernels.library.run_step import EVENT

log = logging.getLogger(__name__)


@dataclass
class Tally:
    """Counts of the steps that compile, and SCons's messages that don't belong to an event.

    ``unchanged`` steps were up to date. ``finishing`` contains the outcomes of library and manifest, ``unfit_to_link``
    the damaged objects that the link found.
    """

    compiled: int = 0
    failed: int = 0
    retrieved: int = 0
    unchanged: int = 0
    seconds: float = 0.0
    kernels_compiled: int = 0
    finishing: list[str] = field(default_factory=list)
    unfit_to_link: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    def followed_by(self, again: Tally) -> Tally:
        """Combine the tallies of two runs of SCons on one plan: steps of the first run were unchanged in the second."""
        return dataclasses.replace(
            again,
            compiled=self.compiled + again.compiled,
            retrieved=self.retrieved + again.retrieved,
            unchanged=max(0, again.unchanged - self.compiled - self.retrieved),
            seconds=self.seconds + again.seconds,
            kernels_compiled=self.kernels_compiled + again.kernels_compiled,
        )

    def summary(self) -> str:
        """A summary of the build in one line."""
        parts = []
        if self.compiled or self.retrieved:
            kernels = number(self.kernels_compiled, "kernel")
            parts += [f"{self.compiled} compiled ({kernels}), {self.retrieved} from the cache"]
            parts += [f"{self.unchanged} unchanged"] if self.unchanged else []
        return ", ".join([*parts, *self.finishing]) or "nothing to do"


_FINISHING = {
    ("library", "done"): "linked",
    ("library", "retrieved"): "library from the cache",
    ("manifest", "done"): "manifest written",
}


def follow(lines: Iterable[str], steps: Sequence[BuildStep], *, linking: str = "linking") -> Tally:
    """Read SCons's output to its end, show progress, return the tally. ``linking`` is shown when the link begins.

    A log gets a line at the end of each step. It gets a line at the start only where a long silence would follow:
    before the first step has ended, and at the link. A failed step has its first error beside it, also on a terminal.
    """
    compiles = {step.target: step for step in steps if step.kind in ("unit", "host")}
    tally = Tally()
    with _Display("units", len(compiles), log) as display:
        for line in lines:
            event = _event(line)
            if event is None:
                tally.other += [line.rstrip()] if line.strip() else []
            elif event["event"] == "damaged":
                display.line(f"{event['what']} is damaged: it is deleted and made again")
                if event["kind"] == "library" and event["what"] in compiles:
                    tally.unfit_to_link.append(event["what"])
            elif event["target"] not in compiles:
                ending = _FINISHING.get((event["kind"], event["event"]))
                tally.finishing += [ending] if ending else []
                if event["kind"] == "library" and event["event"] != "failed":
                    display.link(linking if event["event"] == "start" else "", f"{ending}{_took(event)}")
            elif event["event"] == "start":
                display.begin(compiles[event["target"]])
            else:
                _count(tally, event, compiles[event["target"]])
                display.end(compiles[event["target"]], event)
    tally.unchanged = len(compiles) - tally.compiled - tally.failed - tally.retrieved
    return tally


class _Display(Steps):
    """The compile steps of a build."""

    def begin(self, step: BuildStep) -> None:
        self.show_bar(f"compiling {step.label}")
        if self.in_lines and not self.done:
            self.line(f"compiling {_label(step)}")

    def end(self, step: BuildStep, event: Mapping[str, Any]) -> None:
        self.done += 1
        self.show_bar()
        if self.in_lines or event["event"] == "failed":
            word = {"done": "compiled", "failed": "FAILED", "retrieved": "from cache"}[event["event"]]
            error = f": {event['error']}" if event.get("error") else ""
            self.line(f"{word} {_label(step)}{_took(event)}{error}")

    def link(self, linking: str, ended: str) -> None:
        """Show that the link begins (with the message ``linking``) or has ended; no step is compiling then."""
        self.done = self.total
        self.show_bar(linking)
        if self.in_lines:
            self.line(linking or ended)


def _took(event: Mapping[str, Any]) -> str:
    where = f" on {event['host']}" if "host" in event else ""
    return f" in {event['seconds']:.0f} s{where}" if "seconds" in event else ""


def _label(step: BuildStep) -> str:
    return f"{step.label} ({number(len(step.kernels), 'kernel')})" if step.kernels else step.label


def _event(line: str) -> dict[str, Any] | None:
    if not line.startswith(EVENT):
        return None
    event: dict[str, Any] = json.loads(line[len(EVENT) :])
    return event


def _count(tally: Tally, event: dict[str, Any], step: BuildStep) -> None:
    if event["event"] == "retrieved":
        tally.retrieved += 1
        return
    tally.seconds += event.get("seconds", 0)
    if event["event"] == "failed":
        tally.failed += 1
    else:
        tally.compiled += 1
        tally.kernels_compiled += len(step.kernels)

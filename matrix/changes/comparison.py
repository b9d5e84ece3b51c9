"""Two states of the tables compared by what they mean: which kernels and problems a change of theirs alters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_SNAPSHOT = Path(__file__).with_name("snapshot.py")
Place = tuple[str, str]  # dialect, family


class CannotTellError(Exception):
    """A state whose tables can't be read: whatever is planned must not rest on it. The message says why."""


@dataclass(frozen=True, slots=True)
class Altered:
    """Kernels of a dialect's family that a change of the tables alters, None for all of them; and why."""

    dialect: str
    family: str
    names: frozenset[str] | None
    reason: str


@dataclass(frozen=True, slots=True)
class _State:
    """A process of snapshot.py that answers for one state: its tables are read once, however much is asked."""

    root: Path
    process: subprocess.Popen[bytes]
    errors: IO[bytes]

    def ask(self, request: bytes) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: who waits for its answer learns why
            os.write(self.process.stdin.fileno(), request)

    def answer(self) -> dict[str, Any]:
        """To what was asked. Raises CannotTellError."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            code = self.process.wait()
            self.errors.seek(0)
            last = self.errors.read().decode(errors="replace").strip().splitlines() or [f"exit code {code}"]
            raise CannotTellError(last[-1].replace(f"{self.root}/", ""))
        state: dict[str, Any] = json.loads(line)
        return state


@dataclass(frozen=True, slots=True)
class States:
    """What answers for ``matrix/`` as it was and as it is; :func:`states` makes them."""

    before: _State
    now: _State

    def ask(self, wanted: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Both states' answer to a request to snapshot.py, which they work on at once. Raises CannotTellError."""
        request = json.dumps(wanted).encode() + b"\n"
        for state in (self.before, self.now):
            state.ask(request)
        return self.before.answer(), self.now.answer()


@contextmanager
def states(before: Path, now: Path) -> Iterator[States]:
    """Those of the folders that hold ``matrix/`` as it was and as it is."""
    with _state(before) as old, _state(now) as new:
        yield States(old, new)


@contextmanager
def _state(root: Path) -> Iterator[_State]:
    command = [sys.executable, "-I", str(_SNAPSHOT), str(root)]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        yield _State(root, process, errors)


def altered_kernels(states: States, *, rules_changed: bool) -> list[Altered]:
    """Kernels whose fields, order or existence differ between two states, for every arch, receipt and mask set.

    Families are enumerated where their tables differ; all of them with ``rules_changed``, when equal tables may mean
    something else.

    Raises:
        CannotTellError: one of the states can't be read.
    """
    before, now = (state["tables"] for state in states.ask({"tables": True}))
    altered = [*_of_archs(before, now), *_of_upstreams(before, now), *_of_heads(before, now)]
    if set(before["receipts"]) != set(now["receipts"]):
        altered += [Altered(*place, None, "the numbers of receipts") for place in _places(now)]
    there, here = set(_places(before)), set(_places(now))
    altered += [Altered(*place, None, "it was not there before") for place in sorted(here - there)]
    altered += [Altered(*place, None, "it is gone") for place in sorted(there - here)]
    both = sorted(here & there)
    if not rules_changed:
        both = [place for place in both if _table(before, place) != _table(now, place)]
    return [*altered, *_of_families(states, both), *_of_subsets(states, before, now)]


def _places(tables: Mapping[str, Any]) -> list[Place]:
    return [(dialect, family) for dialect, one in tables["dialects"].items() for family in one["families"]]


def _table(tables: Mapping[str, Any], place: Place) -> str:
    """With the order of its fields: axes are looped over in the order they are written in."""
    return json.dumps(tables["dialects"][place[0]]["families"][place[1]])


def _of_archs(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Altered]:
    changed = [
        name for name in {**before["archs"], **now["archs"]} if before["archs"].get(name) != now["archs"].get(name)
    ]
    return [Altered(*place, None, f"arch {name}") for name in changed for place in _places(now)]


def _of_upstreams(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Altered]:
    """Whatever is built from another package than before; an upstream's summary is only shown."""
    altered = []
    for name in {**before["upstreams"], **now["upstreams"]}:
        old, new = ({**state["upstreams"].get(name, {}), "summary": ""} for state in (before, now))
        dialects = {one["dialect"] for one in (old, new) if "dialect" in one} if old != new else set()
        altered += [Altered(*place, None, f"upstream {name}") for place in _places(now) if place[0] in dialects]
    return altered


def _of_heads(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Altered]:
    """How a checkout's age is recognised decides which dialect it is built in."""
    altered = []
    for name, dialect in now["dialects"].items():
        heads = [{**state["dialects"].get(name, {"head": {}})["head"], "summary": ""} for state in (before, now)]
        if heads[0] != heads[1]:
            altered += [
                Altered(name, family, None, "dialect.yaml: parent or detection") for family in dialect["families"]
            ]
    return altered


def _of_families(states: States, places: Sequence[Place]) -> list[Altered]:
    if not places:
        return []
    before, now = (state["kernels"] for state in states.ask({"kernels": places}))
    altered = []
    for dialect, family in places:
        names, reason = _difference(before[dialect][family], now[dialect][family])
        if names is None or names:
            altered.append(Altered(dialect, family, names, reason))
    return altered


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[frozenset[str] | None, str]:
    """Kernels that differ between two states of a family, None for all of them; and what differs, in words."""
    if before["archs"] != now["archs"]:
        return None, "the archs of the family"
    if set(before["lists"]) != set(now["lists"]):
        return None, "the receipts of the family"
    old, new = before["rows"], now["rows"]
    fields = {name for name in {**old, **new} if old.get(name) != new.get(name)}
    listed: set[str] = set()
    old_names, new_names = list(old), list(new)
    for label, places in now["lists"].items():
        ours = [new_names[place] for place in places]
        theirs = [old_names[place] for place in before["lists"][label]]
        if ours == theirs:
            continue
        listed |= set(ours) ^ set(theirs)
        both = set(ours) & set(theirs)
        if [name for name in ours if name in both] != [name for name in theirs if name in both]:
            return None, "the order of dispatch"
    parts = [
        f"{len(set(new) - set(old))} added" if set(new) - set(old) else "",
        f"{len(set(old) - set(new))} removed" if set(old) - set(new) else "",
        f"{len(fields & set(old) & set(new))} with other fields" if fields & set(old) & set(new) else "",
        f"{len(listed - fields)} in another receipt" if listed - fields else "",
    ]
    return frozenset(fields | listed), ", ".join(part for part in parts if part)


def _of_subsets(states: States, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Altered]:
    """Kernels that a tier, profile or list of defects holds at one state and not at the other."""
    wanted = [
        (kind, name)
        for kind in ("tier", "profile", "defect")
        for name in {**before[f"{kind}s"], **now[f"{kind}s"]}
        if before[f"{kind}s"].get(name) != now[f"{kind}s"].get(name)
    ]
    if not wanted:
        return []
    old, new = (state["subsets"] for state in states.ask({"subsets": wanted}))
    altered = []
    for label, dialects in new.items():
        for dialect, families in dialects.items():
            for family, names in families.items():
                names = frozenset(names) ^ frozenset(old[label].get(dialect, {}).get(family, []))
                if names:
                    altered.append(Altered(dialect, family, names, f"in or out of {label}"))
    return altered


def altered_suites(states: States) -> dict[str, str]:
    """Suites with a problem that differs between two states, and how many do. Raises CannotTellError."""
    before, now = (state["problems"] for state in states.ask({"problems": True}))
    reasons = {}
    for suite, tiers in now.items():
        old = before.get(suite, {})
        names = {name for tier in tiers for name in {**tiers[tier], **old.get(tier, {})}}
        changed = {
            name for name in names if any(tiers[tier].get(name) != old.get(tier, {}).get(name) for tier in tiers)
        }
        if changed:
            reasons[suite] = f"{len(changed)} problems of {suite} differ"
    return reasons

"""From a suite, tier and library to cases; from their results and the ledger to a verdict each."""

from __future__ import annotations

import datetime
import fnmatch
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernels.base.results import LIBRARY_SHA256, Results
from kernels.base.results import Case as Recorded
from kernels.build.manifest import keys_of
from kernels.build.request import LIBRARY, folder_name
from kernels.families.libraries import libraries, option
from matrix.base.errors import NameSyntaxError
from matrix.base.program import as_called
from matrix.keys import Key
from matrix.options import DEFAULT_FAMILY
from matrix.problems.ledger import Entry, Ledger, Verdict
from matrix.problems.problem import FAMILY_SUITE, Problem, wave_instructions
from matrix.problems.tables import problems
from tests.gpu.errors import NotBuiltError, NothingRanError, WrongLibraryError

# The sanitizer's runs of a case: every check, and the waves of a workgroup in three orders.
_CHECKS = ("poison", "poison_memory", "late_loads", "lds_races", "uninitialised")
SANITIZER = tuple({**dict.fromkeys(_CHECKS, True), "wave_order": order} for order in (0, 1, 2))
_SECONDS_AT_LEAST = 120.0
_SLOWEST = 100_000  # wave-instructions a second that a slow machine must reach
_OUTCOMES = {
    "passed": "passed",
    "known": "passed",
    "unexpected_pass": "failed",
    "failed": "failed",
    "unsupported": "skipped",
    "infrastructure": "error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A built library and its manifest."""

    library: Path
    manifest: Path
    upstream: str
    archs: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A problem to be run once for each set of device options."""

    problem: Problem
    variants: tuple[Mapping[str, Any], ...] = ({},)

    @property
    def name(self) -> str:
        return self.problem.name

    @property
    def seconds(self) -> float:
        """After which the case counts as hanging."""
        return _SECONDS_AT_LEAST + len(self.variants) * wave_instructions(self.problem) / _SLOWEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A case's reply, as workers and the pool write it, and what the ledger says of it."""

    case: Case
    reply: Mapping[str, Any]
    verdict: Verdict

    @property
    def outcome(self) -> str:
        return str(self.reply["outcome"])


def locate(work: Path, arch: str, upstream: str, library: str = DEFAULT_FAMILY) -> Built:
    """The library that ``kernels build`` made of an upstream for an arch, alone or among others.

    ``library`` is its name in kernels/families/libraries.py.

    Raises:
        NotBuiltError: there is none.
    """
    name = folder_name(upstream, library)
    places = [work / "build" / arch / name, *sorted((work / "build").glob(f"*{arch}*/{name}"))]
    for place in places:
        if (place / LIBRARY).is_file() and (place / "manifest.json").is_file():
            found = built(place / LIBRARY)
            if arch in found.archs:
                return found
    family = "".join(f" {word}" for word in option(library))
    raise NotBuiltError(
        f"{places[0]}: no library of {upstream} for {arch}. "
        f"Build it first: nox -s build-{arch} -- --upstream {upstream}{family}"
    )


def built(library: Path) -> Built:
    """A library with its manifest beside it.

    Raises:
        NotBuiltError: one of the two is missing.
        WrongLibraryError: the manifest isn't one.
    """
    manifest = library.with_name("manifest.json")
    for file in (library, manifest):
        if not file.is_file():
            raise NotBuiltError(f"{file}: no such file. Build the library first: python -m kernels build --help")
    try:
        facts = json.loads(manifest.read_text(encoding="utf-8"))
        return Built(
            library=library, manifest=manifest, upstream=facts["upstream"], archs=tuple(facts["archs"]), facts=facts
        )
    except (ValueError, KeyError, TypeError) as error:
        raise WrongLibraryError(f"{manifest}: no manifest of a built library: {error!r}. Build it anew.") from error


def manifest_keys(manifest: Path, names: Sequence[str], library: str = DEFAULT_FAMILY) -> tuple[Key, ...]:
    """Keys of a library's kernels, in its own order. ``library`` is its name in kernels/families/libraries.py.

    Raises:
        WrongLibraryError: the manifest lists other kernels, or a name is none of its dialect's.
    """
    facts = json.loads(manifest.read_text(encoding="utf-8"))
    if set(facts["kernels"]) != set(names):
        raise WrongLibraryError(f"{manifest}: it lists other kernels than the library holds. Build it anew.")
    try:
        return keys_of(facts, names, libraries()[library])
    except NameSyntaxError as error:
        raise WrongLibraryError(f"{manifest}: {error}") from error


def cases(suite: str, tier: str, kind: str, glob: str = "*") -> tuple[Case, ...]:
    """The cases of a suite and tier on a kind of device, whose name fits ``glob`` (with or without the suite).

    Raises:
        UnknownSuiteError, UnknownTierError, TableError.
        NothingRanError: no case has such a name.
    """
    variants = SANITIZER if suite == "sanitize" and kind == "emulator" else ({},)
    fitting = [
        problem
        for problem in problems(suite, tier)
        if any(fnmatch.fnmatchcase(problem.name, pattern) for pattern in (glob, f"{suite}/{glob}"))
    ]
    if not fitting:
        raise NothingRanError(f"no case of {suite} in tier {tier} fits '{glob}'. See python -m matrix problems.")
    return tuple(Case(problem=problem, variants=variants) for problem in fitting)


def judge(case: Case, reply: Mapping[str, Any], ledger: Ledger, upstream: str, arch: str) -> Judged:
    verdict = ledger.judge(case.name, upstream, arch, str(reply["outcome"]))
    return Judged(case=case, reply=reply, verdict=verdict)


def reproduce_command(
    suite: str, arch: str, upstream: str, device: str, name: str, library: str = DEFAULT_FAMILY
) -> str:
    """The line that runs one case again, with a trace of a suite's."""
    root = f"CK_ROOT={shlex.quote(os.environ.get('CK_ROOT', ''))} " if upstream == "checkout" else ""
    session = f"sanitize-{arch} --" if suite == "sanitize" else f"test-{suite} -- --arch {arch}"
    if suite == FAMILY_SUITE:
        session = f"test-fwd -- --arch {arch} --family {','.join(libraries()[library])}"
    command = as_called(f"nox -s {session} --upstream {upstream} --device {device} --reproduce ")
    return f"{root}{command}{shlex.quote(name)}"


def recorded(judged: Judged, suite: str, arch: str, upstream: str, command: str) -> Recorded:
    """A case for the results file. A known defect passes, and says so in its text."""
    reply, verdict = judged.reply, judged.verdict
    outcome = _OUTCOMES[verdict.kind]
    what = "" if outcome == "passed" else message(judged)
    lines = [f"kernel: {reply.get('kernel') or 'none'}", *reply.get("lines", ())]
    if (entry := verdict.entry) is not None and verdict.kind in ("known", "unexpected_pass", "failed"):
        lines.insert(0, f"ledger: {entry.name} ({entry.place}): {entry.reason} {entry.link}".rstrip())
    if reply.get("message"):
        lines.append(str(reply["message"]))
    if reply.get("fault"):
        lines.append("fault: " + json.dumps(reply["fault"]))
    if outcome in ("failed", "error"):
        lines.append(f"reproduce: {command}")
    return Recorded(
        suite=f"{suite}-{arch}-{upstream}",
        classname=f"{suite}.{judged.case.problem.group}",
        name=judged.case.name,
        outcome=outcome,
        message=_one_line(what),
        text="\n".join(_printable(line) for line in lines),
        seconds=float(reply.get("elapsed", 0.0)),
    )


def message(judged: Judged) -> str:
    """Why a case is not simply in order."""
    told = str(judged.reply.get("message", ""))
    if judged.verdict.kind in ("unexpected_pass", "known"):
        return judged.verdict.text
    return told or judged.verdict.text


def results(cases: Sequence[Recorded], library: Built, device: str, tier: str, day: datetime.date) -> Results:
    """With what a report must know of the run: the device, and which build it was, by the manifest's sha256."""
    facts = {"device": device, "tier": tier, "run on": str(day)}
    digest = library.facts.get("artifacts", {}).get(library.library.name)
    return Results(tuple(cases), {**facts, **({LIBRARY_SHA256: digest} if digest else {})})


def entries_used(judged: Sequence[Judged]) -> Mapping[str, tuple[Entry, int]]:
    """Ledger entries that speak for a known defect here, and of how many cases."""
    found: dict[str, tuple[Entry, int]] = {}
    for one in judged:
        if one.verdict.kind == "known" and (entry := one.verdict.entry):
            found[entry.name] = entry, found.get(entry.name, (entry, 0))[1] + 1
    return found


def _one_line(text: str) -> str:
    return _printable(" ".join(text.split()))


def _printable(text: str) -> str:
    """Without characters that XML can't hold; a dying process may write any."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text)

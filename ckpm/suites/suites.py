"""The cases of a suite, tier and library; and the verdict on each from its result and the ledger."""

from __future__ import annotations

import dataclasses
import datetime
import fnmatch
import math
import os
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.attention.launch.counters import executed_instructions
from ckpm.base.errors import InconclusiveError, LibraryError, NameSyntaxError, RecordError
from ckpm.base.results import CaseFault, LedgerUse, Results
from ckpm.base.results import CaseResult as Recorded
from ckpm.kernels.code import code_object as codeobject
from ckpm.kernels.families.libraries import build_command, libraries
from ckpm.kernels.library.manifest import MANIFEST, Manifest, identity_facts
from ckpm.kernels.library.request import LIBRARY, folder_name
from ckpm.matrix.dialects import DEFAULT_FAMILY, dialect
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import SuiteCase, wave_instructions
from ckpm.matrix.problems.ledger import Ledger, LedgerEntry, LedgerVerdict
from ckpm.matrix.problems.matching import not_asked
from ckpm.matrix.problems.tables import problems
from ckpm.matrix.sessions import FAMILY_SUITE

# The sanitizer's runs of a case: these checks, and the waves of a workgroup in three orders.
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
class LocatedLibrary:
    """A built library and its manifest. ``file_facts`` describe the library's file (identity_facts)."""

    library: Path
    manifest: Manifest
    file_facts: Mapping[str, str]

    @property
    def manifest_file(self) -> Path:
        return self.library.with_name(MANIFEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A problem to be run once for each set of device options. ``signatures``: of its known defect."""

    problem: SuiteCase
    variants: tuple[Mapping[str, Any], ...] = ({},)
    signatures: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.problem.name

    @property
    def seconds(self) -> float:
        """The time limit, after which the case counts as hanging."""
        return _SECONDS_AT_LEAST + len(self.variants) * wave_instructions(self.problem) / _SLOWEST


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCase:
    """A case's reply, as workers and the pool write it, and the ledger's verdict on it."""

    case: Case
    reply: Mapping[str, Any]
    verdict: LedgerVerdict

    @property
    def outcome(self) -> str:
        return str(self.reply["outcome"])


def locate(work: Path, arch: str, upstream: str, library: str = DEFAULT_FAMILY) -> LocatedLibrary:
    """Locate the library that was built of an upstream for an arch, alone or with other archs.

    ``library`` is its name in ckpm/kernels/families/libraries.py.
    """
    name = folder_name(upstream, library)
    folders = [work / "build" / arch / name, *sorted((work / "build").glob(f"*{arch}*/{name}"))]
    for folder in folders:
        if (
            (folder / LIBRARY).is_file()
            and (folder / MANIFEST).is_file()
            and arch in _manifest(folder / MANIFEST).archs
        ):
            return read_library(folder / LIBRARY, foreign=False)
    raise LibraryError(
        f"{folders[0]}: no library of {upstream} for {arch}. "
        f"Build it first: {build_command([arch], upstream, library)}",
        kind="not-built",
    )


def read_library(library: Path, *, foreign: bool) -> LocatedLibrary:
    """Read a library's manifest. The manifest of a ``foreign`` library may list another sha256."""
    manifest = library.with_name(MANIFEST)
    for file in (library, manifest):
        if not file.is_file():
            raise LibraryError(f"{file}: no such file. Build the library first: ckpm build --help", kind="not-built")
    listed = _manifest(manifest)
    return LocatedLibrary(library=library, manifest=listed, file_facts=identity_facts(library, listed, foreign=foreign))


def _manifest(file: Path) -> Manifest:
    """Read the manifest of a built library."""
    try:
        return Manifest.read(file)
    except RecordError as error:
        raise LibraryError(f"no manifest of a built library: {error}", kind="wrong-library") from error


def manifest_keys(manifest: Path, names: Sequence[str]) -> tuple[Key, ...]:
    """Keys of a library's kernels, in its own order."""
    listed = _manifest(manifest)
    if set(listed.kernels) != set(names):
        raise LibraryError(
            f"{manifest}: it lists other kernels than the library holds. {listed.remedy}", kind="wrong-library"
        )
    try:
        return listed.keys(names)
    except NameSyntaxError as error:
        raise LibraryError(f"{manifest}: {error}", kind="wrong-library") from error


def cases(suite: str, tier: str, kind: str, glob: str = "*") -> tuple[Case, ...]:
    """The cases of a suite and tier on a kind of device, whose name fits ``glob`` (with or without the suite)."""
    variants = SANITIZER if suite == "sanitize" and kind == "emulator" else ({},)
    fitting = [
        problem
        for problem in problems(suite, tier)
        if any(fnmatch.fnmatchcase(problem.name, pattern) for pattern in (glob, f"{suite}/{glob}"))
    ]
    if not fitting:
        raise InconclusiveError(
            f"no case of {suite} in tier {tier} fits '{glob}'. See ckpm problems.", kind="nothing-ran"
        )
    return tuple(Case(problem=problem, variants=variants) for problem in fitting)


def select_cases(chosen: Sequence[Case], manifest: Manifest, arch: str) -> tuple[tuple[Case, ...], Mapping[str, int]]:
    """The cases that a library runs; and the number of the others, by the reason that excludes them."""
    problems = [case.problem for case in chosen]
    reasons = not_asked(dialect(manifest.dialect), arch, manifest.mask_impl, problems)
    left = tuple(case for case in chosen if case.name not in reasons)
    counts = Counter(reasons.values())
    if not left:
        raise InconclusiveError(
            f"{manifest.dialect} has no kernel for any of the {len(chosen)} cases: {'; '.join(counts)}.",
            kind="nothing-ran",
        )
    return left, counts


def with_signatures(chosen: Sequence[Case], ledger: Ledger, upstream: str, arch: str) -> tuple[Case, ...]:
    """Cases with the signatures of their ledger entries."""
    entries = ((case, ledger.find(case.problem, upstream, arch)) for case in chosen)
    return tuple(dataclasses.replace(case, signatures=entry.signatures if entry else ()) for case, entry in entries)


def unwaited_loads(library: LocatedLibrary, arch: str) -> frozenset[str]:
    """Names of the kernels that use a register without waiting for the load into it (inspection/waits.py)."""
    code = codeobject.inspect(library.library, arch)
    symbols = {
        name: [row.symbol for row in kernel.resources_on(arch)] for name, kernel in library.manifest.kernels.items()
    }
    late = {symbol for symbol, kernel in code.items() if kernel.hazards}
    return frozenset(name for name, several in symbols.items() if late.intersection(several))


def judge(
    case: Case,
    reply: Mapping[str, Any],
    ledger: Ledger,
    upstream: str,
    arch: str,
    unwaited: Callable[[], Collection[str]] = tuple,
) -> JudgedCase:
    """The verdict on a reply. ``unwaited`` reads unwaited_loads, if the verdict depends on it.

    Loads come late where the device's options allow it. On a GPU this can't be observed. A case that could not run, for
    example because of a damaged code object, has no kernel whose code could be read.
    """
    late = any(variant.get("late_loads") for variant in case.variants) and reply["outcome"] != "infrastructure"
    late = late and bool(reply.get("kernel")) and reply["kernel"] in unwaited()
    verdict = ledger.judge(
        case.problem, upstream, arch, str(reply["outcome"]), unwaited=late, signature=reply.get("signature")
    )
    return JudgedCase(case=case, reply=reply, verdict=verdict)


def reproduce_command(
    suite: str, arch: str, upstream: str, device: str, name: str, library: str = DEFAULT_FAMILY
) -> str:
    """The command line that runs one case again."""
    root = f"CK_ROOT={shlex.quote(os.environ.get('CK_ROOT', ''))} " if upstream == "checkout" else ""
    family = f" --family {','.join(libraries()[library])}" if suite == FAMILY_SUITE else ""
    options = f"--suite {suite} --arch {arch}{family} --upstream {upstream} --device {device}"
    return f"{root}ckpm test {options} --reproduce {shlex.quote(name)}"


def record_case(judged: JudgedCase, suite: str, arch: str, upstream: str, command: str, family: str = "") -> Recorded:
    """A case for the results file. A known defect passes, and names the ledger's entry."""
    reply, verdict = judged.reply, judged.verdict
    outcome = _OUTCOMES[verdict.kind]
    lines = list(reply.get("lines", ()))
    if reply.get("message"):
        lines.append(str(reply["message"]))
    used = reply.get("tolerance_used")
    return Recorded(
        suite=suite,
        arch=arch,
        upstream=upstream,
        family=family,
        classname=f"{suite}.{judged.case.problem.group}",
        name=judged.case.name,
        outcome=outcome,
        message="" if outcome == "passed" else _printable(" ".join(message(judged).split())),
        text="\n".join(_printable(line) for line in lines),
        kernel=_printable(str(reply.get("kernel") or "")),
        ledger=_ledger_use(verdict),
        fault=CaseFault.of(reply["fault"]) if reply.get("fault") else None,
        tolerance_used=used if used is not None and math.isfinite(used) else None,
        instructions=executed_instructions(reply.get("counters")) if verdict.kind == "passed" else 0,
        same_batches=tuple(reply.get("same_batches", ())) if verdict.kind == "passed" else (),
        reproduce=command if outcome in ("failed", "error") else "",
        seconds=float(reply.get("elapsed", 0.0)),
    )


def _ledger_use(verdict: LedgerVerdict) -> LedgerUse | None:
    """The entry that a result was judged by."""
    entry = verdict.entry
    if entry is None or verdict.kind not in ("known", "unexpected_pass", "failed"):
        return None
    return LedgerUse(name=entry.name, location=entry.location, reason=entry.reason, link=entry.link)


def message(judged: JudgedCase) -> str:
    """The reason of a verdict, from the ledger or the case's reply."""
    reply_text = str(judged.reply.get("message", ""))
    if judged.reply.get("signature"):
        return f"{judged.verdict.text}; {reply_text}"
    if judged.verdict.kind in ("unexpected_pass", "known"):
        return judged.verdict.text
    return reply_text or judged.verdict.text


def results(cases: Sequence[Recorded], library: LocatedLibrary, device: str, tier: str, day: datetime.date) -> Results:
    """The cases with the facts that a report needs: the device, and the library's file."""
    facts = {"device": device, "tier": tier, "run on": str(day)}
    return Results(tuple(cases), {**facts, **library.file_facts})


def entries_used(judged: Sequence[JudgedCase]) -> Mapping[str, tuple[LedgerEntry, int]]:
    """Ledger entries of the known defects that were seen, each with its number of cases."""
    used: dict[str, tuple[LedgerEntry, int]] = {}
    for result in judged:
        if result.verdict.kind == "known" and (entry := result.verdict.entry):
            used[entry.name] = entry, used.get(entry.name, (entry, 0))[1] + 1
    return used


def _printable(text: str) -> str:
    """Replace characters that XML can't hold; a dying process may write any."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text)

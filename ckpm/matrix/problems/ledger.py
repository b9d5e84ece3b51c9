"""The ledger: known defects of upstreams, strict and expiring.

An entry lists problems, upstreams and archs, their expected outcome, and the date on which the entry expires. A case
with this outcome is a known failure. A case that passes in spite of its entry is an unexpected pass and fails the run.
An expired entry fails the run, too: the defect must be checked.

A checkout is any commit of its dialect. An entry that names a dialect covers all its checkouts. Their cases may pass:
the commit may have a fix, or may not have the defect yet.
"""

from __future__ import annotations

import datetime
import fnmatch
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from ckpm.base.errors import CheckFailedError, WhereError
from ckpm.base.paths import data
from ckpm.base.tablefile import Field, Record, Text, read_table, word_list
from ckpm.matrix.dialects import archs, dialect_names, upstreams, without_features
from ckpm.matrix.problems.case import CHOICES as CASE_CHOICES
from ckpm.matrix.problems.case import TIERS, SuiteCase
from ckpm.matrix.problems.problem import CHOICES, Problem
from ckpm.matrix.sessions import FAMILY_SUITE, sessions
from ckpm.matrix.where import Fields, compile_over, typed_fields

LEDGER = data("matrix", "ledger.yaml")
OUTCOMES = ("wrong", "fault", "unsupported", "timeout")  # of a defect
# The appearance of a defect in a case without other defects; ckpm/suites/signatures.py describes each, kernel_cases.py
# and backward_cases.py the last three.
SIGNATURES = (
    "whole_rows_are_read",
    "steps_are_read_whole",
    "windows_start_at_the_first_page",
    "offsets_of_32_bits",
    "rows_of_minus_infinity_are_nan",
    "alibi_and_windows_start_at_the_top_left",
    "alibi_of_16_bits",
    "table_is_read_past_its_end",
    "bytes_are_stored_past_lds",
    "num_records_reach_behind_the_pool",
    "waves_race_in_lds",
    "dq_and_dk_alone_are_wrong",
    "empty_sequences_alone_are_wrong",
)
RESULTS = ("passed", *OUTCOMES, "infrastructure")
_SUITES = (*sessions().suites, "performance")  # performance: the gates' problems
# of any problem, also those that are made from kernels
_CASE_CHOICES = {**CASE_CHOICES, **CHOICES, "suite": (*_SUITES, FAMILY_SUITE), "tier": TIERS}
_SIZES = tuple((f"problem.{name}", int) for name in ("pool_bytes", "span_bytes", "window_start", "fewest_queries"))
_CALL_FIELDS = (*typed_fields("problem", Problem, CHOICES), *_SIZES)
_PROBLEM_FIELDS = (*typed_fields("problem", SuiteCase, _CASE_CHOICES), *_SIZES, ("problem.keys_ahead", int))


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One defect. ``problems`` are globs over problem names; ``upstreams`` and ``archs`` names, or ``*`` for any.

    An upstream may be a dialect, for its checkouts (:func:`source`), also for those with features of pull requests.
    ``holds(problem)`` is True for those of these problems that have the defect. With ``unwaited_loads``, the kernel
    must also use a register without waiting for the load into it, in a run with late loads. A case must show the first
    of the ``signatures``; run again without what causes the fault, it must show the second.

    A caller's problem has no name: it has the defect if ``meets(problem)`` and the chosen kernel's name fits one of
    ``kernels``. With ``keep`` this depends on the contents of memory: ``keep`` is what a caller must ensure.
    With ``host_calls_keep``, calls with arrays of the host ensure it themselves.
    """

    name: str
    location: str
    problems: tuple[str, ...]
    holds: Callable[[SuiteCase], bool] = lambda problem: True
    unwaited_loads: bool = False
    kernels: tuple[str, ...] = ()
    meets: Callable[[Problem], bool] = lambda problem: True
    keep: str = ""
    host_calls_keep: bool = False
    upstreams: tuple[str, ...]
    archs: tuple[str, ...]
    outcomes: tuple[str, ...]
    signatures: tuple[str, ...] = ()
    reason: str
    link: str
    expires: datetime.date

    def covers(self, problem: SuiteCase, upstream: str, arch: str, *, unwaited: bool = False) -> bool:
        """Return True if the entry covers the case; ``unwaited``: a load may have come too late."""
        return (
            any(fnmatch.fnmatchcase(problem.name, glob) for glob in self.problems)
            and self.holds(problem)
            and (unwaited or not self.unwaited_loads)
            and self._is_of(upstream, arch)
        )

    def spoils(self, problem: Problem, kernel: str, upstream: str) -> bool:
        """Return True if a caller's problem meets the defect in a kernel of this name, with ``keep`` maybe."""
        return (
            any(fnmatch.fnmatchcase(kernel, glob) for glob in self.kernels)
            and self._is_of(upstream, problem.arch)
            and self.meets(problem)
        )

    def _is_of(self, upstream: str, arch: str) -> bool:
        names = {"*", upstream} if upstream in upstreams() else {"*", upstream, without_features(upstream)[0]}
        return not names.isdisjoint(self.upstreams) and ("*" in self.archs or arch in self.archs)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerVerdict:
    """The meaning of a case's result. ``kind``: passed, known, unexpected_pass, failed, unsupported, infrastructure."""

    kind: str
    text: str
    entry: LedgerEntry | None = None

    @property
    def good(self) -> bool:
        return self.kind in ("passed", "known", "unsupported")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The entries, in the file's order: the first entry that covers a case decides."""

    file: Path
    entries: tuple[LedgerEntry, ...] = field(default=())

    def find(self, problem: SuiteCase, upstream: str, arch: str, *, unwaited: bool = False) -> LedgerEntry | None:
        covering = (entry for entry in self.entries if entry.covers(problem, upstream, arch, unwaited=unwaited))
        return next(covering, None)

    def find_for_call(self, problem: Problem, kernel: str, upstream: str) -> LedgerEntry | None:
        """The defect that a caller's problem meets in a kernel of an upstream (:func:`source`), or None."""
        spoiling = (entry for entry in self.entries if not entry.keep and entry.spoils(problem, kernel, upstream))
        return next(spoiling, None)

    def find_to_keep(self, problem: Problem, kernel: str, upstream: str) -> tuple[LedgerEntry, ...]:
        """The defects that some contents of a caller's memory meet in a kernel of an upstream (:func:`source`)."""
        return tuple(entry for entry in self.entries if entry.keep and entry.spoils(problem, kernel, upstream))

    def judge(
        self,
        problem: SuiteCase,
        upstream: str,
        arch: str,
        result: str,
        *,
        unwaited: bool = False,
        signature: str | None = None,
    ) -> LedgerVerdict:
        """The meaning of ``result`` (one of RESULTS) of a case, ``unwaited`` as in Entry.covers.

        ``signature`` is the difference of the case from its entry's signatures, "" for none, None if it is unknown.

        An unsupported case doesn't fail, unless an entry expects another outcome. An infrastructure failure isn't the
        kernel's, so it is never a known one.
        """
        if result not in RESULTS:
            raise ValueError(f"no result '{result}'; known: {', '.join(RESULTS)}")
        entry = self.find(problem, upstream, arch, unwaited=unwaited)
        if result == "infrastructure":
            return LedgerVerdict(kind=result, text="the case could not be run", entry=entry)
        if entry is None:
            kind = result if result in ("passed", "unsupported") else "failed"
            return LedgerVerdict(kind=kind, text=result)
        if result in entry.outcomes and entry.signatures and signature:
            shows = f"{entry.name} ({entry.location}: {', '.join(entry.signatures)})"
            text = f"{result}, but not as {shows}: {signature}"
            return LedgerVerdict(kind="failed", text=text, entry=entry)
        if result in entry.outcomes:
            return LedgerVerdict(
                kind="known", text=f"{result}: {entry.reason} ({entry.name}, {entry.location})", entry=entry
            )
        if result == "passed" and upstream not in upstreams():
            return LedgerVerdict(kind=result, text=f"passed: this checkout is without {entry.name} ({entry.location})")
        if result == "passed":
            return LedgerVerdict(
                kind="unexpected_pass",
                text=f"passes, but {entry.location} expects {' or '.join(entry.outcomes)}: narrow or remove "
                f"{entry.name}, unless it passes on a GPU alone",
                entry=entry,
            )
        if result == "unsupported":
            return LedgerVerdict(kind="unsupported", text=result, entry=entry)
        expected = " or ".join(entry.outcomes)
        return LedgerVerdict(kind="failed", text=f"{result}, where {entry.location} expects {expected}", entry=entry)

    def check_dates(self, today: datetime.date) -> None:
        """Refuse a ledger with expired entries; the CheckFailedError lists them."""
        expired = [entry for entry in self.entries if entry.expires < today]
        if expired:
            lines = [f"{e.location}: {e.name} expired on {e.expires}: {e.reason}" for e in expired]
            raise CheckFailedError(
                "\n".join(lines)
                + "\nLook at each again: remove it if the cases pass, else give a new date and say why.",
                kind="ledger-expired",
            )


def source(upstream: str, dialect: str) -> str:
    """The name of a library's CK in entries: its packaged upstream, or the dialect of a checkout."""
    return upstream if upstream in upstreams() else dialect


class _LedgerRow(Record, frozen=True):
    problems: str | tuple[str, ...]
    upstreams: str | tuple[str, ...]
    archs: str | tuple[str, ...]
    outcome: str | tuple[str, ...]
    reason: str
    expires: datetime.date
    link: Annotated[str, Meta(pattern="^https://")] = ""
    where: str | None = None
    kernels: str | tuple[str, ...] | None = None
    calls: str | None = None
    keep: Text | None = None
    host_calls_keep: bool = False
    unwaited_loads: bool = False
    signature: str | tuple[str, ...] | None = None


class LedgerTable(Record, frozen=True):
    """The record of ledger.yaml."""

    entries: dict[str, _LedgerRow]


@functools.cache
def house_ledger() -> Ledger:
    """The ledger of this project, read once."""
    return read_ledger()


def read_ledger(file: Path = LEDGER) -> Ledger:
    """Read the ledger, expired entries included (see :meth:`Ledger.check_dates`)."""
    table = read_table(file, LedgerTable)
    entries = tuple(_entry(name, row, table.at("entries", name)) for name, row in table.record.entries.items())
    return Ledger(file=file, entries=entries)


def _entry(name: str, row: _LedgerRow, item: Field) -> LedgerEntry:
    problems = word_list(row.problems)
    for glob in problems:
        if glob.partition("/")[0] not in _SUITES:
            message = f"'{glob}' has no suite: write SUITE/GLOB, suites: {', '.join(_SUITES)}"
            raise item.value["problems"].fail(message)
    vocabulary = {
        "problems": problems,
        "upstreams": ("*", *upstreams(), *dialect_names()),
        "archs": ("*", *archs()),
        "outcome": OUTCOMES,
        "signature": SIGNATURES,
    }
    lists = {part: word_list(getattr(row, part) or ()) for part in vocabulary}
    for part in ("calls", "keep"):
        if getattr(row, part) is not None and row.kernels is None:
            raise item.value[part].fail("is about calls of kernels: name them in kernels")
    for part, names in lists.items():
        if not names and getattr(row, part) is not None:
            raise item.value[part].fail("is empty")
        if unknown := [word for word in names if word not in vocabulary[part]]:
            raise item.value[part].fail_word(f"unknown '{unknown[0]}'", unknown[0], vocabulary[part])
    if not row.reason.strip():
        raise item.value["reason"].fail("is empty: describe the defect and its place")
    of_suite = (glob.removeprefix(f"{FAMILY_SUITE}/") for glob in problems if glob.startswith(f"{FAMILY_SUITE}/"))
    if row.host_calls_keep and row.keep is None:
        raise item.value["host_calls_keep"].fail("is about the condition of keep, which is missing")
    return LedgerEntry(
        name=name,
        location=f"{item.file.name}:{item.line}",
        problems=problems,
        holds=_condition(item, "where", row.where, _PROBLEM_FIELDS),
        unwaited_loads=row.unwaited_loads,
        kernels=(*word_list(row.kernels or ()), *of_suite),
        meets=_condition(item, "calls", row.calls, _CALL_FIELDS),
        keep=row.keep or "",
        host_calls_keep=row.host_calls_keep,
        upstreams=lists["upstreams"],
        archs=lists["archs"],
        outcomes=lists["outcome"],
        signatures=lists["signature"],
        reason=row.reason.strip(),
        link=row.link,
        expires=row.expires,
    )


def _condition(item: Field, field: str, text: str | None, names: Fields) -> Callable[[Problem], bool]:
    """The condition of an entry's field; without one it is always True."""
    try:
        return compile_over(text, names) if text is not None else lambda _: True
    except WhereError as error:
        raise item.value[field].fail(str(error)) from error

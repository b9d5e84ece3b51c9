"""The output of a run of GPU tests: progress, a summary, and commands that reproduce failures."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from ckpm.base.console import console, make_table
from ckpm.base.display import show
from ckpm.base.progress import Steps
from ckpm.suites.suites import JudgedCase, entries_used, message

log = logging.getLogger(__name__)
_PLAIN_SECONDS = 10.0  # between two plain lines of progress
_SHOWN = 20  # cases with a command each; all are in the results file
_LENGTH = 240
_KINDS = ("passed", "known", "unexpected_pass", "failed", "unsupported", "infrastructure")


class SuiteProgress(Steps):
    """Finished cases. Without a bar a line comes now and then; failed cases are shown at once in any case."""

    def __init__(self, total: int) -> None:
        super().__init__("cases", total, log)
        self._counts: Counter[str] = Counter()
        self._shown_at = time.monotonic()

    def show(self, judged: JudgedCase) -> None:
        self.done += 1
        self._counts[judged.verdict.kind] += 1
        self.show_bar(_count_text(self._counts))
        if not judged.verdict.good:
            log.warning(f"{_verdict_word(judged)} {judged.case.name}: {_short(message(judged))}")
        now = time.monotonic()
        if self.in_lines and (now - self._shown_at > _PLAIN_SECONDS or self.done == self.total):
            self._shown_at = now
            self.line(_count_text(self._counts))


def _count_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[kind]} {kind.replace('_', ' ')}" for kind in _KINDS if counts.get(kind))


def details(judged: JudgedCase) -> None:
    """Show everything that is known of one case."""
    reply = judged.reply
    show(f"{judged.case.name}: {judged.outcome}\nkernel: {reply.get('kernel') or 'none'}")
    for line in reply.get("lines", ()):
        show(f"  {line}")
    if reply.get("message"):
        show(str(reply["message"]))
    for title in ("fault", "counters"):
        if fields := reply.get(title):
            show(f"{title}:")
            for name, value in fields.items():
                show(f"  {name}: {value}")


def summary(title: str, judged: Sequence[JudgedCase], commands: Mapping[str, str], seconds: float) -> None:
    """Show counts by outcome, the ledger's entries that were used, and a command for each failed case."""
    counts = Counter(result.outcome if result.verdict.kind == "failed" else result.verdict.kind for result in judged)
    columns = ("passed", "known", "unexpected_pass", "wrong", "fault", "timeout", "unsupported", "infrastructure")
    table = make_table((), (column.replace("_", " ") for column in ("cases", *columns, "seconds")), title)
    table.add_row(str(len(judged)), *(str(counts[column]) for column in columns), f"{seconds:.1f}")
    console().print(table)
    if used := entries_used(judged):
        show("known defects of the upstream (matrix/ledger.yaml):")
        for name, (entry, count) in used.items():
            link = f" {entry.link}" if entry.link else ""
            show(
                f"  {count} cases: {name} ({' or '.join(entry.outcomes)}, until {entry.expires}): {entry.reason}{link}"
            )
    bad = [result for result in judged if not result.verdict.good]
    if bad:
        show("to reproduce:")
    for result in bad[:_SHOWN]:
        show(f"  {commands[result.case.name]}  # {_verdict_word(result)}")
    if len(bad) > _SHOWN:
        show(f"  and {len(bad) - _SHOWN} more: in the results file")


def _verdict_word(judged: JudgedCase) -> str:
    """The outcome of a failed case, as the summary prints it."""
    return judged.outcome if judged.verdict.kind == "failed" else judged.verdict.kind.replace("_", " ")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LENGTH else f"{line[:_LENGTH]}.."

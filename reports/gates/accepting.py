"""Accept figures: the baselines of all gates and their history change together, or not at all.

The new content of every file is first written into one journal beside them, in one step. From then on the figures are
accepted: if the process is killed, the next command that reads these baselines writes the files.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from ckpm.base.bounded import read_bytes, read_text
from ckpm.base.errors import InconclusiveError
from ckpm.base.files import is_special, name_write_errors, write_atomically
from ckpm.base.records import Source
from ckpm.reports.gates.baseline import FOLDER, Acceptance, Baseline, Figures, history_of, path_of, read_history

_REMEDY = "Delete it, and accept once more."


def accept(
    identity: Mapping[str, str], measured: Mapping[str, Figures], reason: str, folder: Path = FOLDER
) -> list[Path]:
    """Store each gate's figures as its baseline, with a line of history: date, reason, sum of each metric.

    If figures and reason are those of the baseline, no line is added. Returns the baselines.

    Raises:
        InconclusiveError: no reason, no figures, a figure that is not a finite number, or a damaged history.
        DiskFullError, OutputError.
    """
    reason = " ".join(reason.split())
    if not reason:
        raise InconclusiveError("a baseline is accepted with a reason: --reason TEXT.", kind="gate")
    _demand_finite(measured)
    complete(identity, folder)
    texts, lines = {}, []
    for gate, figures in measured.items():
        file = path_of(identity, gate, folder)
        if is_special(file):  # writing would wait for whoever reads the pipe
            raise InconclusiveError(f"{file}: a pipe or a device is in the baseline's place. Remove it.", kind="gate")
        text = Baseline(facts={**identity, "reason": reason}, figures=figures).text()
        if not file.is_file() or read_bytes(file).decode(errors="replace") != text:
            texts[file.name] = text
            lines.append(_line(identity, gate, figures, reason))
    history = history_of(identity, folder)
    if history.exists():
        read_history(history)  # to a history that can't be read no line is added
        lines.insert(0, read_text(history))
    if texts:
        write_atomically(_journal(identity, folder), json.dumps({**texts, history.name: "".join(lines)}).encode())
        complete(identity, folder)
    return [path_of(identity, gate, folder) for gate in measured]


def complete(identity: Mapping[str, str], folder: Path = FOLDER) -> None:
    """Write the files that an interrupted :func:`accept` left.

    Raises:
        InconclusiveError: its journal is damaged.
        DiskFullError, OutputError.
    """
    journal = _journal(identity, folder)
    if not journal.is_file():
        return
    source = Source(place=journal, what="a journal of accepted figures", remedy=_REMEDY, error=InconclusiveError)
    for name, text in source.read().texts().items():
        if name != Path(name).name:
            raise InconclusiveError(f"{journal}: {name!r} is not a file beside it. {_REMEDY}", kind="gate")
        write_atomically(journal.with_name(name), text.encode())
    with name_write_errors(journal):
        journal.unlink()


def _journal(identity: Mapping[str, str], folder: Path) -> Path:
    return path_of(identity, "accepting", folder).with_suffix(".json")


def _demand_finite(measured: Mapping[str, Figures]) -> None:
    for subject, metrics in _subjects(measured):
        if bad := [metric for metric, value in metrics.items() if not math.isfinite(value)]:
            raise InconclusiveError(
                f"{subject}: {', '.join(bad)}: not a finite number, can't be accepted.", kind="gate"
            )


def _subjects(measured: Mapping[str, Figures]) -> Iterator[tuple[str, Mapping[str, float]]]:
    for figures in measured.values():
        if not figures:
            raise InconclusiveError("there is no figure to accept.", kind="gate")
        yield from figures.items()


def _line(identity: Mapping[str, str], gate: str, figures: Figures, reason: str) -> str:
    line = Acceptance(
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        gate=gate,
        reason=reason,
        identity=identity["identity"],
        upstream_identity=identity["upstream_identity"],
        subjects=len(figures),
        sums=_sums(figures),
    )
    return json.dumps(dataclasses.asdict(line)) + "\n"


def _sums(figures: Figures) -> dict[str, float]:
    sums: dict[str, float] = {}
    for metrics in figures.values():
        for metric, value in metrics.items():
            sums[metric] = sums.get(metric, 0) + value
    return sums

"""Accepting is one step: whenever it is killed, all baselines and the history are as before or as after it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.base import files
from ckpm.base.errors import InconclusiveError
from ckpm.reports.gates import baseline
from ckpm.reports.gates.baseline import accept, complete
from tests.unit.reports.test_gate import FACTS

IDENTITY = {"arch": "gfx950", **FACTS}
OLD = {"static": {"kernel": {"vgpr": 1.0}}, "emulated": {"problem": {"cycles": 1.0}}}
NEW = {"static": {"kernel": {"vgpr": 2.0}}, "emulated": {"problem": {"cycles": 2.0}}}


class Killed(BaseException):
    """Stands in for SIGKILL: nothing of ours handles it."""


def contents(folder: Path) -> dict[str, str]:
    """Text by file; the history without its dates."""
    texts = {file.name: file.read_text() for file in folder.rglob("*") if file.is_file()}
    for name in texts:
        if name.endswith(".history.jsonl"):
            lines = [json.loads(line) for line in texts[name].splitlines()]
            texts[name] = "\n".join(f"{line['gate']} {line['reason']} {line['sums']}" for line in lines)
    return texts


@pytest.fixture
def before_and_after(tmp_path: Path) -> tuple[dict[str, str], dict[str, str]]:
    folder = tmp_path / "undisturbed"
    accept(IDENTITY, OLD, "old", folder)
    before = contents(folder)
    accept(IDENTITY, NEW, "new", folder)
    return before, contents(folder)


def killed_at(count: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, bytes], None]:
    """Writes files up to ``count``, which is not written any more."""
    written = []

    def write(file: Path, data: bytes) -> None:
        written.append(file)
        if len(written) == count:
            raise Killed
        files.write_atomically(file, data)

    return write


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("again", [True, False])
def test_accept_killed_at_any_file_is_completed(
    tmp_path: Path,
    before_and_after: tuple[dict[str, str], dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    again: bool,
) -> None:
    before, after = before_and_after
    folder = tmp_path / "disturbed"
    accept(IDENTITY, OLD, "old", folder)
    monkeypatch.setattr(baseline, "write_atomically", killed_at(count, monkeypatch))
    with pytest.raises(Killed):
        accept(IDENTITY, NEW, "new", folder)
    monkeypatch.undo()
    complete(IDENTITY, folder)  # as every gate does
    assert contents(folder) == (before if count == 1 else after)
    if again:
        accept(IDENTITY, NEW, "new", folder)
        assert contents(folder) == after  # and no line of history twice


def test_accept_same_figures_with_other_reason_adds_line(tmp_path: Path) -> None:
    accept(IDENTITY, OLD, "old", tmp_path)
    accept(IDENTITY, OLD, "looked at again", tmp_path)
    lines = baseline.read_history(baseline.history_of(IDENTITY, tmp_path))
    assert [(line.gate, line.reason) for line in lines] == [
        ("static", "old"), ("emulated", "old"), ("static", "looked at again"), ("emulated", "looked at again"),
    ]  # fmt: skip


@pytest.mark.parametrize("cut", [-1, -2, -40])
def test_no_line_is_added_to_history_that_was_cut_short(tmp_path: Path, cut: int) -> None:
    accept(IDENTITY, OLD, "old", tmp_path)
    history = baseline.history_of(IDENTITY, tmp_path)
    history.write_text(history.read_text()[:cut])
    before = contents(tmp_path) if cut == -1 else None
    with pytest.raises(InconclusiveError, match=r"history\.jsonl"):
        accept(IDENTITY, NEW, "new", tmp_path)
    assert before is None or contents(tmp_path) == before


def test_journal_that_names_other_places_is_refused(tmp_path: Path) -> None:
    (file, _) = accept(IDENTITY, OLD, "old", tmp_path)
    journal = file.with_name("aiter.accepting.json")
    for text, message in (('{"../x": "y"}', "not a file beside it"), ("{", "journal of accepted figures")):
        journal.write_text(text)
        with pytest.raises(InconclusiveError, match=message):
            complete(IDENTITY, tmp_path)
    assert not (tmp_path / "gfx950/x").exists()


def test_pipe_as_baseline_is_refused(tmp_path: Path) -> None:
    accept(IDENTITY, OLD, "old", tmp_path)
    file, history = baseline.path_of(IDENTITY, "static", tmp_path), baseline.history_of(IDENTITY, tmp_path)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(InconclusiveError, match="a pipe or a device is in the baseline's place"):
        accept(IDENTITY, NEW, "new", tmp_path)
    os.truncate(history, 1 << 40)
    with pytest.raises(InconclusiveError, match="can't be read as a baseline's history: it has more than 64 MiB"):
        baseline.read_history(history)


def test_accept_replaces_baseline_too_large_to_read(tmp_path: Path) -> None:
    accept(IDENTITY, OLD, "old", tmp_path)
    file = baseline.path_of(IDENTITY, "static", tmp_path)
    os.truncate(file, 1 << 40)
    accept(IDENTITY, NEW, "new", tmp_path)
    assert baseline.read(file).figures == NEW["static"]

"""Wrong options are refused before a download, a compilation or a measurement, and no option is ignored."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from ckpm import commands as cli
from ckpm.base.entry import exit_code
from ckpm.base.outputs import RECORD, demand_place
from ckpm.bench import command as bench
from ckpm.kernels.library import command as build
from ckpm.kernels.parity import command as parity
from ckpm.reports.release import commands as release
from ckpm_emulator.cli import main as emulator
from tests.docs.commands import Recorder, sessions, started_by
from tests.unit.shared import Run

UNBUILT = "error: --arch gfx1100: its kernels are only listed. Libraries are for gfx90a, gfx942, gfx950.\n"


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each function that begins the work fail."""

    def work(*_: Any, **__: Any) -> None:
        raise AssertionError("work has begun")

    for module in (build, bench, parity, release):
        for name in ("locate", "detect", "compare_upstreams", "read_checkout"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, work)


@pytest.mark.parametrize(
    "line",
    [
        "build --arch gfx950,gfx1100 --family all",
        "build --reproduce --arch gfx1100",
        "measure --arch gfx1100 --output x.json",
        "gate --arch gfx1100",
        "compare --arch gfx1100 --baseline a --candidate b --output x.json",
        "test --suite dispatch --arch gfx1100",
    ],
)
@pytest.mark.usefixtures("idle")
def test_command_with_listed_arch_is_refused(line: str, run: Run) -> None:
    """No session builds a library for the arch, so the message names none."""
    assert run(*line.split()) == (2, "", UNBUILT)


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("build --toolchain gcc", 2, "argument --toolchain: invalid choice: 'gcc'"),
        ("bench --output file/b.md", 10, "file/b.md: can't be written: "),
        ("test --suite large --work /nowhere", 2, "unknown suite 'large'; did you mean 'large-kv'? "),
        ("bench --output .", 10, ".: can't be written: Is a directory. There is a folder of this name: "),
    ],
)
@pytest.mark.usefixtures("idle")
def test_command_checks_options_first(
    line: str, code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    actual_code, _, err = run(*line.split())
    assert (actual_code, err[: 7 + len(message)]) == (code, f"error: {message}")


def test_demand_place_leaves_no_file(tmp_path: Path) -> None:
    demand_place(tmp_path / "new" / "file.json")
    assert [path.name for path in tmp_path.rglob("*")] == ["new"]
    assert not (tmp_path / "new" / RECORD).exists()


@pytest.mark.parametrize("word", ["a\nb", "a\x1b[31m", "a\x7f", "\udcff"])
def test_name_with_control_character_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["validate", word]) == 2
    assert capsys.readouterr().err.startswith(f"error: file: {word!r} holds a control character")


def test_expression_with_lines_is_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    where = "(key.hdim_q == 128\n\tand key.bias == 'no')"
    assert cli.main(["count", "--where", where]) == 0
    assert cli.main(["validate", "naïve-\u200f\u05d0.yaml"]) == 3  # a right-to-left name is accepted


class Refusing(Recorder):
    def error(self, *parts: object) -> None:
        raise RuntimeError(*parts)


def test_session_passes_on_or_refuses_options(tmp_path: Path) -> None:
    (line,) = started_by("report", ["--input", "elsewhere"])
    assert line[-2:] == ["--input", "elsewhere"]
    for name in ("lint", "docs", "workflows"):
        with pytest.raises(RuntimeError, match="this session has no options, and was given --fix"):
            sessions()[name](Refusing(name, ["--fix"], tmp_path))


@pytest.mark.usefixtures("idle")
def test_work_in_circle_of_links_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert cli.main(["build", "--work", str(tmp_path / "a")]) == 10
    assert "or a link that leads nowhere: choose another folder with --work" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--cus", "0"], ["--threads", "-3"], ["--cus", "1025"], ["--threads", "x"]])
def test_emulated_machine_without_units_is_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        emulator(["run", *options, "--", "/bin/true"])
    assert refused.value.code == 2
    assert f"argument {options[0]}: " in capsys.readouterr().err


def test_signal_where_no_thread_starts_is_process_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """OpenBLAS sends its own process SIGINT if it can't start threads."""

    def raise_interrupt() -> int:
        raise KeyboardInterrupt

    assert exit_code(raise_interrupt) == 130

    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", full)
    assert exit_code(raise_interrupt) == 12
    assert "the system allows no further process" in capsys.readouterr().err

"""Messages of modules become lines of the command."""

from __future__ import annotations

import logging

import pytest

from ckpm.base.logs import print_logs

log = logging.getLogger("ckpm.kernels")


def say_all() -> None:
    log.debug("details")
    log.info("progress \x1b[31m")
    log.warning("a warning of %d%%", 7)


@pytest.mark.parametrize(
    ("verbosity", "lines"),
    [
        (-1, "a warning of 7%\n"),
        (0, "progress \\x1b[31m\na warning of 7%\n"),
        (1, "details\nprogress \\x1b[31m\na warning of 7%\n"),
    ],
)
def test_print_logs_shows_messages_of_verbosity(verbosity: int, lines: str, capsys: pytest.CaptureFixture[str]) -> None:
    with print_logs("stderr", verbosity):
        say_all()
    say_all()
    assert capsys.readouterr() == ("", lines)


def test_print_logs_raises_error_of_closed_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_broken_pipe(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("ckpm.base.logs.show", raise_broken_pipe)
    with print_logs(), pytest.raises(BrokenPipeError):
        say_all()

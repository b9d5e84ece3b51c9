"""The browser, and one report that most tests look at. Figures that no test asserts are told after the last test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("tests.browser.checks")  # for messages that show the values; before it is imported

from tests.browser import chromium, sample  # noqa: E402
from tests.browser.chromium import Browser, Page  # noqa: E402

_TOLD: list[str] = []


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in _TOLD:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def tell() -> Callable[[str], None]:
    """A line for the end of the output."""
    return _TOLD.append


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    command = chromium.find()
    if command is None:  # no skip: what was not looked at is not known to be sound
        pytest.exit(chromium.MISSING, returncode=pytest.ExitCode.USAGE_ERROR)
    with Browser(command, tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample.write(tmp_path_factory.mktemp("sample"))


@pytest.fixture
def opened(browser: Browser, report: Path) -> Iterator[Callable[..., Page]]:
    """``opened(width=390)``: the report in a tab of its own; ``opened(file)``: another one."""
    with ExitStack() as stack:
        yield lambda file=report, **options: stack.enter_context(Page(browser, file, **options))

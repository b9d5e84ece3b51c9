"""A headless Chromium, driven by Playwright, and one report that most tests look at.

Numbers that no test asserts are printed after the last test.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

pytest.register_assert_rewrite("tests.browser.checks")  # for messages that show the values; before it is imported

from tests.browser import sample  # noqa: E402

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = (
    f"no Chromium: none of {', '.join(NAMES)} is in PATH, and these tests open the report in a real browser. "
    "Debian: apt-get install chromium. Elsewhere: install Chromium or Google Chrome."
)
_PATIENCE = 120_000  # milliseconds: a page of 40,000 cases on a busy machine takes a few seconds
_LINES: list[str] = []


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in _LINES:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def tell() -> Callable[[str], None]:
    """Add a line to the end of the output."""
    return _LINES.append


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The machine's own Chromium; without one the tests fail, because a skip would look like a pass."""
    command = next((path for name in NAMES if (path := shutil.which(name))), None)
    if command is None:
        pytest.exit(MISSING, returncode=pytest.ExitCode.USAGE_ERROR)
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=command) as chromium:
        yield chromium


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample.write(tmp_path_factory.mktemp("sample"))


@pytest.fixture
def opened(browser: Browser, report: Path) -> Iterator[Callable[..., Page]]:
    """``opened(width=390)``: the report on a page of its own, without a network; ``opened(file)``: another file."""
    contexts = []

    def open_page(
        file: Path = report,
        *,
        width: int = 1280,
        height: int = 800,
        scheme: Literal["light", "dark"] = "light",
        media: Literal["print"] | None = None,
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce", offline=True
        )
        contexts.append(context)
        context.set_default_timeout(_PATIENCE)
        page = context.new_page()
        page.emulate_media(media=media)
        page.goto(file.absolute().as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()

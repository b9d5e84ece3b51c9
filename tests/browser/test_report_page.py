"""The report in a real browser: alone, legible, operable by mouse and keyboard, printable; checks that see it fail."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser import checks

Opened = Callable[..., Page]
Check = Callable[[Page], None]
WIDE: dict[str, Any] = {"width": 1280, "height": 800}
NARROW: dict[str, Any] = {"width": 390, "height": 844}
DARK: dict[str, Any] = {"scheme": "dark"}
PAPER: dict[str, Any] = {
    "width": 1046,
    "height": 718,
    "media": "print",
    "scheme": "dark",
}  # A4 across, margins of 10 mm
SCREENSHOTS = Path("build/browser")

CHECKS = [
    (checks.needs_nothing_from_outside, WIDE),
    (checks.verdict_comes_first, WIDE),
    (checks.verdict_comes_first, NARROW),
    (checks.tables_sort, WIDE),
    (checks.targets_are_in_sight, WIDE),
    (checks.targets_are_in_sight, NARROW),
    (checks.cases_fit_a_phone, NARROW),
    (checks.keyboard_reaches_everything, WIDE),
    (checks.keyboard_reaches_everything, NARROW),
    (checks.keyboard_goes_back, WIDE),
    (checks.keyboard_goes_back, NARROW),
    (checks.keyboard_operates, WIDE),
    (checks.text_is_legible, WIDE),
    (checks.text_is_legible, DARK),
    (checks.nothing_overflows, WIDE),
    (checks.nothing_overflows, NARROW),
    (checks.plots_are_readable, WIDE),
    (checks.prints, PAPER),
]
# what a slip in the template, the style or the script would do to the page: (check, window, text, what it becomes)
_FOCUS = "outline: 3px solid var(--mark); outline-offset"
_LABELS = '<svg><text x="9" y="9">one</text><text x="12" y="9">two</text></svg>'
_TELLS_SORT = "heads.forEach((other) => other.removeAttribute"
BREAKS = [
    (checks.needs_nothing_from_outside, WIDE, "<main>", '<main><img src="http://127.0.0.1:9/logo.png" alt="">'),
    (checks.needs_nothing_from_outside, WIDE, "<main>", '<main><link rel="stylesheet" href="report.css">'),
    (checks.needs_nothing_from_outside, WIDE, '"use strict";', '"use strict"; console.error("no");'),
    (checks.needs_nothing_from_outside, WIDE, "PAGE = 50;", "PAGE = 50; queueMicrotask(() => nothing.at.all);"),
    (checks.verdict_comes_first, WIDE, "<main>", "<main><h2>Kernels</h2>"),
    (checks.verdict_comes_first, NARROW, ".verdict {", ".verdict { margin-top: 800px !important;"),
    (checks.tables_sort, WIDE, "(column[a] - column[b]) * sign;\n      }", "0;\n      }"),
    (checks.tables_sort, WIDE, "(ranks[a] - ranks[b]) * sign", "ranks[a] - ranks[b]"),
    (checks.tables_sort, WIDE, 'if (columns[at].kind !== "status") used.sort', "used.sort"),
    (checks.tables_sort, WIDE, "numeric: true", "numeric: false"),
    (checks.tables_sort, WIDE, _TELLS_SORT, _TELLS_SORT.replace("remove", "has")),
    (checks.targets_are_in_sight, WIDE, "font-size: 14px; overflow-x: auto;", "flex-wrap: wrap; font-size: 28px;"),
    (checks.cases_fit_a_phone, NARROW, ":is(table, tbody, tr, td) { display: block; }", ":is(b) { display: block; }"),
    (checks.keyboard_reaches_everything, WIDE, _FOCUS, _FOCUS.replace("3px solid", "0 solid")),
    (checks.keyboard_reaches_everything, WIDE, 'type: "search",', 'type: "search", tabIndex: 1,'),
    (checks.keyboard_goes_back, NARROW, 'wide.addEventListener("focusin"', 'wide.addEventListener("nothing"'),
    (checks.keyboard_goes_back, WIDE, "html { scroll-padding-top: 3.4rem; }", ""),
    (checks.keyboard_operates, WIDE, 'head.append(element("button", {', 'head.append(element("span", { tabIndex: 0,'),
    (checks.keyboard_operates, WIDE, 'href="#verdict">Skip', 'href="#kernels">Skip'),
    (checks.keyboard_operates, WIDE, 'search.addEventListener("input", filter);', ""),
    (checks.text_is_legible, WIDE, "--faint: #57606a", "--faint: #8c959f"),
    (checks.text_is_legible, DARK, "--faint: #9da7b1", "--faint: #57606a"),
    (checks.text_is_legible, DARK, "svg text { fill: var(--text)", "svg text { fill: #222"),
    (checks.nothing_overflows, NARROW, ".wide { overflow-x: auto; }", ""),
    (checks.nothing_overflows, NARROW, "input[type=search], select { max-width: 80vw; }", ""),
    (checks.plots_are_readable, WIDE, "<svg ", f"{_LABELS}<svg "),
    (checks.prints, PAPER, "  .wide, .data .wide { overflow: visible; max-height: none; }", ""),
    (checks.prints, PAPER, "@media screen and (prefers-color-scheme", "@media (prefers-color-scheme"),
]


@pytest.mark.parametrize(("check", "options"), CHECKS)
def test_report(opened: Opened, check: Check, options: dict[str, Any]) -> None:
    check(opened(**options))


@pytest.mark.parametrize(("check", "options", "old", "new"), BREAKS)
def test_slip_is_noticed(
    opened: Opened, report: Path, tmp_path: Path, check: Check, options: dict[str, Any], old: str, new: str
) -> None:
    text = report.read_text(encoding="utf-8")
    assert old in text
    broken = tmp_path / "broken.html"
    broken.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(AssertionError):
        check(opened(broken, **options))


def test_schemes_differ(opened: Opened) -> None:
    assert checks.background(opened()) > 200
    assert checks.background(opened(scheme="dark")) < 50


def test_it_becomes_pdf(opened: Opened, tmp_path: Path) -> None:
    checks.pdf_has_pages(opened(), tmp_path / "report.pdf")


def test_screenshots_are_left_to_be_looked_at(opened: Opened, tell: Callable[[str], None]) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for name, options in (("light", WIDE), ("dark", {**WIDE, **DARK}), ("narrow", NARROW), ("paper", PAPER)):
        page = opened(**options)
        file = SCREENSHOTS / f"{name}.png"
        page.screenshot(path=file, full_page=True)
        width, height = struct.unpack(">II", file.read_bytes()[16:24])  # of the PNG's first chunk
        assert width == options["width"]
        assert height > options["height"]
    tell(f"screenshots: {SCREENSHOTS}/*.png")

"""The rows on the screen are those of the inputs: all of them, and the right ones when filtered and sorted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser import sample
from tests.browser.checks import TABLES, shown

Opened = Callable[..., Page]
LARGE = (6_000, 40_000)  # kernels, cases
BYTES = 10_000_000  # of such a report


def filter_by(page: Page, table: str, text: str = "", status: str = "") -> None:
    """Type words into the field, and choose a status with the arrow keys."""
    if text:
        page.click(f'[data-table="{table}"] input')
        page.keyboard.insert_text(text)
    if status:
        page.evaluate("(id) => document.querySelector(`[data-table='${id}'] select`).focus()", table)
        current = "(id) => document.querySelector(`[data-table='${id}'] select`).selectedOptions[0].textContent"
        choices = page.evaluate("(id) => document.querySelector(`[data-table='${id}'] select`).length", table)
        for _ in range(choices):
            page.keyboard.press("ArrowDown")
            if f"{status} (" in page.evaluate(current, table):
                return
        raise AssertionError(f"{table} has no status {status}")


def test_every_kernel_is_shown(opened: Opened) -> None:
    table = shown(opened(), "kernels")
    expected = {kernel.name: (str(kernel.vgpr), str(kernel.spills)) for kernel in sample.kernels()}
    rows = zip(table.column("kernel"), table.column("VGPR"), table.column("V spills"), strict=True)
    assert {name: (vgpr, spills) for name, vgpr, spills in rows} == expected
    assert len(table.rows) == len(expected)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", "failed"),
        ("", "known defect"),
        ("page-fault", ""),
        ("PLAIN causal", ""),
        ("b7_nmask", ""),
        ("fp16 plain", "passed"),
        ("worker signal", "error"),
        ("no such words", ""),
    ],
)
def test_cases_are_filtered(opened: Opened, text: str, status: str) -> None:
    page = opened()
    filter_by(page, "cases", text, status)
    expected = [
        case.name
        for case in sample.cases()
        if all(word in sample.row_text(case) for word in text.lower().split()) and status in ("", sample.status(case))
    ]
    table = shown(page, "cases")
    assert Counter(table.column("case")) == Counter(expected)
    message = page.evaluate("() => document.querySelector('[data-table=cases] [role=status]').textContent")
    assert f"of {len(expected) or len(sample.cases())}" in message


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_filtered_by_word_of_row(opened: Opened, table: str) -> None:
    page = opened()
    every = shown(page, table)
    wordy = [at for at, numeric in enumerate(every.numeric) if not numeric]
    word = max(every.rows[len(every.rows) // 2][wordy[1]].split(), key=len).upper()  # of its name
    filter_by(page, table, word)
    expected = [row for row in every.rows if any(word.lower() in row[at].lower() for at in wordy)]
    assert 0 < len(expected) <= len(every.rows)
    assert shown(page, table).rows == expected


def test_broken_filter_is_noticed(opened: Opened, report: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    text = report.read_text(encoding="utf-8")
    assert "masks.every(" in text
    broken.write_text(text.replace("masks.every(", "masks.some("), encoding="utf-8")
    with pytest.raises(AssertionError):
        test_cases_are_filtered(lambda: opened(broken), "PLAIN causal", "")


def test_large_report_is_small_and_filters(opened: Opened, tmp_path: Path, tell: Callable[[str], None]) -> None:
    file = sample.write(tmp_path, *LARGE)
    assert file.stat().st_size < BYTES
    page = opened(file)
    # from the key to the frame after the one that shows the rows
    took = page.evaluate(
        """async (words) => {
      const field = document.querySelector("[data-table=cases] input"), took = [];
      for (const word of words) {
        const start = performance.now();
        field.value = word;
        field.dispatchEvent(new Event("input"));
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        took.push(performance.now() - start);
      }
      return took;
    }""",
        ["q1", "b77_ fp16", "more.q39", "no such", "passed"],
    )
    expected = sum("passed" in sample.row_text(case) for case in sample.cases(LARGE[1], LARGE[0]))
    message = page.evaluate("() => document.querySelector('[data-table=cases] [role=status]').textContent")
    assert f" of {expected}" in message
    kernels, cases = LARGE
    tell(
        f"{kernels:,} kernels and {cases:,} cases: {file.stat().st_size / 1e6:.1f} MB; "
        f"filtered in {max(took):.0f} ms at most ({len(took)} words)"
    )

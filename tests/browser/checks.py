"""Checks of a report's page. Each raises AssertionError if its property does not hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

TABLES = ("kernels", "axes", "cases", "faults", "model", "figures", "parity", "ledger")
# the order of a column of states: the worst first
_STATES = (
    "! error", "✗ failed", "✗ regressed", "✗ not comparable", "✗ missing", "? inconclusive", "▼ improved",
    "≈ known defect", "○ skipped", "✓ unchanged", "✓ passed", "✗ expired", "! expires soon", "✓ believed", "○ no gate",
)  # fmt: skip
# ICU's order of what our names hold beside digits and letters
_MARKS = " _-,;:!?./'\"()[]{}@*\\&#%+<=>|~$"
ENOUGH_CONTRAST = 4.5  # WCAG 2.2, 1.4.3: text of normal size

_READ = """(id) => {
  const place = document.querySelector(`[data-table="${id}"]`);
  const heads = [...place.querySelectorAll("th")];
  const [back, next] = ["‹ Previous", "Next ›"].map((text) =>
    [...place.querySelectorAll(".tools button")].find((button) => button.textContent === text));
  const rows = [];
  for (;;) {
    for (const row of place.querySelectorAll("tbody tr:not(.detail)"))
      rows.push([...row.cells].map((cell) =>
        [...cell.childNodes].filter((node) => node.nodeName !== "BUTTON").map((node) => node.textContent).join("")));
    if (!next || next.disabled) break;
    next.click();
  }
  while (back && !back.disabled) back.click();
  return {
    heads: heads.map((head) => head.textContent),
    numeric: heads.map((head) => head.className === "number"),
    sorts: heads.map((head) => head.getAttribute("aria-sort")),
    rows,
  };
}"""


@dataclass(frozen=True, slots=True)
class Shown:
    """A table as it is on the screen, all of its pages."""

    heads: Sequence[str]
    numeric: Sequence[bool]
    sorts: Sequence[str | None]
    rows: Sequence[Sequence[str]]

    def column(self, name: str) -> list[str]:
        return [row[self.heads.index(name)] for row in self.rows]


def shown(page: Page, table: str) -> Shown:
    return Shown(**page.evaluate(_READ, table))


def needs_nothing_from_outside(page: Page) -> None:
    requests = [request.url for request in page.requests() if not request.url.startswith("data:")]
    assert requests == [page.url]
    assert [each.text for each in page.console_messages() if each.type in ("warning", "error", "assert")] == []
    assert page.page_errors() == []


def verdict_comes_first(page: Page) -> None:
    """Check that the one h1 is the first heading, is on the first screen, and contains the verdict."""
    seen = page.evaluate("""() => {
      const headings = [...document.querySelectorAll("h1, h2, h3")];
      const { top, bottom } = headings[0].getBoundingClientRect();
      const above = headings.filter((one) => one.getBoundingClientRect().top < top).length;
      return { tags: headings.map((one) => one.tagName), text: headings[0].textContent, top, bottom, above,
        height: innerHeight, title: document.title };
    }""")
    assert seen["tags"][0] == "H1"
    assert seen["tags"].count("H1") == 1
    assert seen["above"] == 0
    assert seen["top"] >= 0
    assert seen["bottom"] <= seen["height"]
    verdicts = re.findall(r"passed|failed|inconclusive|not run", seen["text"])
    assert verdicts
    assert seen["title"].startswith(verdicts[0])


def tables_sort(page: Page) -> None:
    """Sort every column of every table by a click up and by another down; aria-sort is on that column alone."""
    for table in TABLES:
        before = shown(page, table)
        for at, head in enumerate(before.heads):
            for direction in ("ascending", "descending"):
                page.click(f'[data-table="{table}"] th:nth-child({at + 1}) button')
                after = shown(page, table)
                assert list(after.sorts) == [direction if other == at else None for other in range(len(before.heads))]
                expected = in_order([row[at] for row in before.rows], direction, numeric=before.numeric[at])
                assert after.column(head) == expected, f"{table}: {head} {direction}"
                assert sorted(map(tuple, after.rows)) == sorted(map(tuple, before.rows)), f"{table}: other rows"


def in_order(cells: Sequence[str], direction: str, *, numeric: bool) -> list[str]:
    """Cells sorted as a reader expects: numbers by value with the unknown last, states the worst first, names
    naturally."""
    down = direction == "descending"
    if numeric:
        filled = sorted((cell for cell in cells if cell), key=lambda cell: float(cell.replace(",", "")), reverse=down)
        return filled + [""] * (len(cells) - len(filled))
    if set(cells) <= set(_STATES):
        return sorted(cells, key=_STATES.index, reverse=down)
    return sorted(cells, key=_natural, reverse=down)


def _natural(text: str) -> list[tuple[int, Any]]:
    parts = re.findall(r"\d+|\D", text)
    return [
        (1, int(part)) if part.isdigit() else (2, part.lower()) if part.isalpha() else (0, _MARKS.index(part))
        for part in parts
    ]


def targets_are_in_sight(page: Page) -> None:
    """Check that each link of the menu and of the checks shows its target below the menu, not under it."""
    page.add_style_tag(content="html { scroll-behavior: auto !important; }")
    for link in page.evaluate("() => [...new Set([...document.links].map((one) => one.hash))].filter(Boolean)"):
        seen = page.evaluate(
            """(hash) => {
          location.hash = hash;
          const box = document.querySelector(hash).getBoundingClientRect();
          const menu = document.querySelector("nav"), sticky = getComputedStyle(menu).position === "sticky";
          return { top: box.top, height: innerHeight, below: sticky ? menu.getBoundingClientRect().bottom : 0 };
        }""",
            link,
        )
        assert seen["below"] <= seen["top"] < seen["height"], f"{link}: {seen}"


_FOCUSABLE = """() => [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
  .filter((one) => !one.disabled && one.getClientRects().length)"""


def keyboard_reaches_everything(page: Page, *, backwards: bool = False) -> None:
    """Tab visits what can be operated in the order of the page, visibly, and under nothing that covers it."""
    page.evaluate(f"() => {{ window.stops = ({_FOCUSABLE})(); }}")
    stops = page.evaluate("() => stops.map((one) => one.textContent.slice(0, 30) || one.tagName)")
    for at, name in reversed([*enumerate(stops)]) if backwards else enumerate(stops):
        page.keyboard.press("Shift+Tab" if backwards else "Tab")
        focus = page.evaluate("""() => {
          const one = document.activeElement, box = one.getClientRects()[0], style = getComputedStyle(one);
          const x = Math.max(box.x + Math.min(box.width, 20) / 2, 0);
          const y = box.height < innerHeight / 2 ? box.y + box.height / 2 : innerHeight / 2;
          return { at: stops.indexOf(one), top: box.top, bottom: box.bottom, height: innerHeight,
            outline: style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth),
            uncovered: one.contains(document.elementFromPoint(x, y)) };
        }""")
        output = f"stop {at}, {name}: {focus}"
        assert focus["at"] == at, output
        assert focus["outline"] >= 2, output
        assert focus["uncovered"], output
        assert focus["top"] < focus["height"], output
        assert focus["bottom"] > 0, output


def keyboard_goes_back(page: Page) -> None:
    """The same with Shift, from the end: what lies further up comes out from under the navigation."""
    keyboard_reaches_everything(page, backwards=True)


def keyboard_operates(page: Page) -> None:
    """Check the keys: Enter and Space sort and open details, the skip link works, typed text filters."""
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Skip to the verdict"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.closest('section').id") == "verdict"
    for key, sort in (("Enter", "ascending"), (" ", "descending")):
        page.evaluate("() => document.querySelector('[data-table=kernels] th > *').focus()")
        page.keyboard.press(key)
        assert shown(page, "kernels").sorts[0] == sort, f"{key!r} sorts"
    button = "document.querySelector('[data-table=faults] td button')"
    for key, opened in (("Enter", 1), ("Enter", 0), (" ", 1), (" ", 0)):
        page.evaluate(f"() => {button}.focus()")
        page.keyboard.press(key)
        state = page.evaluate(
            f"() => [{button}.getAttribute('aria-expanded'), document.querySelectorAll('tr.detail').length]"
        )
        assert state == [str(bool(opened)).lower(), opened], f"{key!r} opens and closes details"
    every = len(shown(page, "faults").rows)
    page.evaluate("() => document.querySelector('[data-table=faults] input').focus()")
    page.keyboard.insert_text("no such word")
    assert (every > 0, len(shown(page, "faults").rows)) == (True, 0)


def text_is_legible(page: Page) -> None:
    """Check the contrast of every text against its background, with details open; dimmed buttons are left out."""
    page.evaluate("""() => {
      document.querySelectorAll("details").forEach((one) => { one.open = true; });
      document.querySelectorAll("[data-table]").forEach((one) => one.querySelector("td button")?.click());
    }""")
    poor = page.evaluate(
        """(enough) => {
      const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
      const known = new Map();
      const rgba = (color) => {
        if (!known.has(color)) {
          pen.clearRect(0, 0, 1, 1); pen.fillStyle = color; pen.fillRect(0, 0, 1, 1);
          const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
          known.set(color, [r, g, b, a / 255]);
        }
        return known.get(color);
      };
      const over = (top, under) => [0, 1, 2].map((at) => top[at] * top[3] + under[at] * (1 - top[3]));
      const light = (color) => {
        const linear = (one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4;
        const [r, g, b] = color.map((one) => linear(one / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const background = (one) => {
        const above = [];
        for (let at = one; at; at = at.parentElement) above.push(rgba(getComputedStyle(at).backgroundColor));
        return above.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
      };
      const poor = new Set();
      const look = (one, color, text) => {
        const back = background(one), [high, low] = [light(over(rgba(color), back)), light(back)].sort((a, b) => b - a);
        const ratio = (high + 0.05) / (low + 0.05);
        if (ratio < enough) poor.add(`${one.tagName}: ${ratio.toFixed(2)}: ${text.trim().slice(0, 30)}`);
      };
      const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      let count = 0;
      while (walk.nextNode()) {
        const text = walk.currentNode.data, one = walk.currentNode.parentElement, style = getComputedStyle(one);
        if (!text.trim() || !one.getClientRects().length || one.closest(":disabled, script, style")) continue;
        count += 1;
        look(one, one.closest("svg") ? style.fill : style.color, text);
      }
      for (const one of document.querySelectorAll("input"))
        look(one, getComputedStyle(one, "::placeholder").color, "placeholder");
      if (count < 100) poor.add(`only ${count} texts found`);
      return [...poor];
    }""",
        ENOUGH_CONTRAST,
    )
    assert poor == []


def background(page: Page) -> float:
    """Brightness of the page, 0 to 255."""
    color: str = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", color)[:3])) / 3


def nothing_overflows(page: Page) -> None:
    """The page never scrolls sideways; what is wider scrolls in a box of its own, and a long choice is cut."""
    page.evaluate("""() => document.querySelectorAll("select")
      .forEach((one) => one.add(new Option("a scale for each page of K and V ".repeat(4))))""")
    widths = page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
    assert widths[0] <= widths[1], f"{widths[0]} px in a window of {widths[1]}"


def cases_fit_a_phone(page: Page) -> None:
    """Tables of prose are read without scrolling sideways, each cell with the head of its column."""
    widths = page.evaluate("""() => [...document.querySelectorAll("#cases .wide, #faults .wide, #ledger .wide")]
      .map((one) => [one.scrollWidth, one.clientWidth])""")
    assert len(widths) == 3
    assert all(content <= width for content, width in widths), widths
    heads = page.evaluate("() => [...document.querySelectorAll('#faults tbody td')].map((one) => one.dataset.head)")
    assert heads[1:4] == ["case", "what happened", "instruction"]


def plots_are_readable(page: Page) -> None:
    """No label of a plot lies over another or leaves the picture."""
    result = page.evaluate("""() => {
      const bad = [], plots = [...document.querySelectorAll("svg")];
      for (const plot of plots) {
        const frame = plot.getBoundingClientRect();
        const labels = [...plot.querySelectorAll("text")].map((one) => [one.textContent, one.getBoundingClientRect()]);
        for (const [text, box] of labels)
          if (box.left < frame.left - 1 || box.right > frame.right + 1 ||
              box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
            bad.push(`outside: ${text}`);
        labels.forEach(([text, a], at) => labels.slice(at + 1).forEach(([other, b]) => {
          const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
          const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
          if (wide > 1 && high > 4) bad.push(`${text} over ${other}`);  // lines of text may touch
        }));
      }
      return { bad, plots: plots.length };
    }""")
    assert result["bad"] == []
    assert result["plots"] > 0


def prints(page: Page) -> None:
    """Check the page with the medium print: no controls, dark on light, nothing cut off or scrolled."""
    printed = page.evaluate("""() => ({
      controls: [...document.querySelectorAll("nav, input, select, .tools button, td button")]
        .filter((one) => one.getClientRects().length).length,
      cut: [...document.querySelectorAll(".wide")].filter((one) => one.scrollWidth > one.clientWidth + 1)
        .map((one) => `${one.getAttribute("aria-label")}: ${one.scrollWidth} px of ${one.clientWidth}`),
      scrolled: [...document.querySelectorAll(".wide")].filter((one) => one.scrollHeight > one.clientHeight + 1).length,
      told: document.querySelector("[data-table=cases] [role=status]").getClientRects().length,
    })""")
    assert printed == {"controls": 0, "cut": [], "scrolled": 0, "told": 1}
    assert background(page) > 200
    nothing_overflows(page)


def pdf_has_pages(page: Page, file: Path) -> None:
    page.pdf(path=file, prefer_css_page_size=True)
    data = file.read_bytes()
    assert data.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", data)) > 1

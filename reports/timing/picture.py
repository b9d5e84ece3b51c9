"""The waves of a workgroup over time as inline SVG: a row for each wave. Letters and hatching repeat the colours."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from html import escape

from ckpm.attention.timing.record import Timed

WIDTH = 980
_LEFT, _ROW, _BAR, _TOP = 96, 22, 16, 8
_LETTER = 14  # the narrowest span that its letter fits in
# What a letter of a timeline stands for, and the class of its rectangle.
MEANINGS = {
    "X": "matrix and vector work at once",
    "M": "matrix",
    "V": "vector",
    "L": "LDS and memory instructions",
    "S": "others",
    "W": "s_waitcnt",
    "B": "barrier",
    "-": "another stall",
    ".": "ended",
}
_CLASSES = {"X": "both", "M": "matrix", "V": "vector", "L": "moves", "S": "others", "W": "waits", "B": "barrier"}
_HATCHED = {"X": "M0,6 L6,0", "W": "M0,0 L6,6", "B": "M3,0 L3,6"}


def picture(timed: Timed, name: str) -> str:
    """An SVG element, escaped; ``name`` makes its patterns unique in the page."""
    width = WIDTH - _LEFT
    bins = max(len(wave.timeline) for wave in timed.waves)
    height = _TOP + _ROW * len(timed.waves) + 40
    parts = [_patterns(name)]
    for row, wave in enumerate(timed.waves):
        y = _TOP + _ROW * row
        per_copy = len(timed.waves) // timed.resident
        copy = f"{row // per_copy + 1}." if timed.resident > 1 else ""
        parts.append(_text(_LEFT - 8, y + 13, f"wave {copy}{row % per_copy} S{wave.simd}", "end"))
        for letter, first, last in spans(wave.timeline):
            x, wide = _LEFT + width * first / bins, width * (last - first) / bins
            begin, end = (timed.timeline_from + at * timed.timeline_bin for at in (first, last))
            parts.append(_span(name, letter, x, y, wide, f"{letter} {begin}-{end}"))
    for part in range(5):
        x = _LEFT + width * part / 4
        cycle = timed.timeline_from + timed.timeline_bin * bins * part // 4
        parts.append(_text(x, height - 22, f"{cycle:,}", "start" if part == 0 else "end" if part == 4 else "middle"))
    parts.append(_text(_LEFT + width / 2, height - 4, "cycles", "middle"))
    label = escape(f"{timed.problem}: what each wave does in cycles of the timing model")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" role="img" class="timeline" '
    return f'{head}aria-label="{label}" viewBox="0 0 {WIDTH} {height}">{"".join(parts)}</svg>'


def legend() -> str:
    """The letters in words."""
    return ", ".join(f"{letter} {meaning}" for letter, meaning in MEANINGS.items() if letter != ".")


def spans(timeline: str) -> Iterator[tuple[str, int, int]]:
    """Runs of one letter: first index, and the index after the last."""
    at = 0
    for letter, run in itertools.groupby(timeline):
        length = len(list(run))
        yield letter, at, at + length
        at += length


def _patterns(name: str) -> str:
    made = "".join(
        f'<pattern id="{name}-{_CLASSES[letter]}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<rect class="{_CLASSES[letter]}" width="6" height="6"/><path class="hatch" d="{path}"/></pattern>'
        for letter, path in _HATCHED.items()
    )
    return f"<defs>{made}</defs>"


def _span(name: str, letter: str, x: float, y: int, wide: float, tooltip: str) -> str:
    kind = _CLASSES.get(letter)
    if kind is None:
        return ""
    place = f'x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_BAR}"'
    fill = f'fill="url(#{name}-{kind})"' if letter in _HATCHED else f'class="{kind}"'
    text = _text(x + wide / 2, y + 12, letter, "middle") if wide >= _LETTER else ""
    return f"<rect {fill} {place}><title>{escape(tooltip)}</title></rect>{text}"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'

"""Plots as inline SVG: candidate over baseline by problem, roofline, history, the waves of a workgroup over time.

Shapes stand for verdicts, letters and hatching repeat the colours of waves.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from ckpm.matrix.problems.performance import compulsory_bytes
from ckpm.reports.gates.baseline import Acceptance
from ckpm.reports.gates.emulated import MODEL_METRICS
from ckpm.reports.gates.versions import version_of
from ckpm.reports.page.inputs import LibraryResults, ReportInputs, measured_seconds
from ckpm.reports.problems import flops, known_problems
from ckpm.reports.verdicts import DOUBTFUL, PASSING, VERDICTS, Gate, VerdictRow
from ckpm.timing.model import Machine, estimate, machines
from ckpm.timing.record import Timed

_SHOWN = 40  # problems of one plot; the table holds all
_WIDTH, _NAMES, _ROW = 980, 420, 20
_LEFT, _RIGHT = 180, _WIDTH - 120  # of a history's lines
_SMALLEST = 1e-30
_TONES = {"measured": ""} | dict.fromkeys(PASSING, "good") | dict.fromkeys(DOUBTFUL, "doubt")
_WAVES_LEFT, _WAVE_ROW, _BAR, _TOP = 96, 22, 16, 8
_LETTER = 14  # the narrowest span that its letter fits in
# Meanings of a timeline's letters, and the classes of their rectangles.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    title: str
    note: str
    svg: str  # escaped


def plots(inputs: ReportInputs) -> list[Plot]:
    """Every plot that the figures allow; none if no gate compared times or cycles and no baseline was accepted."""
    drawn: list[Plot] = []
    for file, gate in inputs.gates.items():
        by_metric: dict[tuple[str, str], list[VerdictRow]] = {}
        for row in gate.rows:
            timed = (row.gate == "gpu" and row.unit) or row.metric in MODEL_METRICS
            if timed and row.baseline and row.candidate and _fits(row.baseline, row.candidate):
                by_metric.setdefault((row.gate, row.metric), []).append(row)
        where = f" on {gate.provenance['gpu']}" if "gpu" in gate.provenance else ""
        for (kind, metric), rows in by_metric.items():
            if any(row.candidate != row.baseline for row in rows):  # a column of ones needs no picture
                path = file.relative_to(inputs.folder).with_suffix("")
                drawn.append(_ratios(f"{metric} of the {kind} gate{where} ({path})", rows))
        if gate.samples:
            drawn.append(_samples(f"Samples of the gpu gate{where} ({file.relative_to(inputs.folder)})", gate))
    for library in inputs.libraries:
        for arch in library.manifest.archs:
            drawn += _roofline(inputs, library, arch)
        drawn += _waves(library.label, library.timings.problems if library.timings else ())
    for file, timings in inputs.tables.items():  # a kernel's loop is the same whatever the length
        first = {problem.kernel: problem for problem in reversed(timings.problems)}
        drawn += _waves(file.name, tuple(first.values())[::-1])
    return [*drawn, *_history(inputs)]


def _waves(source: str, problems: Sequence[Timed]) -> list[Plot]:
    """Pictures of each modelled workgroup's waves."""
    legend = ", ".join(f"{letter} {meaning}" for letter, meaning in MEANINGS.items() if letter != ".")
    return [
        Plot(
            title=f"Waves of {problem.problem} on the timing model, {version_of(problem)} ({source})",
            note=f"Workgroup {problem.workgroup} of {problem.kernel}, {problem.timeline_bin} cycles a letter; "
            f"{legend}.",
            svg=picture(problem, f"{re.sub('[^A-Za-z0-9]', '-', source)}-{at}"),
        )
        for at, problem in enumerate(problems)
    ]


def _ratios(what: str, rows: Sequence[VerdictRow]) -> Plot:
    """Candidate over baseline on a logarithmic axis, the largest changes first."""
    ratios = [((row.candidate or 0) / (row.baseline or 1), row) for row in rows]
    ratios.sort(key=lambda pair: -abs(math.log(pair[0])))
    shown = ratios[:_SHOWN]
    reach = max(1.1, *(max(ratio, 1 / ratio) for ratio, _ in shown)) * 1.02
    middle, half = (_NAMES + _WIDTH - 90) / 2, (_WIDTH - 90 - _NAMES) / 2

    def x(ratio: float) -> float:
        return middle + half * math.log(ratio) / math.log(reach)

    height = _ROW * len(shown) + 34
    parts = [f'<line class="axis" x1="{middle}" x2="{middle}" y1="4" y2="{height - 26}"/>']
    parts += [_text(x(value), height - 8, f"{value:.3g}", "middle", faint=True) for value in (1 / reach, 1.0, reach)]
    for at, (ratio, row) in enumerate(shown):
        y = 16 + _ROW * at
        parts.append(f'<line class="line" x1="{_NAMES}" x2="{_WIDTH - 90}" y1="{y}" y2="{y}"/>')
        parts.append(_text(_NAMES - 8, y + 4, _short(row.subject), "end"))
        parts.append(_shape(x(ratio), y, row.verdict, str(row)))
        parts.append(_text(_WIDTH, y + 4, f"{ratio:.3f}", "end"))
    rest = f"; the {len(ratios) - _SHOWN} with smaller changes are in the table" if len(ratios) > _SHOWN else ""
    return Plot(
        title=f"{what}: candidate over baseline by problem",
        note=f"▲ regressed, ▼ improved, ● unchanged, ◆ anything else; {rows[0].unit}{rest}.",
        svg=_svg(_WIDTH, height, parts, f"{what}: candidate over baseline, largest changes first"),
    )


def _samples(title: str, gate: Gate) -> Plot:
    """All times of a row over the mean of its baseline, the worst verdicts first."""
    rows = {(row.subject, row.metric): row for row in gate.rows if row.baseline}
    pairs = [(rows.get((samples.subject, samples.metric)), samples) for samples in gate.samples]
    timed = [(row, row.baseline or 1, samples) for row, samples in pairs if row]
    timed.sort(key=lambda each: VERDICTS.index(each[0].verdict))
    middle, half, parts = (_NAMES + _WIDTH - 90) / 2, (_WIDTH - 90 - _NAMES) / 2, list[str]()
    for y, (row, base, samples) in zip(itertools.count(16, _ROW), timed[:_SHOWN], strict=False):
        tone = _TONES.get(row.verdict, "bad")
        marks = [(time, -4, "") for time in (*samples.baseline, *samples.again)]
        marks += [(time, 4, tone) for time in samples.candidate]
        reach = max(abs(time / base - 1) for time, _, _ in marks) or 1
        parts.append(_text(_NAMES - 8, y + 4, _short(f"{row.subject}, {row.metric}"), "end"))
        parts.append(f'<line class="axis" x1="{middle}" x2="{middle}" y1="{y - 8}" y2="{y + 8}"/>')
        for time, above, tone in marks:
            x = middle + half * (time / base - 1) / reach
            tooltip = f"<title>{time:.2f} us</title>"
            parts.append(f'<circle class="point {tone}" cx="{x:.1f}" cy="{y + above}" r="2.5">{tooltip}</circle>')
        parts.append(_text(_WIDTH, y + 4, f"±{reach:.1%}", "end", faint=True))
    rest = f" {len(timed) - _SHOWN} more are in the file." if len(timed) > _SHOWN else ""
    note = f"Each line has a scale of its own. Upper marks are the baseline's, lower marks the candidate's.{rest}"
    return Plot(title=title, note=note, svg=_svg(_WIDTH, _ROW * len(timed[:_SHOWN]) + 16, parts, title))


def _roofline(inputs: ReportInputs, library: LibraryResults, arch: str) -> list[Plot]:
    """TFLOP/s over arithmetic intensity: the emulated gate's model of a full GPU, and measured times of a GPU."""
    machine = machines().get(arch)
    if machine is None:
        return []
    points = [*_modelled_points(library, arch, machine), *_measured_points(inputs, library, arch)]
    points = [point for point in points if _fits(*point[:2])]
    if not points:
        return []
    peaks = {dtype: machine.peak_tflops(dtype) * 1e12 for dtype in ("bf16 and fp16", "fp8")}
    bandwidth, top = machine.hbm_gb_s * 1e9, max(peaks.values())
    low_x, high_x = min(p[0] for p in points) / 4, max(2 * top / bandwidth, *(p[0] for p in points)) * 4
    low_y, high_y = min(p[1] for p in points) / 4, max(top, *(p[1] for p in points)) * 2
    width, height, left, bottom = 820, 430, 90, 52

    def x(value: float) -> float:
        return left + (width - left - 10) * math.log(value / low_x) / math.log(high_x / low_x)

    def y(value: float) -> float:
        return (height - bottom) * (1 - math.log(value / low_y) / math.log(high_y / low_y)) + 10

    parts = []
    for value in _decades(low_x, high_x):
        parts.append(
            f'<line class="line" x1="{x(value):.1f}" x2="{x(value):.1f}" y1="10" y2="{height - bottom + 10}"/>'
        )
        parts.append(_text(x(value), height - bottom + 26, f"{value:,g}", "middle", faint=True))
    for value in _decades(low_y, high_y):
        parts.append(f'<line class="line" x1="{left}" x2="{width - 10}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        parts.append(_text(left - 6, y(value) + 4, f"{value / 1e12:,g}", "end", faint=True))
    parts.append(_text((left + width) / 2, height - 6, "FLOP for each byte that memory must move", "middle"))
    parts.append(_text(left + 6, 24, "TFLOP/s", "start"))
    for (dtype, roof), above in zip(peaks.items(), (False, True), strict=True):  # the lower roof's label is below it
        ridge = roof / bandwidth
        start = max(low_x, low_y / bandwidth)
        corners = [(start, start * bandwidth), (ridge, roof), (high_x, roof)]
        parts.append(f'<polyline class="roof" points="{" ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in corners)}"/>')
        parts.append(_text(width - 14, y(roof) + (-5 if above else 15), f"{dtype}: {roof / 1e12:,.0f} TFLOP/s", "end"))
    slope = max(low_x, low_y / bandwidth) * 1.1  # just inside, below the line
    parts.append(_text(x(slope) + 12, y(slope * bandwidth) + 16, f"memory: {machine.hbm_gb_s:,.0f} GB/s", "start"))
    parts += [_shape(x(a), y(b), verdict, title) for a, b, verdict, title in points]
    return [
        Plot(
            title=f"Roofline of {library.upstream} on {arch} ({machine.product})",
            note="● the emulated gate's model of a full GPU, which leaves out much (see Model); "
            "■ times that were measured. Point at a mark for its problem.",
            svg=_svg(width, height, parts, f"{len(points)} problems below the roofs of {machine.product}"),
        )
    ]


def _modelled_points(library: LibraryResults, arch: str, machine: Machine) -> Iterable[tuple[float, float, str, str]]:
    """Intensity, FLOP/s, the mark's shape, and its tooltip."""
    if library.measured and library.measured.provenance["arch"] == arch:
        for problem in library.measured.problems:
            guess = estimate(problem, machine)
            title = (
                f"{problem.problem}: modelled, {guess.steady_tflops:.0f} TFLOP/s at peak clock, "
                f"{guess.of_roof:.0%} of the roof; {problem.kernel}"
            )
            yield guess.intensity, guess.steady_tflops * 1e12, "unchanged", title


def _measured_points(
    inputs: ReportInputs, library: LibraryResults, arch: str
) -> Iterable[tuple[float, float, str, str]]:
    """Intensity, FLOP/s, shape and tooltip of each problem that a GPU timed."""
    for name, seconds in measured_seconds(inputs, library, arch).items():
        problem = known_problems().get(name)
        if problem and (operations := flops(problem)):
            title = f"{name}: {operations / seconds / 1e12:.1f} TFLOP/s in {seconds * 1e6:.1f} us"
            yield operations / compulsory_bytes(problem), operations / seconds, "measured", title


def _history(inputs: ReportInputs) -> list[Plot]:
    """Plot the sum of each metric that changed, over the accepted baselines, for each library and gate."""
    drawn = []
    for name, lines in inputs.history.items():
        for gate in dict.fromkeys(line.gate for line in lines):
            accepted = [line for line in lines if line.gate == gate]
            all_metrics = dict.fromkeys(metric for line in accepted for metric in line.sums)
            metrics = [metric for metric in all_metrics if len({line.sums.get(metric) for line in accepted}) > 1]
            if not metrics:  # accepted once, or all figures are what they always were
                continue
            parts = [part for at, metric in enumerate(metrics) for part in _series(metric, accepted, 52 * at + 44)]
            height = 52 * len(metrics) + 30
            parts.append(_text(_LEFT, height - 6, accepted[0].date[:10], "start", faint=True))
            parts.append(_text(_RIGHT, height - 6, accepted[-1].date[:10], "end", faint=True))
            note = (
                f"Sums over the kernels or problems of {len(accepted)} accepted baselines, each on a scale of its own; "
                "upright lines mark steps. Never changed: "
                f"{', '.join(m for m in all_metrics if m not in metrics) or 'none'}."
            )
            label = f"{len(accepted)} accepted baselines of {name}"
            title = f"History of {name}, {gate} gate"
            drawn.append(Plot(title=title, note=note, svg=_svg(_WIDTH, height, parts, label)))
    return drawn


def _series(metric: str, lines: Sequence[Acceptance], base: float) -> list[str]:
    """One metric's line, its points and steps; ``base`` is the y of its lowest figure."""
    apart = (_RIGHT - _LEFT) / (len(lines) - 1)
    accepted = [(at, line.sums[metric], line) for at, line in enumerate(lines) if metric in line.sums]
    values = [value for _, value, _ in accepted]
    low, high = min(values), max(values)
    points = [
        (_LEFT + apart * at, base - (24 * (value - low) / (high - low) if high > low else 0))
        for at, value, _ in accepted
    ]
    parts = [f'<line class="line" x1="{_LEFT}" x2="{_RIGHT}" y1="{base + 6}" y2="{base + 6}"/>']
    parts.append(_text(_LEFT - 10, base, metric, "end"))
    for (x, _), before, after in zip(points[1:], values, values[1:], strict=False):
        if before != after:
            parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{base - 34}" y2="{base + 6}"/>')
            parts.append(_text(x - 4, base - 28, f"{after - before:+,.10g}", "end", faint=True))
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts.append(f'<polyline class="series" points="{corners}"/>')
    for (x, y), (_, value, line) in zip(points, accepted, strict=True):
        title = escape(f"{line.date}: {value:g}: {line.reason}")
        parts.append(f'<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{title}</title></circle>')
    return [*parts, _text(_RIGHT + 10, base, f"{values[-1]:,.10g}", "start")]


def _fits(*figures: float) -> bool:
    """True if a logarithmic axis has room for the figures. Only those of a damaged record don't fit."""
    return all(_SMALLEST < figure < 1 / _SMALLEST for figure in figures)


def _decades(low: float, high: float) -> Iterable[float]:
    return (10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1))


_SHAPES = {"regressed": "M-6,5 L6,5 L0,-6 Z", "improved": "M-6,-5 L6,-5 L0,6 Z", "measured": "M-5,-5 H5 V5 H-5 Z"}


def _shape(x: float, y: float, verdict: str, title: str) -> str:
    """A mark in the verdict's shape, with the tooltip ``title``."""
    tone = _TONES.get(verdict, "bad")
    tooltip = f"<title>{escape(title)}</title>"
    if verdict == "unchanged":
        return f'<circle class="point {tone}" cx="{x:.1f}" cy="{y:.1f}" r="5">{tooltip}</circle>'
    path = _SHAPES.get(verdict, "M0,-6 L6,0 L0,6 L-6,0 Z")
    return f'<path class="point {tone}" transform="translate({x:.1f},{y:.1f})" d="{path}">{tooltip}</path>'


def _text(x: float, y: float, text: str, anchor: str, *, faint: bool = False) -> str:
    style = ' class="faint"' if faint else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escape(text)}</text>'


def _short(text: str) -> str:
    return text if len(text) <= 58 else f"{text[:28]}…{text[-29:]}"


def _svg(width: int, height: int, parts: Iterable[str], label: str, more: str = "") -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img" {more}'
    return f'{head}aria-label="{escape(label)}" viewBox="0 0 {width} {height}">{"".join(parts)}</svg>'


def picture(timed: Timed, name: str) -> str:
    """An SVG element, escaped; ``name`` makes its patterns unique in the page."""
    width = _WIDTH - _WAVES_LEFT
    bins = max(len(wave.timeline) for wave in timed.waves)
    height = _TOP + _WAVE_ROW * len(timed.waves) + 40
    parts = [_patterns(name)]
    for row, wave in enumerate(timed.waves):
        y = _TOP + _WAVE_ROW * row
        per_copy = max(1, len(timed.waves) // timed.resident)
        copy = f"{row // per_copy + 1}." if timed.resident > 1 else ""
        parts.append(_text(_WAVES_LEFT - 8, y + 13, f"wave {copy}{row % per_copy} S{wave.simd}", "end"))
        for letter, first, last in spans(wave.timeline):
            x, wide = _WAVES_LEFT + width * first / bins, width * (last - first) / bins
            begin, end = (timed.timeline_from + at * timed.timeline_bin for at in (first, last))
            parts.append(_span(name, letter, x, y, wide, f"{letter} {begin}-{end}"))
    for part in range(5):
        x = _WAVES_LEFT + width * part / 4
        cycle = timed.timeline_from + timed.timeline_bin * bins * part // 4
        parts.append(_text(x, height - 22, f"{cycle:,}", "start" if part == 0 else "end" if part == 4 else "middle"))
    parts.append(_text(_WAVES_LEFT + width / 2, height - 4, "cycles", "middle"))
    label = f"{timed.problem}: what each wave does in cycles of the timing model"
    return _svg(_WIDTH, height, parts, label, 'class="timeline" ')


def spans(timeline: str) -> Iterator[tuple[str, int, int]]:
    """Runs of one letter: first index, and the index after the last."""
    at = 0
    for letter, run in itertools.groupby(timeline):
        length = len(list(run))
        yield letter, at, at + length
        at += length


def _patterns(name: str) -> str:
    patterns = "".join(
        f'<pattern id="{name}-{_CLASSES[letter]}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<rect class="{_CLASSES[letter]}" width="6" height="6"/><path class="hatch" d="{path}"/></pattern>'
        for letter, path in _HATCHED.items()
    )
    return f"<defs>{patterns}</defs>"


def _span(name: str, letter: str, x: float, y: int, wide: float, tooltip: str) -> str:
    kind = _CLASSES.get(letter)
    if kind is None:
        return ""
    geometry = f'x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_BAR}"'
    fill = f'fill="url(#{name}-{kind})"' if letter in _HATCHED else f'class="{kind}"'
    text = _text(x + wide / 2, y + 12, letter, "middle") if wide >= _LETTER else ""
    return f"<rect {fill} {geometry}><title>{escape(tooltip)}</title></rect>{text}"

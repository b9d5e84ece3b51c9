"""Launches estimated from their longest workgroup, and V2 and V3 of batch prefill beside published tables.

All workgroups are scheduled over dies and compute units (grid.py). A workgroup's cycles are proportional to the keys
that it sees. Memory bandwidth is left out. TFLOP/s are expected at the clock of published launches (clock.py).

A row is a problem of which a document has TFLOP/s of both versions (reports/gates/references.yaml). The modelled ratio
is that of the two launches' cycles, both of one run. No verdict of the report follows from it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ckpm.matrix.keys import V3_PIPELINE
from ckpm.matrix.problems.case import TIERS, SuiteCase
from ckpm.matrix.problems.performance import performance_problems
from ckpm.matrix.problems.problem import mask_corner
from ckpm.reports.gates.references import Reference, read_references
from ckpm.reports.problems import flops, known_problems
from ckpm.reports.verdicts import V3_AGAINST_V2, WARM, Gate
from ckpm.timing import grid
from ckpm.timing.clock import BOARDS, LAUNCH_SECONDS, clock_of
from ckpm.timing.model import machines
from ckpm.timing.record import SIMDS, Timed, Timings

BOTH = ("V2", "V3")
NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A launch on V2 or on V3. A model has its cycles, too, and the share of the matrix units in the hot loop.

    ``tflops`` of a model are those expected at the clock.
    """

    tflops: float
    cycles: float = 0.0
    loop: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A launch on V2 and on V3."""

    v2: Version
    v3: Version

    @property
    def ratio(self) -> float:
        """Speed of V3 over speed of V2: of a model at equal clock, else by TFLOP/s."""
        return self.v2.cycles / self.v3.cycles if self.v3.cycles else self.v3.tflops / self.v2.tflops


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """A row of a document's table. ``assumed`` names the fields of the problem that the document leaves open."""

    about: str
    label: str
    problem: str
    assumed: str
    published: Pair
    modelled: Pair | None
    measured: Pair | None

    def error(self, pair: Pair | None) -> float | None:
        """Relative difference of a ratio from the published one, in percent; None without a pair."""
        return None if pair is None else 100 * (pair.ratio / self.published.ratio - 1)

    def error_text(self, pair: Pair | None) -> str:
        error = self.error(pair)
        return NOT_MEASURED if error is None else f"{error:+.1f} %"


def has_versions(timings: Timings) -> bool:
    """True if a problem was modelled on V2 and on V3."""
    return any(
        _modelled_pair(timings, problem) for problem in dict.fromkeys(timed.problem for timed in timings.problems)
    )


def published_rows(timings: Iterable[Timings], gates: Iterable[Gate]) -> list[PublishedRow]:
    """Every row of the documents' tables. Of several files or gates that have a problem the first one counts."""
    files, compared = list(timings), [gate for gate in gates if V3_AGAINST_V2 in gate.provenance]
    problems, rows = performance_problems(TIERS[-1]), []
    for pair in _reference_pairs():
        first = pair["V2"]
        assert first.shape is not None
        problem = next(problem for problem in problems if first.shape.is_of(problem))
        rows.append(
            PublishedRow(
                about=first.about,
                label=first.label,
                problem=problem.name,
                assumed=first.assumed,
                published=Pair(v2=Version(tflops=first.value), v3=Version(tflops=pair["V3"].value)),
                modelled=next(filter(None, (_modelled_pair(file, problem.name) for file in files)), None),
                measured=next(filter(None, (_measured_pair(gate, problem) for gate in compared)), None),
            )
        )
    return rows


def remarks(gate: Gate) -> list[str]:
    """A line for each row of the documents' tables that a GPU timed V3 against V2 on."""
    return [
        f"{row.problem}: V3/V2 {row.measured.ratio:.2f}, published {row.published.ratio:.2f}: "
        f"{row.error_text(row.measured)}"
        for row in published_rows((), [gate])
        if row.measured
    ]


def _reference_pairs() -> list[Mapping[str, Reference]]:
    """Pairs of figures, V2 and V3, of one label that describes a problem."""
    pairs: dict[tuple[str, str], dict[str, Reference]] = {}
    for reference in read_references():
        if reference.metric == "tflops" and reference.shape:
            pairs.setdefault((reference.name, reference.label), {})[reference.variant] = reference
    return [pair for pair in pairs.values() if set(pair) == set(BOTH)]


def _modelled_pair(timings: Timings, problem: str) -> Pair | None:
    arch, versions = timings.provenance["arch"], dict[str, Version]()
    for timed in timings.problems:
        if timed.problem == problem and (estimated := launch(timed, arch, timings.problems)):
            version = Version(tflops=estimated.expected, cycles=estimated.cycles, loop=timed.loop_share)
            versions.setdefault(version_of(timed), version)
    return Pair(v2=versions["V2"], v3=versions["V3"]) if set(versions) == set(BOTH) else None


def version_of(timed: Timed) -> str:
    """V3 or V2, by the kernel's name."""
    return "V3" if f"_{V3_PIPELINE}_" in timed.kernel else "V2"


def _measured_pair(gate: Gate, problem: SuiteCase) -> Pair | None:
    """Times with a warm cache, V2 as the baseline. The emulator's times don't count."""
    for row in gate.rows:
        if gate.provenance.get("gpu", "").startswith("emulated") or (row.subject, row.metric) != (problem.name, WARM):
            continue
        if row.unit == "us" and row.baseline and row.candidate:
            v2, v3 = (Version(tflops=flops(problem) / (time / 1e6) / 1e12) for time in (row.baseline, row.candidate))
            return Pair(v2=v2, v3=v3)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionLaunch:
    """An estimated launch. ``expected`` are TFLOP/s at the clock ``ghz``.

    ``least`` and ``most`` are cycles with other start offsets. ``published`` are TFLOP/s of the same problem, by
    the document's variant.
    """

    cycles: float
    least: float
    most: float
    ghz: float
    expected: float
    published: Mapping[str, float]

    @property
    def expected_range(self) -> tuple[float, float]:
        """Expected TFLOP/s with the worst offsets on a slow board, and with the best on a fast one."""
        return self.expected * self.cycles / self.most * (1 - BOARDS), self.expected * self.cycles / self.least * (
            1 + BOARDS
        )


def launch(timed: Timed, arch: str, beside: Iterable[Timed] = ()) -> VersionLaunch | None:
    """Estimate a launch. A long problem takes its copies' speeds from a problem ``beside`` it.

    None if problem or arch is unknown, no score is seen, the workgroup has no MFMA, or the launch is too small for
    ``resident`` copies on each compute unit.
    """
    problem, machine = known_problems().get(timed.problem), machines().get(arch)
    if problem is None or machine is None or not (lengths := _lengths(problem, timed.tile_rows)):
        return None
    whole = sum(wave.whole.matrix for wave in timed.waves) / timed.resident / SIMDS
    if not whole or timed.resident > -(-timed.launched // machine.compute_units):
        return None
    keys = _in_order(lengths, timed)
    longest = max(keys)
    cycles, least, most = (
        grid.cycles([alone * count / longest for count in keys], machine.compute_units, speeds)
        for alone, speeds in _speeds(timed, beside)
    )
    share = whole * sum(keys) / longest / (cycles * machine.compute_units)
    bits = 8 if problem.dtype.startswith("fp8") else 16
    ghz = clock_of(machine.product, bits).ghz(share)
    figures = {
        reference.variant: reference.value
        for reference in read_references()
        if reference.metric == "tflops" and reference.shape and reference.shape.is_of(problem)
    }
    seconds = cycles / ghz / 1e9 + LAUNCH_SECONDS
    return VersionLaunch(
        cycles=cycles, least=least, most=most, ghz=ghz, expected=flops(problem) / seconds / 1e12, published=figures
    )  # fmt: skip


def _speeds(timed: Timed, beside: Iterable[Timed]) -> Iterator[tuple[float, tuple[float, ...]]]:
    """Cycles of a copy that is alone and speeds of several, at the median, best and worst start offsets.

    ``cycles`` of a row are of copies that start together, which need not be the median. So a long problem's cycles are
    compared with a shorter one's at this start. Without such replays, each copy has the cycles that it takes among
    ``resident`` ones.
    """
    alike = [
        other
        for other in (timed, *beside)
        if other.copies and (other.kernel, other.resident) == (timed.kernel, timed.resident)
    ]
    if not alike:
        yield from ((timed.cycles, (1.0,) * timed.resident) for _ in range(3))
        return
    other = max(alike, key=lambda other: (other is timed, other.cycles))
    alone, *_ = other.copies
    for name in ("cycles", "least", "most"):
        speeds = tuple(alone.cycles / getattr(copy, name) for copy in other.copies)
        yield timed.cycles * alone.cycles / other.cycles, speeds


def show_range(whole: VersionLaunch) -> str:
    """The range of the expected TFLOP/s as text."""
    low, high = whole.expected_range
    return f"{low:.0f} to {high:.0f}"


def show_published(whole: VersionLaunch) -> str:
    """The published figures as text."""
    return ", ".join(f"{variant} {value:g}" for variant, value in whole.published.items())


def _in_order(sequences: list[list[int]], timed: Timed) -> list[int]:
    """Keys of each workgroup of the launch, by its number.

    Each sequence has as many workgroups as the longest one, some without keys. V3's heads run fastest and its tiles
    slowest, the last one first; V2's are the other way around.
    """
    tiles = max(map(len, sequences))
    heads = timed.launched // (tiles * len(sequences))
    if version_of(timed) == "V2":
        padded = [lengths + [0] * (tiles - len(lengths)) for lengths in sequences]
        return [keys for lengths in padded for _ in range(heads) for keys in lengths]
    last_first = itertools.zip_longest(*(reversed(lengths) for lengths in sequences), fillvalue=0)
    return [keys for tiles in last_first for keys in tiles for _ in range(heads)]


def _lengths(problem: SuiteCase, rows: int) -> list[list[int]]:
    """Keys that each tile of queries of one head goes through, by sequence; none if no score is seen."""
    sequences = []
    for q, k in zip(problem.seqlens_q, problem.seqlens_k, strict=True):
        y, x = mask_corner(problem, q, k) if problem.mask != "no" else (q + k, q + k)
        lengths = []
        for first in range(0, q, rows):
            last = min(first + rows, q) - 1
            lengths.append(max(0, min(k, last + x) - max(0, first - y + 1)))
        sequences.append(lengths)
    return sequences if any(map(any, sequences)) else []

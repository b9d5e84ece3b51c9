"""Modelled times of workgroups as plain data: written by ``ckpm timing model``, read by reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.attention.launch.counters import of_library
from ckpm.base.files import write_atomically
from ckpm.base.records import Value, as_text

_FORMAT = 2
SIMDS = 4  # of a compute unit; wave w of a workgroup runs on SIMD w % 4
# Why a wave did not issue (emulator/core/timing/replay.h, enum Cause).
CAUSES: Mapping[str, str] = {
    "matrix_busy": "the matrix unit has another MFMA",
    "matrix_result": "an MFMA's result is not there yet",
    "vector_busy": "the wave's own instruction has the vector port",
    "packed": "a packed instruction and MFMAs keep apart",
    "issue_conflict": "another wave has the port",
    "lds_queue": "the queue of LDS is full",
    "memory_queue": "as many loads are under way as can be",
    "wait_memory": "s_waitcnt vmcnt",
    "wait_lds": "s_waitcnt lgkmcnt",
    "barrier": "s_barrier",
}
# What a wave does between one s_barrier or s_setprio and the next (emulator/core/timing/phases.h, enum Phase).
PHASES: Mapping[str, str] = {
    "prologue": "before the first part with an MFMA",
    "matrix": "MFMAs, no transcendental instruction",
    "softmax": "transcendental instructions, no MFMA",
    "mixed": "both",
    "other": "neither",
    "epilogue": "after the last MFMA",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Cycles of a wave from ``begin`` to ``end``: the sum of ``issued`` and of the ``stalls``, by CAUSES.

    ``matrix`` are the cycles in which its MFMAs keep the SIMD's matrix unit, ``vector`` the cycles in which other
    vector instructions keep the vector port. Both go on beside the wave's next instructions.
    """

    begin: int
    end: int
    instructions: int
    issued: int
    matrix: int
    vector: int
    stalls: Mapping[str, int]

    @property
    def cycles(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """All ``parts`` of a wave that are of one phase, counted as in a span. Phases add up to the wave.

    A part includes the wait at the s_barrier that ends it.
    """

    parts: int
    instructions: int
    issued: int
    matrix: int
    vector: int
    stalls: Mapping[str, int]

    @property
    def cycles(self) -> int:
        return self.issued + sum(self.stalls.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveTime:
    """A wave: all of it, and its ``passes`` through its hot loop from the first taken branch to the last.

    ``hot``: addresses in the code object of that loop's first instruction and of its branch.

    ``timeline`` has a letter for each span of the picture: X matrix and vector work together, M matrix, V vector, L LDS
    and memory instructions, S others, W s_waitcnt, B barrier, - another stall, . ended.
    """

    simd: int
    whole: Span
    hot: tuple[int, int] | None
    passes: int
    loop: Span
    phases: Mapping[str, Phase]  # by PHASES, those that the wave has
    timeline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseShare:
    """A phase of all waves. ``cycles`` is its share in the cycles of the waves.

    The other shares are in the phase's own cycles. ``matrix`` is the share in which the matrix unit works for these
    waves, which goes on beside their next instructions.
    """

    phase: str
    parts: int  # of all waves
    cycles: float
    issued: float
    matrix: float
    stalls: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One workgroup, modelled with ``resident`` copies of it on one compute unit.

    ``sensitivity`` holds, by each doubtful figure of the machine, the cycles with half and with twice of it.
    """

    problem: str
    kernel: str
    dtype: str
    workgroup: int  # linear index
    launched: int  # workgroups of the launch
    tile_rows: int  # queries of a workgroup: kM0
    resident: int
    cycles: int
    waves: tuple[WaveTime, ...]
    timeline_from: int
    timeline_bin: int
    sensitivity: Mapping[str, tuple[int, int]]

    @property
    def matrix_share(self) -> float:
        """Share of the cycles in which the matrix units of the SIMDs with waves work."""
        simds = len({wave.simd for wave in self.waves})
        return sum(wave.whole.matrix for wave in self.waves) / (self.cycles * simds)

    @property
    def loop_share(self) -> float:
        """The same share in the hot loop: the MFMAs' part of each wave's passes, summed over the waves of a SIMD."""
        simds = len({wave.simd for wave in self.waves})
        return sum(wave.loop.matrix / wave.loop.cycles for wave in self.waves if wave.loop.cycles) / simds

    @property
    def pass_cycles(self) -> float:
        """Cycles of one pass through the hot loop, on average over the waves; 0 without a loop."""
        passes = sum(wave.passes - 1 for wave in self.waves if wave.passes > 1)
        return sum(wave.loop.cycles for wave in self.waves) / passes if passes else 0.0

    def stalls(self, *, loop: bool = False) -> dict[str, float]:
        """The share of each cause in the cycles of all waves, or of their hot loops."""
        spans = [wave.loop if loop else wave.whole for wave in self.waves]
        total = sum(span.cycles for span in spans) or 1
        return {cause: sum(span.stalls[cause] for span in spans) / total for cause in CAUSES}

    def phases(self) -> list[PhaseShare]:
        """Shares of all waves, in the order of PHASES; phases without a cycle are left out."""
        total = sum(wave.whole.cycles for wave in self.waves)
        shares = []
        for name in PHASES:
            own = [wave.phases[name] for wave in self.waves if name in wave.phases]
            if cycles := sum(phase.cycles for phase in own):
                stalls = {cause: sum(phase.stalls[cause] for phase in own) / cycles for cause in CAUSES}
                shares.append(
                    PhaseShare(
                        phase=name,
                        parts=sum(phase.parts for phase in own),
                        cycles=cycles / total,
                        issued=sum(phase.issued for phase in own) / cycles,
                        matrix=sum(phase.matrix for phase in own) / cycles,
                        stalls=stalls,
                    )
                )
        return shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A published figure beside the modelled one: fields as in published.yaml. None: no figure is published."""

    name: str
    about: str
    unit: str
    published: float | None
    modelled: float
    measured: bool
    independent: bool
    source: str

    @property
    def error(self) -> float | None:
        """Relative difference."""
        return None if self.published is None else self.modelled / self.published - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """``provenance``: as in measurements. ``left_out``: problem -> why the library could not run it.

    ``checks``: published figures beside modelled ones; empty without --checks.
    """

    provenance: Mapping[str, str]
    problems: tuple[Timed, ...]
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
    checks: tuple[Check, ...] = ()

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step. Raises DiskFullError, OutputError."""
        write_atomically(file, as_text({"format": _FORMAT, **dataclasses.asdict(self)}))

    @classmethod
    def read(cls, file: Path) -> Timings:
        """Read a file of timings. Raises RecordError: it can't be read; the message names the field."""
        document = of_library(file, "timings", _FORMAT, "Model them again: ckpm timing model --help.")
        rows = tuple(map(_read_timed, document.get("problems").items()))
        if not rows:
            raise document.get("problems").fail("expected a list of at least one")
        return cls(
            provenance=document.get("provenance").texts(),
            problems=rows,
            left_out=document.get("left_out").texts(),
            checks=tuple(map(_check, document.get("checks").items())),
        )


def wave_of(replayed: Mapping[str, Any]) -> WaveTime:
    """A wave of the ``waves`` in a device's replay."""
    loop = replayed["loop"]
    return WaveTime(
        simd=replayed["simd"],
        whole=_span_of(replayed, 0, replayed["end"]),
        hot=(replayed["hot"][0], replayed["hot"][1]) if replayed["hot"] else None,
        passes=loop["passes"],
        loop=_span_of(loop, loop["begin"], loop["end"]),
        phases={name: Phase(**phase) for name, phase in replayed["phases"].items()},
        timeline=replayed["timeline"],
    )


def _span_of(figures: Mapping[str, Any], begin: int, end: int) -> Span:
    counted = {name: figures[name] for name in ("instructions", "issued", "matrix", "vector")}
    return Span(begin=begin, end=end, **counted, stalls=dict(figures["stalls"]))


def _read_timed(row: Value) -> Timed:
    row.allow([field.name for field in dataclasses.fields(Timed)])
    waves = tuple(map(_wave, row.get("waves").items()))
    if not waves:
        raise row.get("waves").fail("expected a list of at least one")
    return Timed(
        problem=row.get("problem").nonempty_text(),
        kernel=row.get("kernel").nonempty_text(),
        dtype=row.get("dtype").nonempty_text(),
        workgroup=row.get("workgroup").count(),
        launched=_positive(row.get("launched")),
        tile_rows=_positive(row.get("tile_rows")),
        resident=_positive(row.get("resident")),
        cycles=_positive(row.get("cycles")),
        timeline_from=row.get("timeline_from").count(),
        timeline_bin=_positive(row.get("timeline_bin")),
        waves=waves,
        sensitivity=row.get("sensitivity").map(_pair),
    )


def _check(row: Value) -> Check:
    row.allow([field.name for field in dataclasses.fields(Check)])
    published = row.optional("published", Value.number, None)
    if published is not None and published <= 0:
        raise row.get("published").fail("must be above 0")
    return Check(
        name=row.get("name").nonempty_text(),
        about=row.get("about").nonempty_text(),
        unit=row.get("unit").nonempty_text(),
        published=published,
        modelled=row.get("modelled").number(),
        measured=row.get("measured").truth(),
        independent=row.get("independent").truth(),
        source=row.get("source").nonempty_text(),
    )


def _wave(row: Value) -> WaveTime:
    row.allow([field.name for field in dataclasses.fields(WaveTime)])
    return WaveTime(
        simd=row.get("simd").count(),
        whole=_span(row.get("whole")),
        hot=row.optional("hot", _pair, None),
        passes=row.get("passes").count(),
        loop=_span(row.get("loop")),
        phases=_phases(row.get("phases")),
        timeline=row.get("timeline").text(),
    )


def _span(row: Value) -> Span:
    span = Span(**_read_counts(row, Span))
    if span.end < span.begin:
        raise row.get("end").fail("is before the begin")
    return span


def _phases(row: Value) -> dict[str, Phase]:
    row.allow(tuple(PHASES))
    return row.map(lambda phase: Phase(**_read_counts(phase, Phase)))


def _read_counts(row: Value, kind: type[Span] | type[Phase]) -> dict[str, Any]:
    """Read counts and stalls, by the fields of ``kind``."""
    names = [field.name for field in dataclasses.fields(kind)]
    row.allow(names)
    stalls = row.get("stalls")
    stalls.allow(tuple(CAUSES))
    counted: dict[str, Any] = {name: row.get(name).count() for name in names if name != "stalls"}
    return {**counted, "stalls": {cause: stalls.get(cause).count() for cause in CAUSES}}


def _positive(value: Value) -> int:
    if (number := value.count()) == 0:
        raise value.fail("is 0")
    return number


def _pair(value: Value) -> tuple[int, int]:
    found = [one.count() for one in value.items()]
    if len(found) != 2:
        raise value.fail("expected two numbers")
    return found[0], found[1]

"""Modelled times of workgroups as plain data: written by ``ckpm timing model``, read by reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from ckpm.attention.launch.counters import of_library
from ckpm.base.files import write_atomically
from ckpm.base.records import as_text
from ckpm.base.tablefile import Count, Positive, Text

_FORMAT = 3
SIMDS = 4  # of a compute unit; wave w of a workgroup runs on SIMD w % 4
# Why a wave did not issue (emulator/core/timing/replay.h, enum Cause).
CAUSES: Mapping[str, str] = {
    "matrix_busy": "the matrix unit has another MFMA",
    "matrix_result": "a result of an MFMA or of a vector instruction is not there yet",
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
class WaveCycles:
    """Cycles of a part of a wave: ``issued``, and ``stalls`` by CAUSES.

    ``matrix`` are the cycles in which its MFMAs keep the SIMD's matrix unit, ``vector`` the cycles in which other
    vector instructions keep the vector port. Both overlap with the wave's next instructions.
    """

    instructions: Count
    issued: Count
    matrix: Count
    vector: Count
    stalls: Mapping[str, Count]

    def __post_init__(self) -> None:
        if self.stalls.keys() != CAUSES.keys():
            raise ValueError(f"its stalls are not by {', '.join(CAUSES)}, but by {', '.join(self.stalls)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span(WaveCycles):
    """A wave from cycle ``begin`` to ``end``."""

    begin: Count
    end: Count

    def __post_init__(self) -> None:
        WaveCycles.__post_init__(self)  # super() is not this class after slots=True made another
        if self.end < self.begin:
            raise ValueError("its end is before its begin")

    @property
    def cycles(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase(WaveCycles):
    """All ``parts`` of a wave that are of one phase. Phases add up to the wave.

    A part includes the wait at the s_barrier that ends it.
    """

    parts: Count

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

    simd: Count
    whole: Span
    hot: tuple[Count, Count] | None
    passes: Count
    loop: Span
    phases: Mapping[str, Phase]  # by PHASES, those that the wave has
    timeline: str

    def __post_init__(self) -> None:
        if unknown := self.phases.keys() - PHASES.keys():
            raise ValueError(f"unknown phases {', '.join(unknown)}; known here: {', '.join(PHASES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseShare:
    """A phase of all waves. ``cycles`` is its share in the cycles of the waves.

    The other shares are in the phase's own cycles. ``matrix`` is the share in which the matrix unit works for these
    waves, which overlaps with their next instructions.
    """

    phase: str
    parts: int  # of all waves
    cycles: float
    issued: float
    matrix: float
    stalls: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Cycles of some copies of a workgroup on one compute unit: the median, least and most by start offset."""

    cycles: Positive
    least: Positive
    most: Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One workgroup, modelled with ``resident`` copies of it on one compute unit.

    ``sensitivity`` contains, by each doubtful figure of the machine, the cycles with a fifth less and a fifth more of
    it. ``copies`` has one copy, two and so on up to ``resident``. It is empty without start offsets.
    """

    problem: Text
    kernel: Text
    dtype: Text
    workgroup: Count  # linear index
    launched: Positive  # workgroups of the launch
    tile_rows: Positive  # queries of a workgroup: kM0
    resident: Positive
    cycles: Positive
    waves: Annotated[tuple[WaveTime, ...], Meta(min_length=1)]
    timeline_from: Count
    timeline_bin: Positive
    sensitivity: Mapping[str, tuple[Count, Count]]
    copies: tuple[Copies, ...] = ()

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
class Timings:
    """``provenance``: as in measurements. ``left_out``: problem -> why the library could not run it."""

    provenance: Mapping[str, str]
    problems: tuple[Timed, ...]
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step."""
        write_atomically(file, as_text({"format": _FORMAT, **dataclasses.asdict(self)}))

    @classmethod
    def read(cls, file: Path) -> Timings:
        """Read a file of timings. Raise RecordError, with the field, if it is damaged."""
        document = of_library(file, "timings", _FORMAT, "Model them again: ckpm timing model --help.")
        timings = document.record(cls)
        if not timings.problems:
            raise document.get("problems").fail("expected a list of at least one")
        return timings


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

"""Modelled times of one workgroup with figures that are easy to add up."""

from __future__ import annotations

import dataclasses
from typing import Any

from ckpm.attention.launch.counters import PROVENANCE
from ckpm.timing.record import CAUSES, Phase, Span, Timed, Timings, WaveTime
from tests.unit.reports.report_samples import KERNEL


def span(begin: int, end: int, matrix: int, **stalls: int) -> Span:
    issued = end - begin - sum(stalls.values())
    return Span(
        begin=begin, end=end, instructions=issued // 4, issued=issued, matrix=matrix, vector=20,
        stalls=dict.fromkeys(CAUSES, 0) | stalls,
    )  # fmt: skip


def phase(cycles: int, matrix: int, parts: int = 1, **stalls: int) -> Phase:
    issued = cycles - sum(stalls.values())
    return Phase(
        parts=parts, instructions=issued // 4, issued=issued, matrix=matrix, vector=20,
        stalls=dict.fromkeys(CAUSES, 0) | stalls,
    )  # fmt: skip


def wave(simd: int, timeline: str = "MMXX--WWBB..") -> WaveTime:
    return WaveTime(
        simd=simd,
        whole=span(0, 1000, 400, barrier=100, wait_memory=300),
        hot=(64, 128),
        passes=5,
        loop=span(200, 600, 240, wait_memory=40),
        phases={
            "prologue": phase(100, 0, wait_memory=60),
            "matrix": phase(500, 400, parts=5, wait_memory=200),
            "softmax": phase(400, 0, parts=4, wait_memory=40, barrier=100),
        },
        timeline=timeline,
    )


def make_timed(**changes: Any) -> Timed:
    timed = Timed(
        problem="performance/prefill.m64", kernel=KERNEL, dtype="bf16", workgroup=3, launched=6,
        tile_rows=64, resident=1, cycles=1000,
        waves=(wave(0), wave(0), wave(1)), timeline_from=200, timeline_bin=10,
        sensitivity={"memory_latency": (900, 1300)},
    )  # fmt: skip
    return dataclasses.replace(timed, **changes)


def timings(arch: str = "gfx950", **changes: Any) -> Timings:
    provenance = {**dict.fromkeys(PROVENANCE, "x"), "arch": arch, "upstream": "ckpm"}
    return Timings(provenance=provenance, problems=(make_timed(**changes),))

"""Figures of runs on the emulated gfx950: a long workgroup, the start of a launch, all suites."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from unittest import mock

from ckpm.attention.launch.buffers import prepare
from ckpm.attention.launch.c_abi import Library
from ckpm.attention.launch.device import Device, choose
from ckpm.attention.launch.launching import plan_of, upload
from ckpm.base import jobs
from ckpm.base.errors import InconclusiveError, RecordError
from ckpm.base.records import Source, Value
from ckpm.bench.cold import ARCH
from ckpm.bench.figures import Figure, judge_least, judge_most, python
from ckpm.kernels.abi import Status
from ckpm.kernels.library.request import LIBRARY
from ckpm.matrix.problems.case import SUITES, SuiteCase
from ckpm.timing import tables
from ckpm.timing.record import Timings

_CPU = Path("/proc/cpuinfo")
# Queries and keys, 6 heads on one, causal -> the pull request's own ratio (its TFLOP/s: reports/gates/references.yaml)
_SCALES: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "tensor": ("one scale a tensor, pages of 1", {"1k": 1.11, "4k": 1.31, "8k": 1.39}),
    "page": ("block scales, pages of 1,024", {"1k": 1.06, "4k": 1.22, "8k": 1.31}),
}
_PLAIN = "import sys; from ckpm.bench.emulated import plain_seconds; print(plain_seconds(*sys.argv[1:]))"
_START = "import sys; from ckpm.bench.emulated import first_launch; print(first_launch(sys.argv[1]))"


def _problem(name: str, seqlen_k: int, heads: int = 1) -> SuiteCase:
    """A problem of one workgroup a head: bf16, head dim 128, 64 queries."""
    return SuiteCase(
        name=f"bench/{name}",
        suite="dispatch",
        tier="smoke",
        group="bench",
        table_end="zeros",
        seqlens_q=(64,),
        seqlens_k=(seqlen_k,),
        nhead_q=heads,
        nhead_k=heads,
    )


def first_launch(library: str) -> float:
    """Seconds of this process's first launch, with a problem of one tile."""
    device = choose("emulator", ARCH, threads=1)
    return _best(device, device.load(Path(library)), _problem("first", 128), 1)


def plain_seconds(library: str, core: str) -> float:
    """Processor seconds of the long workgroup on another core, which takes the place of the one that users have."""
    with mock.patch("ckpm_emulator.toolchain.library", return_value=Path(core)):
        device = choose("emulator", ARCH, threads=1)
    return _long(device, device.load(Path(library)))


def _long(device: Device, library: Library) -> float:
    """Processor seconds of the long workgroup on one processor, the best of five runs."""
    return _best(device, library, _problem("long", 131072), 5, time.process_time)


def _best(
    device: Device, library: Library, problem: SuiteCase, launches: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds of the fastest of several launches, without uploads."""
    prepared, seconds = prepare(problem, ARCH), []
    plan = plan_of(device, library, prepared)
    with upload(device, prepared.buffers) as memory:
        addresses = prepared.addresses(memory)
        for _ in range(launches):
            device.reset_counters()
            started = clock()
            launch = plan.launch(addresses)
            fault = device.fault()
            seconds.append(clock() - started)
            if fault or launch.status != Status.OK:
                raise InconclusiveError(f"{problem.name}: {fault.message if fault else launch.message}", kind="bench")
    return min(seconds)


def measure(upstream: str, toolchain: str, folder: Path) -> list[Figure]:
    """Build the smoke tier below ``folder`` (with objects of the shared cache) and run it."""
    options = ["--upstream", upstream, "--work", str(folder)]
    python("-m", "ckpm", "build", "--arch", ARCH, "--toolchain", toolchain, *options)
    path = folder / "build" / ARCH / upstream / LIBRARY
    device = choose("emulator", ARCH, threads=1)
    library = device.load(path)
    return [*_one_workgroup(device, library, path), _start(path), _scaling(device, library), _suites(options)]


def _one_workgroup(device: Device, library: Library, path: Path) -> list[Figure]:
    """Measure the long workgroup on the core, and on the core built with -DEMU_PLAIN, in the same run.

    The plain core has no fast paths for the usual cases of an instruction, and no huge pages for device memory.
    """
    wide = "avx512f" in _CPU.read_text(encoding="utf-8")
    best = _long(device, library)
    (counted,) = device.counters()["kernels"].values()
    instructions = counted["instructions"]
    rate = sum(instructions.values()) / best
    core = python("-m", "ckpm_emulator", "core", "--plain").output.strip()
    plain = float(python("-c", _PLAIN, str(path), core).output)
    name, seconds = ("AVX-512", 0.5) if wide else ("AVX2", 1.5)
    return [
        judge_most(
            "emulator: one workgroup, seqlen_k 131072, d128, bf16, gfx950",
            f"{best:.2f} s",
            f"< {seconds} s ({name})",
            best / seconds,
        ),
        Figure(
            "emulator: wave-instructions of it",
            f"{rate / 1e6:.1f} million a second",
            ">= 8 million (AVX-512)" if wide else "none (AVX2)",
            rate >= 8e6 if wide else None,
            rate / 8e6,
        ),
        judge_least(
            "emulator: it against the core without short ways (-DEMU_PLAIN)",
            f"{plain / best:.2f} times ({sum(instructions.values()) / plain / 1e6:.1f} million a second)",
            ">= 2 times",
            plain / best / 2,
        ),
    ]


def _start(library: Path) -> Figure:
    """Measure the start of a launch. The first process fills the cache of decoded code objects."""
    seconds = min(float(python("-c", _START, str(library)).output) for _ in range(4))
    what = "emulator: start-up and end of a process's first launch (decoded code in the cache)"
    return judge_most(what, f"{1000 * seconds:.0f} ms", "< 50 ms", seconds / 0.05)


def _scaling(device: Device, library: Library) -> Figure:
    problem, most = _problem("heads", 2048, heads=64), jobs.processors()
    seconds = {}
    for threads in sorted({1, 2, most // 2, most} - {0}):
        device.configure(threads=threads)
        seconds[threads] = _best(device, library, problem, 3)
    speedups = ", ".join(f"{seconds[1] / own:.2f} on {threads}" for threads, own in seconds.items() if threads > 1)
    return Figure(
        "emulator: 64 workgroups, times as fast as on one processor", f"{speedups} ({seconds[1]:.2f} s on one)"
    )


def _suites(options: Sequence[str]) -> Figure:
    common = ("--arch", ARCH, "--device", "emulator", *options)
    parts = {suite: python("-m", "ckpm", "test", "--suite", suite, *common).wall for suite in SUITES}
    total = sum(parts.values())
    by_suite = ", ".join(f"{suite} {seconds:.0f}" for suite, seconds in parts.items())
    what = f"smoke tier of all suites on {jobs.processors()} processors, once built"
    return judge_most(what, f"{total:.0f} s ({by_suite})", "< 120 s on 2", total / 120)


def model_versions(toolchain: str, folder: Path) -> list[Figure]:
    """Build V2 and V3 below ``folder`` and model a few rows of the tables of CK's pull request 6054.

    A launch whose workgroups are all resident takes the cycles of its longest workgroup, at the median start offset of
    two workgroups on a compute unit. ``ckpm timing tables`` models all rows.
    """
    timings = tables.model(f"{tables.PUBLISHED[:-1]}*-q[148]k", toolchain, folder)
    return [_ratio_figure(timings, scale) for scale in _SCALES]


def _ratio_figure(timings: Timings, scale: str) -> Figure:
    what, published = _SCALES[scale]
    ratios = {length: _ratio(timings, f"{tables.PUBLISHED[:-1]}{scale}-q{length}") for length in published}
    return Figure(
        f"timing model, cycles of our V2's longest workgroup over our V3's, fp8, causal, {what}: {', '.join(ratios)} "
        "queries and keys (range of start offsets)",
        ", ".join(ratios.values()),
        f"published of CK's code: {', '.join(f'{ratio:.2f}' for ratio in published.values())}",
    )


def _ratio(timings: Timings, problem: str) -> str:
    """Cycles of V2 over cycles of V3, and their range. A problem has two rows: V3, then V2."""
    v3, v2 = (row.copies[-1] for row in timings.problems if row.problem == problem)
    middle, least, most = (f"{cycles / v3.cycles:.2f}" for cycles in (v2.cycles, v2.least, v2.most))
    return middle if least == most else f"{middle} ({least} to {most})"


def score_timing(folder: Path) -> list[Figure]:
    """Errors of the timing model on published measurements, by group."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "score.json"
    python("-m", "ckpm", "timing", "score", "--tier", "smoke", "--output", str(file))
    groups = Source(location=file, what="score", remedy="Run it again.", error=RecordError).read().get("groups")
    return [
        _score_figure(groups.get("A"), "cycles and MFMA shares: error", "error", 0.10),
        _score_figure(groups.get("B"), "TFLOP/s: error", "error", 0.14),
        _score_figure(groups.get("C"), "ratios of pairs: on the right side of 1", "signs", 0.95),
    ]


def _score_figure(group: Value, what: str, field: str, goal: float) -> Figure:
    value, least = group.get(field).number(), field == "signs"
    return (judge_least if least else judge_most)(
        f"timing model, {what} of {group.get('rows').count()} published rows (tier smoke)",
        f"{value:.1%}, rank correlation {group.get('rank').number():.2f}",
        f"{'>=' if least else '<'} {goal:.0%}",
        value / goal,
    )

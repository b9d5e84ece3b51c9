"""``python -m kernels timing``: model the longest workgroup, or a chosen one, of the gates' problems."""

from __future__ import annotations

import argparse
import fnmatch
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernels.bench.measure import EVERY, identity_facts, keys_of, manifest_of, on_library, performance_problems
from kernels.build.manifest import Manifest
from kernels.errors import MeasureError
from kernels.families.libraries import host
from kernels.launch.counters import LIBRARY_FACTS
from kernels.timing.machine import Number, numbers
from kernels.timing.record import SIMDS, Timed, Timings, wave_of
from matrix.base.display import show
from matrix.base.errors import CkPrefillError
from matrix.keys import Key
from matrix.options import DEFAULT_ARCH, add_library_options
from matrix.problems.problem import TIERS, Problem, measured, missing, serving

_GPU_PAGE = 4096
_WAVE = 64


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", default=DEFAULT_ARCH, help="(default: %(default)s)")
    add_library_options(parser)
    parser.add_argument("--tier", default="smoke", help=f"{', '.join(TIERS)} (default: %(default)s)")
    parser.add_argument("--work", type=Path, default=Path(), help="folder that holds build/ (default: here)")
    parser.add_argument("--library", type=Path, default=None, metavar="FILE", help="instead of the one in build/")
    parser.add_argument("--kernel", default=EVERY, metavar="GLOB", help="launch kernels of such a name")
    parser.add_argument("--problem", default=EVERY, metavar="GLOB", help="problems of such a name alone")
    parser.add_argument(
        "--workgroup", type=_count, default=None, metavar="N", help="this one, and run no other (default: the longest)"
    )
    parser.add_argument(
        "--resident",
        type=_positive,
        default=None,
        metavar="N",
        help="copies on a compute unit (default: as occupancy and grid allow)",
    )
    parser.add_argument("--full-gpu", action="store_true", help="copies as occupancy allows, however small the grid")
    parser.add_argument("--sensitivity", action="store_true", help="also with half and twice of each doubtful figure")
    parser.add_argument("--checks", action="store_true", help="the model beside published figures, too (gfx950)")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the JSON file to write")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Raises as :func:`model`; UnknownArchError, UnknownUpstreamError, DiskFullError, OutputError."""
    return on_library(args, lambda library, arch: _write(args, library, arch))


def _write(args: argparse.Namespace, library: Path, arch: str) -> int:
    timings = model(library, arch, args)
    timings.write(args.output)
    for name, why in timings.left_out.items():
        show(f"left out: {name}: {why}")
    show(f"{len(timings.problems)} problems of tier {args.tier} modelled on {arch}: {args.output}")
    return 0


def model(library: Path, arch: str, args: argparse.Namespace) -> Timings:
    """Run and replay a workgroup of every problem of the tier that the library serves.

    Raises:
        LibraryMismatchError: the library doesn't fit its manifest.
        MeasureError: there is no library or manifest, none of the problems can be run, or one faults; no machine.
        DeviceError, LibraryError: the emulator can't be started, the library not loaded.
    """
    # only here: other commands do without NumPy and the emulator
    from kernels.launch.device import EmulatedDevice, choose
    from kernels.timing.checks import ARCH as CHECKED_ARCH
    from kernels.timing.checks import checks

    if args.checks and arch != CHECKED_ARCH:
        raise MeasureError(f"the published figures are of {CHECKED_ARCH}, not of {arch}: leave --checks out.")
    known, manifest = numbers(arch), manifest_of(library, arch)
    facts = identity_facts(library, manifest, foreign=args.library is not None)
    device = choose("emulator", arch, granularity=_GPU_PAGE)
    assert isinstance(device, EmulatedDevice)
    loaded = device.load(library)
    keys = [key for key in keys_of(manifest, loaded.kernels, library) if fnmatch.fnmatchcase(key.name, args.kernel)]
    timed, left_out = [], {}
    for problem in performance_problems(args.tier):
        if not fnmatch.fnmatchcase(problem.name, args.problem):
            continue
        if why := missing(keys, problem):
            left_out[problem.name] = why
            continue
        outcome = _launched(device, loaded, problem, _named(keys, problem, args.kernel), args)
        if isinstance(outcome, str):
            left_out[problem.name] = outcome
            continue
        timed.append(_timed(device, problem, outcome, manifest, keys, known, args))
    if not timed:
        raise MeasureError(f"{library}: it serves none of the problems. Build more: --tier full; or see --problem.")
    library_facts = {name: getattr(manifest, name) for name in LIBRARY_FACTS}
    provenance = {"arch": arch, **library_facts, "tier": args.tier, **facts}
    checked = checks(device, known) if args.checks else ()
    return Timings(provenance=provenance, problems=tuple(timed), left_out=left_out, checks=checked)


def _named(keys: Sequence[Key], problem: Problem, kernel: str) -> str | None:
    return measured(keys, problem) if kernel == EVERY else serving(keys, problem)[0].name


def _launched(device: Any, loaded: Any, problem: Problem, named: str | None, args: argparse.Namespace) -> Any:
    """The outcome of a launch that records, or why there is none: a fault or a refusal."""
    from kernels.launch.buffers import prepare

    device.forget_recording()
    device.configure(record={"workgroup": args.workgroup, "only": args.workgroup is not None})
    try:
        outcome = host(loaded.family).launch(device, loaded, prepare(problem, device.arch), named)
    except CkPrefillError as error:
        raise MeasureError(f"{problem.name}: {error}") from error
    if outcome.ran:
        return outcome
    why = outcome.fault.message if outcome.fault else outcome.launch.message
    return f"the launch failed: {why.partition(chr(10))[0]}"


def _timed(
    device: Any,
    problem: Problem,
    outcome: Any,
    manifest: Manifest,
    keys: Sequence[Key],
    known: dict[str, Number],
    args: argparse.Namespace,
) -> Timed:
    """Raises MeasureError: no workgroup was recorded, or a kernel ran that the manifest doesn't know."""
    from kernels.timing.replaying import replay, sensitivity

    kernel = outcome.launch.kernel
    recording = device.recording()
    if recording is None:
        raise MeasureError(f"{problem.name}: the launch has no workgroup {args.workgroup}. Choose a smaller one.")
    if kernel not in manifest.kernels:
        raise MeasureError(f"{problem.name}: ran on '{kernel}', of which the manifest knows nothing. Build it anew.")
    occupancy = manifest.kernels[kernel].archs[device.arch].occupancy_waves
    possible = max(occupancy * SIMDS // len(recording["instructions"]), 1)
    needed = possible if args.full_gpu else -(-recording["launched"] // device.compute_units)
    resident = args.resident or min(possible, needed)
    replayed, begin, width = replay(device, known, resident)
    return Timed(
        problem=problem.name,
        kernel=kernel,
        dtype=problem.dtype,
        workgroup=recording["workgroup"],
        launched=recording["launched"],
        tile_rows=next(key.tile.bm0 for key in keys if key.name == kernel),
        resident=resident,
        cycles=replayed["cycles"],
        waves=tuple(wave_of(wave) for wave in replayed["waves"]),
        timeline_from=begin,
        timeline_bin=width,
        sensitivity=sensitivity(device, known, resident) if args.sensitivity else {},
    )


def _count(text: str) -> int:
    if (number := int(text)) < 0:
        raise ValueError(text)
    return number


def _positive(text: str) -> int:
    if (number := _count(text)) == 0:
        raise ValueError(text)
    return number

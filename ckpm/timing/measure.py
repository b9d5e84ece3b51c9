"""``ckpm measure``: run the problems of matrix/performance.yaml and store the emulator's counts.

Counts don't depend on the machine, its load or the number of threads: two runs of the same library give the same file.
The gates read the file beside the library, :func:`demand_counters`.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckpm.attention.launch.counters import (
    COUNTERS,
    LIBRARY_FACTS,
    PROGRAM,
    Measured,
    Measurements,
    flatten,
    has_counters,
)
from ckpm.base import settings
from ckpm.base.display import show
from ckpm.base.errors import CkPrefillError, MeasureError, UsageError
from ckpm.base.outputs import demand_place, refuse_inputs
from ckpm.base.paths import program_digest
from ckpm.base.results import LIBRARY_SHA256
from ckpm.kernels.abi import Status
from ckpm.kernels.library.manifest import Manifest, identity_facts, keys_of, manifest_of
from ckpm.kernels.library.request import LIBRARY
from ckpm.kernels.library.sandbox import run_apart
from ckpm.matrix.dialects import check_built_arch, check_upstream
from ckpm.matrix.keys import Key
from ckpm.matrix.options import DEFAULT_ARCH, add_library_options, chosen_upstream
from ckpm.matrix.problems.case import TIERS, SuiteCase
from ckpm.matrix.problems.ledger import Ledger, read_ledger, source
from ckpm.matrix.problems.performance import compulsory_bytes, performance_problems
from ckpm.matrix.problems.serving import measured_kernel, missing_kernel, missing_load, refused_for, serving_kernels

EVERY = "*"  # kernel names: dispatch chooses
GATED_TIER = "smoke"  # the problems of the gates
GPU_PAGE = 4096  # bytes that a GPU maps at once: a read past a buffer's end but inside its page does not fault


def add_options(parser: argparse.ArgumentParser) -> None:
    add_measured_options(parser)
    parser.set_defaults(run=run)


def add_measured_options(parser: argparse.ArgumentParser) -> None:
    """Options of commands that run the gates' problems on a library."""
    parser.add_argument("--arch", default=DEFAULT_ARCH, help="(default: %(default)s)")
    add_library_options(parser)
    parser.add_argument("--tier", default="smoke", help=f"{', '.join(TIERS)} (default: %(default)s)")
    parser.add_argument("--work", type=Path, default=Path(), help="folder that holds build/ (default: here)")
    parser.add_argument("--library", type=Path, default=None, metavar="FILE", help="instead of the one in build/")
    parser.add_argument(
        "--kernel", default=EVERY, metavar="GLOB", help="launch kernels of such a name instead of dispatch's"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the JSON file to write")


def run(args: argparse.Namespace) -> int:
    return on_library(args, lambda library, arch: _write(args, library, arch))


def on_library(args: argparse.Namespace, write: Callable[[Path, str], int]) -> int:
    """Call ``write`` with the library that the options name, and its arch. Return the exit code."""
    arch = check_built_arch(args.arch).name
    upstream = chosen_upstream(args.upstream, settings.ck_root())
    if upstream != "checkout":
        check_upstream(upstream)
    library = args.library or args.work / "build" / arch / upstream / LIBRARY
    refuse_inputs(args.output, [library, library.with_name("manifest.json")])
    demand_place(args.output)
    if args.library is None:
        return write(library, arch)
    return run_apart(lambda: write(library, arch), library)  # its bytes are not checked


def _write(args: argparse.Namespace, library: Path, arch: str) -> int:
    """Measure, write the file and print a summary."""
    measurements = measure(library, arch, args.tier, foreign=args.library is not None, kernel=args.kernel)
    for name, why in measurements.left_out.items():
        show(f"left out: {name}: {why}")
    _store(measurements, args.output)
    return 0


def demand_counters(library: Path, manifest: Manifest, arch: str) -> Measurements:
    """Read the counters beside a library. Measure first if this program has none of these bytes in them."""
    file = library.with_name(COUNTERS)
    counted = {LIBRARY_SHA256: manifest.library_sha256, PROGRAM: program_digest()}
    facts = provenance(manifest, arch, GATED_TIER, counted)
    if not has_counters(file, facts):
        _store(measure(library, arch, GATED_TIER), file)
    return Measurements.read(file)


def _store(measurements: Measurements, file: Path) -> None:
    measurements.write(file)
    tier, arch = (measurements.provenance[name] for name in ("tier", "arch"))
    show(f"{len(measurements.problems)} problems of tier {tier} on the emulated {arch}: {file}")


def provenance(manifest: Manifest, arch: str, tier: str, file_facts: Mapping[str, str]) -> dict[str, str]:
    """The facts of a library that counts and timings are stored with."""
    facts = {name: getattr(manifest, name) for name in LIBRARY_FACTS}
    return {"arch": arch, **facts, "tier": tier, **file_facts}


def measure(library: Path, arch: str, tier: str, *, foreign: bool = False, kernel: str = EVERY) -> Measurements:
    """Run every problem of the tier that the library serves. A ``foreign`` library needn't fit its manifest.

    With a ``kernel`` glob, the first kernel of such a name that serves a problem is launched by name. So kernels of
    two load modes, of which dispatch takes one, can be measured on the same problem.
    """
    from ckpm.attention.launch.device import choose  # only here: other commands do without NumPy and the emulator

    manifest = manifest_of(library, arch)
    file_facts = identity_facts(library, manifest, foreign=foreign)
    device = choose("emulator", arch, granularity=GPU_PAGE)
    loaded = device.load(library, sha256=file_facts[LIBRARY_SHA256])
    keys = named_kernels(keys_of(manifest, loaded.kernels, library), kernel)
    counted, left_out = [], {}
    for problem in performance_problems(tier):
        if why := missing_kernel(keys, problem):
            left_out[problem.name] = why
            continue
        named = kernel_name(keys, problem, kernel)
        figures = _count_launch(device, loaded, problem, named, manifest, missing_load(keys, problem))
        if isinstance(figures, str):
            left_out[problem.name] = figures
            continue
        counted.append(figures)
    if not counted:
        raise MeasureError(f"{library}: it serves none of the {len(left_out)} problems. Build more: --tier full.")
    glob = {} if kernel == EVERY else {"kernels": kernel}
    facts = provenance(manifest, arch, tier, {**file_facts, PROGRAM: program_digest(), **glob})
    return Measurements(provenance=facts, problems=tuple(counted), left_out=left_out)


def named_kernels(keys: Sequence[Key], kernel: str) -> list[Key]:
    """The kernels of a library whose name fits the option ``--kernel``."""
    named = [key for key in keys if fnmatch.fnmatchcase(key.name, kernel)]
    if not named:
        raise UsageError(f"--kernel: none of the library's {len(keys)} kernels fits '{kernel}'.")
    return named


def kernel_name(keys: Sequence[Key], problem: SuiteCase, kernel: str) -> str | None:
    """The kernel of a problem's launch: dispatch's for ``EVERY``, else the first that serves it."""
    return measured_kernel(keys, problem) if kernel == EVERY else serving_kernels(keys, problem)[0].name


def _count_launch(
    device: Any, loaded: Any, problem: SuiteCase, named: str | None, manifest: Manifest, lacks: str | None
) -> Measured | str:
    """Count one launch, or return the reason why it can't be counted.

    Reasons are a known defect of the upstream (matrix/ledger.yaml), and a refusal by a library that ``lacks`` the
    kernels of a load mode that dispatch may ask for.
    """
    from ckpm.attention.launch.buffers import prepare
    from ckpm.attention.launch.launching import run_problem

    try:
        outcome = run_problem(device, loaded, prepare(problem, device.arch), named)
    except CkPrefillError as error:
        raise MeasureError(f"{problem.name}: {error}") from error
    ledger = read_ledger()
    verdict = ledger.judge(
        problem, source(manifest.upstream, manifest.dialect), device.arch, "passed" if outcome.ran else "fault"
    )
    if verdict.kind == "known" and verdict.entry and outcome.fault:
        Ledger(file=ledger.file, entries=(verdict.entry,)).check_dates(datetime.date.today())
        device.recover()
        return verdict.text
    if verdict.kind == "unexpected_pass":
        raise MeasureError(f"{problem.name} {verdict.text}")
    if lacks and not outcome.fault and outcome.launch.status == Status.UNSUPPORTED:
        return refused_for(lacks)
    if not outcome.ran:
        why = outcome.fault.message if outcome.fault else outcome.launch.message
        raise MeasureError(f"{problem.name}: the launch failed: {why}. See ckpm test --suite batch-prefill.")
    kernel = outcome.launch.kernel or named or ""
    if kernel not in manifest.kernels or device.arch not in manifest.kernels[kernel].archs:
        raise MeasureError(f"{problem.name}: ran on '{kernel}', which the manifest does not list. {manifest.remedy}")
    return Measured(
        problem=problem.name,
        kernel=kernel,
        dtype=problem.dtype,
        occupancy_waves=manifest.kernels[kernel].archs[device.arch].occupancy_waves,
        compulsory_bytes=compulsory_bytes(problem),
        counters=flatten(outcome.counters),
    )

"""``ckpm compare``: the GPU gate, of two built libraries on the device that is here."""

from __future__ import annotations

import argparse
import fnmatch
from pathlib import Path

from ckpm.base import junit
from ckpm.base.display import show
from ckpm.base.errors import UsageError
from ckpm.base.rocm_choice import TOOLCHAINS, add_rocm_options
from ckpm.base.rows import align
from ckpm.kernels.library.request import LIBRARY
from ckpm.matrix.dialects import check_built_arch
from ckpm.matrix.options import DEFAULT_ARCH
from ckpm.matrix.problems.case import TIERS
from ckpm.matrix.problems.performance import performance_problems
from ckpm.reports.gates.references import compare_with_references
from ckpm.reports.gates.statistics import ARMS, read_settings
from ckpm.reports.gates.versions import remarks
from ckpm.reports.junit import write_gate
from ckpm.reports.verdicts import Gate, demand
from ckpm.timing.tables import ARCH, UPSTREAM, WORK, library


def add_options(compare: argparse.ArgumentParser) -> None:
    compare.add_argument("--arch", default=DEFAULT_ARCH, help="(default: %(default)s)")
    add_rocm_options(compare, "device")
    for side in ("baseline", "candidate"):
        compare.add_argument(f"--{side}", type=Path, default=None, metavar="FILE", help=f"its {LIBRARY}")
    compare.add_argument(
        "--upstream", default=None, help=f"{UPSTREAM} instead of two files: builds V3 and V2, and times V3 against V2"
    )
    compare.add_argument("--profile", dest="library_profile", default=None, metavar="NAME", help="v3 of ckpm: the same")
    compare.add_argument("--work", type=Path, default=WORK, metavar="DIR", help="where to build (default: %(default)s)")
    compare.add_argument("--tier", default="full", choices=TIERS, help="of the problems (default: %(default)s)")
    compare.add_argument("--case", default="*", metavar="GLOB", help="problems whose name fits")
    compare.add_argument(
        "--earlier", type=Path, metavar="FILE", help="a result with the same baseline: has the hardware shifted since?"
    )
    compare.add_argument(
        "--show", metavar="GLOB", help="print verdicts and samples of these problems from --output, and measure nothing"
    )
    compare.add_argument("--output", type=Path, required=True, metavar="FILE", help="the result as JSON")
    compare.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Time both libraries, and write the verdict."""
    if args.show is not None:
        show(samples_of(Gate.read(args.output), args.show))
        return
    from ckpm.attention.launch.device import choose  # only here: other commands do without NumPy and the emulator
    from ckpm.reports.gates import gpu as gpu_gate

    arch = check_built_arch(args.arch).name
    chosen = [
        problem for problem in performance_problems(args.tier) if fnmatch.fnmatchcase(problem.name, f"*{args.case}")
    ]
    if not chosen:
        raise UsageError(f"no problem of tier {args.tier} fits '{args.case}'")
    files = _files(args, arch)
    earlier = Gate.read(args.earlier) if args.earlier else None
    junit.clear(args.output, *(path.with_name("manifest.json") for path in files))
    device = choose(args.device, arch)
    if args.upstream:
        baseline, candidate = gpu_gate.versions(device, files[0])
        chosen = gpu_gate.problems_of_both(baseline, candidate, chosen)
    else:
        baseline, candidate = (gpu_gate.side(device, path) for path in files)
    gate = gpu_gate.compare(device, baseline, candidate, chosen, read_settings(), earlier)
    write_gate(gate, args.output)
    show(f"{gate.summary()}; {args.output}")
    for line in (*compare_with_references(gate), *remarks(gate)):
        show(f"  {line}")
    demand(gate, args.output)


def samples_of(gate: Gate, pattern: str) -> str:
    """Rows of problems whose name fits, each with its samples in microseconds."""
    times = {(samples.subject, samples.metric): samples for samples in gate.samples}
    lines: list[str] = []
    for row in gate.rows:
        if not fnmatch.fnmatchcase(row.subject, f"*{pattern}"):
            continue
        lines.append(str(row))
        if samples := times.get((row.subject, row.metric)):
            columns = zip(*(getattr(samples, arm) for arm in ARMS), strict=True)
            table = [(str(at), *(f"{time:.2f}" for time in round_)) for at, round_ in enumerate(columns, 1)]
            lines.append(align([("round", *ARMS), *table], left=0))
    if not lines:
        raise UsageError(f"no row of this result fits '{pattern}'")
    return "\n".join(lines)


def _files(args: argparse.Namespace, arch: str) -> list[Path]:
    """Paths of the two libraries, or of one with both versions, which is built if it is missing."""
    files = [args.baseline, args.candidate]
    if args.upstream is None and all(files):
        return [file.absolute() for file in files]
    if any(files) or args.upstream is None:
        raise UsageError(f"give --baseline and --candidate, or --upstream {UPSTREAM} and neither of them.")
    if (args.upstream, arch) != (UPSTREAM, ARCH):
        raise UsageError(f"only {UPSTREAM} on {ARCH} has V3 before V2. For others give --baseline and --candidate.")
    return [library(TOOLCHAINS[args.rocm], args.work).absolute()]

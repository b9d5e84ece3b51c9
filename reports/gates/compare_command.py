"""``python -m reports compare``: the GPU gate, of two built libraries on the device that is here."""

from __future__ import annotations

import argparse
import fnmatch
from collections import Counter
from pathlib import Path

from kernels.base import junit
from kernels.bench.measure import performance_problems
from kernels.build.request import LIBRARY
from matrix.base.display import show
from matrix.base.errors import UsageError
from matrix.dialects import check_built_arch
from matrix.options import DEFAULT_ARCH
from matrix.problems.problem import TIERS
from reports.gates.references import beside
from reports.gates.statistics import read_settings
from reports.junit.write import write_gate
from reports.verdicts import VERDICTS, demand


def add_options(compare: argparse.ArgumentParser) -> None:
    compare.add_argument("--arch", default=DEFAULT_ARCH, help="(default: %(default)s)")
    compare.add_argument("--device", default="auto", help="auto, hip or emulator (default: a GPU if there is one)")
    for side in ("baseline", "candidate"):
        compare.add_argument(f"--{side}", type=Path, required=True, metavar="FILE", help=f"its {LIBRARY}")
    compare.add_argument("--tier", default="full", choices=TIERS, help="of the problems (default: %(default)s)")
    compare.add_argument("--case", default="*", metavar="GLOB", help="problems whose name fits")
    compare.add_argument("--output", type=Path, required=True, metavar="FILE", help="the result as JSON")
    compare.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Raises MeasureError, DeviceError, LibraryError, UsageError; GateError, RegressedError, InconclusiveError."""
    from kernels.launch.device import choose  # only here: other commands do without NumPy and the emulator
    from reports.gates import gpu as gpu_gate

    arch = check_built_arch(args.arch).name
    chosen = [one for one in performance_problems(args.tier) if fnmatch.fnmatchcase(one.name, f"*{args.case}")]
    if not chosen:
        raise UsageError(f"no problem of tier {args.tier} fits '{args.case}'")
    junit.clear(args.output, *(path.with_name("manifest.json") for path in (args.baseline, args.candidate)))
    device = choose(args.device, arch)
    baseline, candidate = (gpu_gate.side(device, path.absolute()) for path in (args.baseline, args.candidate))
    gate = gpu_gate.compare(device, baseline, candidate, chosen, read_settings())
    write_gate(gate, args.output)
    counts = Counter(row.verdict for row in gate.rows)
    show(f"{gate.verdict}: {', '.join(f'{counts[word]} {word}' for word in VERDICTS if counts[word])}; {args.output}")
    for found in beside(gate):
        show(f"  {found}")
    demand(gate, args.output)

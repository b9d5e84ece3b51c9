"""``ckpm timing tables``: model V2 and V3 of our batch prefill on the problems of published tables.

Both are built into one library. Of each problem, the workgroup of the last queries is run and replayed, because it sees
most keys under a causal mask. The launch has one KV head and its query heads: KV heads differ in their numbers alone,
and 40 of them would need gigabytes.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import subprocess
from pathlib import Path

from ckpm.base.display import show
from ckpm.base.errors import MeasureError
from ckpm.base.outputs import demand_place
from ckpm.base.processes import own_environment, python_command
from ckpm.base.rocm_choice import add_rocm_options
from ckpm.kernels.library.request import LIBRARY, folder_name
from ckpm.matrix.dialects import DEFAULT_FAMILY
from ckpm.matrix.problems.case import TIERS, SuiteCase
from ckpm.matrix.problems.performance import performance_problems
from ckpm.matrix.problems.serving import missing_kernel, serving_kernels
from ckpm.timing.command import summary
from ckpm.timing.modelling import Modelled, ModelRequest, open_library
from ckpm.timing.record import Timed, Timings

ARCH, UPSTREAM, TIER = "gfx950", "ckpm-v3", TIERS[-1]
PUBLISHED = "performance/published_fp8.*"  # pull request 6054: its two tables
WORK = Path("build/tables")
VERSIONS = ("on", "off")  # a problem's field v3: V3, then V2
# the kernels that serve them
WHERE = (
    "key.dtype == 'fp8bf16' and key.hdim_q == 128 and key.kv_layout == 'linear' and key.kv_table == 'sglang' "
    "and not (key.logits or key.lse or key.dropout or key.sink) and key.bias == 'no' "
    "and (key.page_size == 1 and key.qscale == 'pertensor' or key.page_size == 1024 and key.qscale == 'kv_blockscale')"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--problem", default=PUBLISHED, metavar="GLOB", help="problems of the tables (default: all)")
    add_rocm_options(parser, "toolchain")
    parser.add_argument("--work", type=Path, default=WORK, metavar="DIR", help="where to build (default: %(default)s)")
    parser.add_argument(
        "--output", type=Path, default=Path("build/timing-tables.json"), metavar="FILE", help="(default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Model the problems of the tables, and write the timings."""
    demand_place(args.output)
    timings = model(args.problem, args.toolchain, args.work)
    timings.write(args.output)
    for timed in timings.problems:
        show(summary(timed))
    show(f"{len(timings.problems)} workgroups modelled on {ARCH}: {args.output}")
    return 0


def model(problems: str, toolchain: str, work: Path) -> Timings:
    """Build, and model each problem of the glob on V3 and on V2; a problem has a row of each."""
    chosen = [problem for problem in performance_problems(TIER) if fnmatch.fnmatchcase(problem.name, problems)]
    if not chosen:
        raise MeasureError(f"no problem fits '{problems}'. See matrix/performance.yaml.")
    modelled = open_library(library(toolchain, work), ARCH)
    rows = tuple(_model_row(modelled, problem, version) for problem in chosen for version in VERSIONS)
    return Timings(provenance=modelled.provenance(TIER), problems=rows)


_SHORT = 8192  # keys of a problem that is replayed with start offsets and other numbers, too
_SHOWN = 2000  # characters of a build that failed


def library(
    toolchain: str, work: Path, *, upstream: str = UPSTREAM, family: str = DEFAULT_FAMILY, where: str = WHERE
) -> Path:
    """Build kernels for ARCH below ``work``; by default the kernels of both versions that serve the tables."""
    command = [*python_command("-m", "ckpm", "build", "--arch", ARCH, "--toolchain", toolchain)]
    command += ["--upstream", upstream, "--family", family, "--tier", "full", "--where", where]
    show(f"building {upstream}, family {family}, below {work}")
    process = subprocess.run(
        [*command, "--work", str(work.absolute())], env=own_environment(), capture_output=True, text=True, check=False
    )  # fmt: skip
    if process.returncode != 0:
        raise MeasureError(f"a library could not be built: {(process.stdout + process.stderr)[-_SHOWN:].strip()}")
    return work / "build" / ARCH / folder_name(upstream, family) / LIBRARY


def _model_row(modelled: Modelled, problem: SuiteCase, version: str) -> Timed:
    """Model a problem with one KV head on V3 or V2."""
    head = dataclasses.replace(problem, nhead_q=problem.nhead_q // problem.nhead_k, nhead_k=1, v3=version)
    if why := missing_kernel(modelled.keys, head):
        raise MeasureError(f"{problem.name}: {why}")
    key = serving_kernels(modelled.keys, head)[0]
    tiles = -(-problem.seqlens_q[0] // key.tile.bm0)
    short = problem.seqlens_k[0] <= _SHORT
    last = 0 if version == "on" else tiles - 1  # V3's tiles run backwards
    part = ModelRequest(workgroup=last, heads=problem.nhead_k, offsets=short, sensitivity=short)
    timed = modelled.model(head, key.name, part)
    if isinstance(timed, str):
        raise MeasureError(f"{problem.name}: {timed}")
    if timed.launched != tiles * problem.nhead_q:
        raise MeasureError(f"{problem.name}: {timed.launched} workgroups instead of one for each tile of {key.name}.")
    return timed

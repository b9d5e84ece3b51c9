"""``python -m kernels measure``: run the problems of matrix/tables/performance.yaml and store what the emulator counts.

Counts don't depend on the machine, its load or the number of threads: two runs of the same library give the same file.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernels.base import settings
from kernels.build import manifest
from kernels.build.request import LIBRARY
from kernels.errors import MeasureError
from kernels.families.libraries import host
from kernels.launch.counters import LIBRARY_FACTS, Measured, Measurements, flattened
from matrix.base.errors import CkPrefillError, UnknownTierError
from matrix.dialects import TABLES, check_arch, check_upstream
from matrix.keys import Key
from matrix.options import DEFAULT_ARCH, DEFAULT_FAMILY, DEFAULT_UPSTREAM
from matrix.problems.ledger import Ledger, read_ledger
from matrix.problems.problem import TIERS, Problem, missing, serves
from matrix.problems.tables import read

TABLE = TABLES / "performance.yaml"
_GPU_PAGE = 4096  # what a GPU maps at once: a read past a buffer's end but inside its page is no fault there


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", default=DEFAULT_ARCH, help="(default: %(default)s)")
    parser.add_argument("--upstream", default=None, help=f"(default: {DEFAULT_UPSTREAM}, checkout if CK_ROOT is set)")
    parser.add_argument("--tier", default="smoke", help=f"{', '.join(TIERS)} (default: %(default)s)")
    parser.add_argument("--work", type=Path, default=Path(), help="folder that holds build/ (default: here)")
    parser.add_argument("--library", type=Path, default=None, metavar="FILE", help="instead of the one in build/")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the JSON file to write")


def run(args: argparse.Namespace) -> int:
    arch = check_arch(args.arch).name
    upstream = settings.upstream(args.upstream, settings.ck_root())
    if upstream != "checkout":
        check_upstream(upstream)
    library = args.library or args.work / "build" / arch / upstream / LIBRARY
    found = measure(library, arch, args.tier)
    found.write(args.output)
    for name, why in found.left_out.items():
        print(f"left out: {name}: {why}")
    print(f"{len(found.problems)} problems of tier {args.tier} on the emulated {arch}: {args.output}")
    return 0


def performance_problems(tier: str) -> tuple[Problem, ...]:
    """The table's problems that a tier runs, in its order. Raises UnknownTierError, TableError."""
    if tier not in TIERS:
        raise UnknownTierError(tier, TIERS)
    tiers = TIERS[: TIERS.index(tier) + 1]
    return tuple(problem for one in tiers for problem in read(TABLE, "performance", one))


def compulsory_bytes(problem: Problem) -> int:
    """Bytes of Q, K, V and O, each once: what has to cross the memory's pins whatever is cached."""
    p = problem
    queries, keys = sum(p.seqlens_q) * p.nhead_q, sum(p.seqlens_k) * p.nhead_k
    inputs = (queries * p.hdim_q + keys * (p.hdim_q + p.hdim_v)) * p.element_bytes
    return inputs + queries * p.hdim_v * (4 if p.dtype == "fp32" else 2)


def measure(library: Path, arch: str, tier: str) -> Measurements:
    """Run every problem of the tier that the library serves.

    Raises:
        MeasureError: there is no library or manifest, none of the problems can be run, or one faults or is refused.
        DeviceError, LibraryError: the emulator can't be started, the library not loaded.
    """
    from kernels.launch.device import choose  # only here: other commands do without NumPy and the emulator

    facts = manifest_of(library, arch)
    device = choose("emulator", arch, granularity=_GPU_PAGE)
    loaded = device.load(library)
    keys = keys_of(facts, loaded.kernels, library)
    found, left_out = [], {}
    for problem in performance_problems(tier):
        if why := missing(keys, problem):
            left_out[problem.name] = why
            continue
        named = next(key.name for key in keys if serves(key, problem)) if problem.tile_rows else None
        measured = _launched(device, loaded, problem, named, facts)
        if isinstance(measured, str):
            left_out[problem.name] = measured
            continue
        found.append(measured)
    if not found:
        raise MeasureError(f"{library}: it serves none of the {len(left_out)} problems. Build more: --tier full.")
    provenance = {"arch": arch, **{name: facts[name] for name in LIBRARY_FACTS}, "tier": tier}
    return Measurements(provenance=provenance, problems=tuple(found), left_out=left_out)


def _launched(
    device: Any, loaded: Any, problem: Problem, named: str | None, facts: Mapping[str, Any]
) -> Measured | str:
    """What was counted, or which known defect of the upstream (matrix/ledger.yaml) keeps it from being counted.

    Raises:
        MeasureError: it faults or is refused, or runs in spite of the ledger.
        LedgerError: the ledger's entry has expired.
    """
    from kernels.launch.buffers import prepare

    try:
        outcome = host(loaded.family).launch(device, loaded, prepare(problem, device.arch), named)
    except CkPrefillError as error:
        raise MeasureError(f"{problem.name}: {error}") from error
    ledger = read_ledger()
    verdict = ledger.judge(problem.name, facts["upstream"], device.arch, "passed" if outcome.ran else "fault")
    if verdict.kind == "known" and verdict.entry and outcome.fault:
        Ledger(file=ledger.file, entries=(verdict.entry,)).check_dates(datetime.date.today())
        device.recover()
        return verdict.text
    if verdict.kind == "unexpected_pass":
        raise MeasureError(f"{problem.name} {verdict.text}")
    if not outcome.ran:
        told = outcome.fault.message if outcome.fault else outcome.launch.message
        raise MeasureError(f"{problem.name}: the launch failed: {told}. See nox -s test-batch-prefill.")
    kernel = outcome.launch.kernel or named or ""
    resources = facts["kernels"][kernel]["archs"][device.arch]
    return Measured(
        problem=problem.name,
        kernel=kernel,
        dtype=problem.dtype,
        occupancy_waves=resources["occupancy_waves"],
        compulsory_bytes=compulsory_bytes(problem),
        counters=flattened(outcome.counters),
    )


def manifest_of(library: Path, arch: str) -> Mapping[str, Any]:
    """The manifest beside a library. Raises MeasureError."""
    file = library.with_name("manifest.json")
    for one in (library, file):
        if not one.is_file():
            raise MeasureError(f"{one}: no such file. Build the library first: nox -s build-{arch}")
    try:
        facts: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if arch not in facts["archs"]:
            raise MeasureError(f"{library} is built for {', '.join(facts['archs'])}, not for {arch}.")
        if absent := [name for name in (*LIBRARY_FACTS, "kernels") if name not in facts]:
            raise MeasureError(f"{file}: field {absent[0]} is missing. Build it anew.")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MeasureError(f"{file}: no manifest of a built library: {error!r}. Build it anew.") from error
    return facts


def keys_of(facts: Mapping[str, Any], names: Sequence[str], library: Path) -> tuple[Key, ...]:
    """Keys of the library's kernels in dispatch order. Raises MeasureError: its manifest is another library's."""
    if set(facts["kernels"]) != set(names):
        raise MeasureError(f"{library}: its manifest lists other kernels than it holds. Build it anew.")
    return manifest.keys_of(facts, names, (DEFAULT_FAMILY,))

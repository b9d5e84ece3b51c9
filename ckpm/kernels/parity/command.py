"""The command ``ckpm parity``: compare our kernels and C++ with the output of CK's own generator."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

from ckpm.base import jobs, junit, settings
from ckpm.base.display import show
from ckpm.base.errors import CheckFailedError, UsageError
from ckpm.base.results import Results
from ckpm.base.rocm_choice import add_rocm_options
from ckpm.kernels.code.toolchains import detect
from ckpm.kernels.parity.cases import ParityRequest, compare_upstreams
from ckpm.matrix.dialects import (
    FAMILIES,
    HAND_WRITTEN,
    archs,
    check_arch,
    check_family,
    check_receipt,
    receipts,
    upstreams,
)
from ckpm.matrix.families import MASK_IMPLS
from ckpm.matrix.options import split_words

_SHOWN = 10
_FAMILIES = (*FAMILIES, *HAND_WRITTEN)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add options, each of which narrows the comparison; lists are repeated or separated by commas."""
    parser.add_argument(
        "--upstream", action="append", metavar="NAME", help="packages of CK to compare with (default: all), or checkout"
    )
    parser.add_argument("--family", action="append", metavar="FAMILY", help=f"default: {', '.join(_FAMILIES)}")
    parser.add_argument("--arch", action="append", metavar="ARCH", help=f"default: {', '.join(archs())}")
    parser.add_argument("--receipt", action="append", metavar="N", help="default: all")
    parser.add_argument("--mask", choices=MASK_IMPLS, action="append", help="default: both mask sets")
    parser.add_argument("--ck-root", type=Path, default=None, help="a CK checkout to compare with; default: CK_ROOT")
    parser.add_argument("--no-machine-code", action="store_true", help="start no compiler")
    parser.add_argument("--no-stored", action="store_true", help="leave the stored name lists out")
    add_rocm_options(parser, "toolchain")
    parser.add_argument("--jobs", "-j", type=int, default=None, help="compilers at once; default: by memory")
    parser.add_argument("--output", type=Path, default=None, metavar="FILE", help="write the results as JSON")
    parser.set_defaults(run=run_command)


def request_from(args: argparse.Namespace) -> ParityRequest:
    """Return the request of the options."""
    if args.jobs is not None and args.jobs < 1:
        raise UsageError("--jobs must be at least 1")
    cache = settings.cache_folder()
    comparable = tuple(name for name, package in upstreams().items() if package.has_codegen)
    upstream_names = split_words("--upstream", args.upstream, comparable)
    if own := [name for name in upstream_names if name in upstreams() and name not in comparable]:
        raise UsageError(f"--upstream {', '.join(own)}: has no codegen to compare with. Known: {', '.join(comparable)}")
    ck_root = settings.ck_root(args.ck_root, upstream_names if args.upstream else ())
    # A checkout takes part as soon as it is named.
    checkout = ("checkout",) if ck_root and not args.upstream else ()
    return ParityRequest(
        upstreams=(*upstream_names, *checkout),
        families=tuple(check_family(name) for name in split_words("--family", args.family, _FAMILIES)),
        archs=tuple(check_arch(name).name for name in split_words("--arch", args.arch, tuple(archs()))),
        receipts=tuple(
            check_receipt(number) for number in split_words("--receipt", args.receipt, [*map(str, receipts())])
        ),
        masks=tuple(args.mask or MASK_IMPLS),
        cache=cache,
        ck_root=ck_root,
        toolchain=None if args.no_machine_code else detect(args.toolchain, cache=cache),
        job_count=jobs.job_count(args.jobs),
        stored=not args.no_stored,
    )


def run_command(args: argparse.Namespace) -> int:
    """Run the command; return 0 if everything agrees. The results are written before a difference is raised."""
    started = time.monotonic()
    if args.output is not None:
        junit.clear(args.output)
    results = compare_upstreams(request_from(args))
    if not results.cases:
        raise UsageError("nothing to compare for this --upstream, --family and --arch: leave one of them out.")
    if args.output is not None:
        results.write(args.output)
        junit.write_beside(results, args.output)
    show(table(results))
    show(f"{len(results.cases)} cases in {time.monotonic() - started:.1f} s")
    if results.failing:
        lines = [f"  {case.classname}: {case.name}: {case.message}" for case in results.failing[:_SHOWN]]
        rest = [f"  and {len(results.failing) - _SHOWN} more"] if len(results.failing) > _SHOWN else []
        where = f" Read {args.output}." if args.output else ""
        raise CheckFailedError(
            "\n".join([f"{len(results.failing)} cases differ or failed.{where}", *lines, *rest]), kind="parity"
        )
    return 0


def table(results: Results) -> str:
    """Return a table of cases by suite and outcome."""
    suites = list(dict.fromkeys(case.group for case in results.cases))
    width = max((len(suite) for suite in suites), default=0)
    lines = []
    for suite in suites:
        counts = Counter(case.outcome for case in results.cases if case.group == suite)
        lines.append(f"{suite:<{width}}  " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return "\n".join(lines)

"""``python -m triton_launches --arch A``: run the cases of an arch, a line of JSON for each: name, outcome, detail.

A process has one emulated device, so that each arch has a process of its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ckpm_emulator.errors import DeviceError, InputError
from ckpm_emulator.standalone import ALLOWED, CHECKS
from conformance.gtests import ALL
from conformance.stored import OUTCOMES, PASSED, UNSUPPORTED, WRONG, store
from triton_launches.cases import ARCHS, Case
from triton_launches.machine import Machine

STORED = OUTCOMES / "triton.yaml"
GROUPS = ("elementwise", "shapes", "products")
_LACKS = re.compile(r"the emulator lacks ([^:]+):")


class Outcome(NamedTuple):
    """``detail``: what the emulator lacks, or how the result differs; nothing of a case that passes."""

    name: str
    outcome: str
    detail: str


def cases(arch: str, groups: Sequence[str] = GROUPS) -> Iterator[Case]:
    """Cases of an arch. The modules are imported here, because they need Triton."""
    from triton_launches import elementwise_cases, products_cases, shapes_cases

    modules = {"elementwise": elementwise_cases, "shapes": shapes_cases, "products": products_cases}
    return itertools.chain.from_iterable(modules[group].cases(arch) for group in groups)


def outcome(case: Case, machine: Machine) -> Outcome:
    """A fault, and a kernel that Triton doesn't compile, count as wrong."""
    try:
        case.check(machine)
    except (AssertionError, DeviceError, InputError) as error:
        lacking = _LACKS.search(str(error)) if isinstance(error, DeviceError) else None
        return Outcome(case.name, UNSUPPORTED if lacking else WRONG, lacking[1] if lacking else str(error))
    return Outcome(case.name, PASSED, "")


def parser() -> argparse.ArgumentParser:
    """Arguments of the command line."""
    arguments = argparse.ArgumentParser(prog="python -m triton_launches", description=__doc__, allow_abbrev=False)
    arguments.add_argument("--arch", choices=ARCHS, required=True)
    arguments.add_argument("--group", choices=GROUPS, action="append", help="all of them, unless one is named")
    arguments.add_argument("--only", action="append", metavar="WORD", help="cases with one of these words in the name")
    arguments.add_argument("--checks", choices=("", ALL), default="", help="all: what a check reports counts as wrong")
    arguments.add_argument("--store", action="store_true", help="run all cases and store their outcomes for the arch")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0, also if cases fail: the caller compares the outcomes."""
    options = parser().parse_args(argv)
    if options.store and (options.group or options.only):
        parser().error("--store needs all cases: leave out --group and --only")
    import triton

    warnings.filterwarnings("ignore", module="triton.*")
    machine = Machine(options.arch, {*CHECKS} - {*ALLOWED, "leaks"} if options.checks else ())
    ended: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:  # code in the user's cache may be of an older kernel
        triton.knobs.cache.dir = folder
        for case in cases(options.arch, options.group or GROUPS):
            if any(word in case.name for word in options.only or [""]):
                ended.append(outcome(case, machine))
                print(json.dumps(ended[-1]._asdict()), flush=True)
    if options.store:
        seen = {case.name: (case.outcome, case.detail) for case in ended}
        store(STORED, options.arch, seen, checked=bool(options.checks))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""``python -m tests.triton --arch A``: run the cases of an arch, a line of JSON for each: name, outcome, detail.

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

from kernels.errors import DeviceError
from kernels.guard.errors import KernelFileError
from tests.triton.cases import ARCHS, Case
from tests.triton.machine import Machine

PASSED, UNSUPPORTED, WRONG = "passed", "unsupported", "wrong"
GROUPS = ("elementwise", "shapes", "products")
_LACKS = re.compile(r"the emulator lacks ([^:]+):")


class Outcome(NamedTuple):
    """``detail``: what the emulator lacks, or how the result differs; nothing of a case that passes."""

    name: str
    outcome: str
    detail: str


def cases(arch: str, groups: Sequence[str] = GROUPS) -> Iterator[Case]:
    """Those of an arch. The modules are imported here: they need Triton."""
    from tests.triton import elementwise_cases, products_cases, shapes_cases

    known = {"elementwise": elementwise_cases, "shapes": shapes_cases, "products": products_cases}
    return itertools.chain.from_iterable(known[group].cases(arch) for group in groups)


def outcome(case: Case, machine: Machine) -> Outcome:
    """A fault, and a kernel that Triton doesn't compile, count as wrong."""
    try:
        case.check(machine)
    except (AssertionError, DeviceError, KernelFileError) as error:
        lacking = _LACKS.search(str(error)) if isinstance(error, DeviceError) else None
        return Outcome(case.name, UNSUPPORTED if lacking else WRONG, lacking[1] if lacking else str(error))
    return Outcome(case.name, PASSED, "")


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    made = argparse.ArgumentParser(prog="python -m tests.triton", description=__doc__, allow_abbrev=False)
    made.add_argument("--arch", choices=ARCHS, required=True)
    made.add_argument("--group", choices=GROUPS, action="append", help="all of them, unless one is named")
    made.add_argument("--only", default="", metavar="WORD", help="cases whose names have it")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """0, or what argparse ends with."""
    options = parser().parse_args(argv)
    import triton

    warnings.filterwarnings("ignore", module="triton.*")
    machine = Machine(options.arch)
    with tempfile.TemporaryDirectory() as folder:  # what another version of a kernel was compiled to is no evidence
        triton.knobs.cache.dir = folder
        for case in cases(options.arch, options.group or GROUPS):
            if options.only in case.name:
                print(json.dumps(outcome(case, machine)._asdict()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

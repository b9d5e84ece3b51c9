"""``python -m tests.emulated.plain_launches LIBRARY CORE OPTIONS``: what problems of the smoke tier end in, as JSON.

A process has one core. OPTIONS is JSON of options of the device. Of each problem: hashes of its outputs, or its fault,
and all counters.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from ckpm.attention.launch.buffers import prepare
from ckpm.attention.launch.c_abi import Library
from ckpm.attention.launch.device import Device, choose
from ckpm.attention.launch.launching import run_problem
from ckpm.matrix.problems.case import SuiteCase, wave_instructions
from ckpm.matrix.problems.tables import problems
from ckpm_emulator import toolchain

ARCH, MOST = "gfx950", 300_000  # wave-instructions of a problem: one with the checks on takes seconds
COUNT = 8


def chosen() -> Iterator[SuiteCase]:
    return itertools.islice((p for p in problems("batch-prefill") if 0 < wave_instructions(p) < MOST), COUNT)


def problem_record(device: Device, library: Library, problem: SuiteCase) -> dict[str, Any]:
    """The outcome of a problem in plain values."""
    device.restart_addresses()
    outcome = run_problem(device, library, prepare(problem, ARCH))
    return {
        "status": str(outcome.launch.status),
        "fault": outcome.fault.message if outcome.fault else "",
        "outputs": {name: hashlib.sha256(data.tobytes()).hexdigest() for name, data in outcome.outputs.items()},
        "counters": outcome.counters,
    }


def main() -> None:
    path, core, options = sys.argv[1:]
    with mock.patch.object(toolchain, "library", return_value=Path(core)):
        device = choose("emulator", ARCH, threads=1, **json.loads(options))
    library = device.load(Path(path))
    print(json.dumps({problem.name: problem_record(device, library, problem) for problem in chosen()}))


if __name__ == "__main__":
    main()

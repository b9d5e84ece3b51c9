"""The smoke tier of batch-prefill over HIP: a worker on the emulated device, as on a GPU, with programs' checks."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from ckpm.base.results import LIBRARY_SHA256
from ckpm.matrix.dialects import DEFAULT_FAMILY
from ckpm.suites import suites
from ckpm.suites.pool import ENVIRONMENT, START_SECONDS, Worker, worker_command
from conformance.gtests import ROOT, judge
from conformance.stored import UNSUPPORTED, Outcome

SUITE, UPSTREAM = "batch-prefill", "ckpm"
_CASES = 200  # of 2,225: more take hours under all checks


def outcomes(args: argparse.Namespace) -> Iterator[tuple[str, Outcome]]:
    """The outcome of each of the first cases that the built library runs."""
    library = suites.locate(Path(), args.arch, UPSTREAM)
    setup = {
        "device": "hip", "arch": args.arch, "library": str(library.library), "manifest": str(library.manifest_file),
        "family": DEFAULT_FAMILY, "threads": 0, "hazards": False, "sha256": library.file_facts[LIBRARY_SHA256],
    }  # fmt: skip
    emulator = (sys.executable, "-m", "ckpm_emulator", "run", f"--arch={args.arch}", f"--checks={args.checks}", "--")
    environment = {**ENVIRONMENT, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT.parent}"}
    chosen, _ = suites.select_cases(suites.cases(SUITE, "smoke", "hip"), library.manifest, args.arch)
    worker: Worker | None = None
    for case in chosen[:_CASES] if args.only is None else [case for case in chosen if case.name == args.only]:
        if worker is None or not worker.alive:
            worker = Worker((*emulator, *worker_command(setup)), environment, START_SECONDS)
        reply = worker.run(case)
        message = str(reply.get("message", ""))
        if reply["outcome"] == UNSUPPORTED:
            yield case.name, (UNSUPPORTED, message)
        else:
            report = f"{message}\n{worker.error_tail()}"
            yield case.name, judge("OK" if reply["outcome"] == "passed" else str(reply["outcome"]), report)
    if worker is not None:
        worker.stop()

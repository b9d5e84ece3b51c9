"""A warm worker process: ``python -m suites.worker SETUP``. It loads the library once and runs cases.

Each line of standard input is a request (JSON), each line of its answers, written to the first standard output, a
reply. The library's own printing goes to standard error. The first reply reports that the worker is ready, or why not.
"""

from __future__ import annotations

import dataclasses
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from ckpm.base.entry import name_process_limits
from ckpm.base.errors import CkPrefillError, LibraryError

_REST_SECONDS = 1.0
Runner = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def serve(requests: Iterable[str], answers: TextIO, start: Callable[[], tuple[Mapping[str, Any], Runner]]) -> int:
    """Answer requests until there are none, or a reply is ``last``. Each request gets one line, even after an error."""

    def answer(reply: Mapping[str, Any]) -> None:
        answers.write(json.dumps(reply) + "\n")
        answers.flush()

    try:
        facts, run = start()
    except CkPrefillError as error:
        answer({"refused": str(error), "exit_code": error.exit_code})
        return error.exit_code
    answer({"ready": dict(facts)})
    for line in requests:
        try:
            reply = run(json.loads(line))
        except Exception as error:  # a mistake here or in the problem: no verdict on the kernel
            message = str(error) if isinstance(error, CkPrefillError) else f"{type(error).__name__}: {error}"
            reply = {"outcome": "infrastructure", "message": message, "lines": traceback.format_exc().splitlines()}
        answer(reply)
        if reply.get("last"):
            break
    return 0


def start(setup: Mapping[str, Any]) -> tuple[Mapping[str, Any], Runner]:
    """Load the device and the library of a setup, whose members are device, arch, library, sha256, manifest, threads,
    hazards and family (the library's name).
    """
    # Only here: the tests of serve() do without NumPy and the emulator.
    from ckpm.attention.launch.device import choose
    from ckpm.kernels.families.libraries import host
    from ckpm.matrix.problems.tables import find
    from ckpm.suites.checks import CaseBench, run_case
    from ckpm.suites.kernel_cases import run_kernel
    from ckpm.suites.suites import manifest_keys

    emulated = {"threads": setup["threads"], "hazards": setup["hazards"]}
    device = choose(setup["device"], setup["arch"], **(emulated if setup["device"] == "emulator" else {}))
    family, path = setup["family"], Path(setup["library"])
    library = device.load(path, host(family).arguments, setup["sha256"])
    if library.family != family:
        raise LibraryError(f"{path}: it holds kernels of {library.family}, not of {family}. Ask for that --family.")
    keys = manifest_keys(Path(setup["manifest"]), library.kernels)
    bench = CaseBench(device=device, library=library, keys=keys)

    def run(request: Mapping[str, Any]) -> Mapping[str, Any]:
        if host(family).table_problems:
            result = run_case(bench, find(request["case"]), request["variants"], request["signatures"])
        else:
            result = run_kernel(bench, request["case"], request["signatures"])
        return {**dataclasses.asdict(result), "last": device.lost}  # a lost GPU answers nothing more in this process

    facts = {"device": device.kind, "arch": device.arch, "compute_units": device.compute_units, "kernels": len(keys)}
    return facts, run


def end_with_pool() -> None:
    """Watch the pool: this process and its children (compilers of the emulator's core) end soon after the pool.

    A pool that was killed can't send a message, but its end of standard input is closed then. A pool that ends a worker
    in an orderly way closes it, too. An idle worker has ended by then.
    """

    def watch() -> None:
        poll = select.poll()
        poll.register(0, 0)  # 0: its hang-up alone, requests are for others
        poll.poll()
        time.sleep(_REST_SECONDS)
        os.killpg(0, signal.SIGKILL)

    if os.getsid(0) == os.getpid():  # as the pool starts workers; one started by hand may be fed by a pipe that ends
        threading.Thread(target=watch, daemon=True).start()


def main(argv: list[str]) -> int:
    setup = json.loads(argv[0])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer

    def begin() -> tuple[Mapping[str, Any], Runner]:
        with name_process_limits():
            end_with_pool()
            return start(setup)

    return serve(sys.stdin, answers, begin)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # the device goes with the process: destructors of libraries could only crash now

"""Run a command that ends with its owner: ``guard.py PIPE COMMAND...``. Standard library only.

The owner has the other end of the pipe. When the owner closes it or ends, the command's process group is killed. The
guard ends with the command's exit code or signal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

_NOT_STARTED = 127  # the exit code of a shell


def main(arguments: Sequence[str]) -> int:
    owner = int(arguments[0])
    os.set_inheritable(owner, False)
    try:
        process = subprocess.Popen(arguments[1:], process_group=0)
    except OSError as error:
        print(f"{arguments[1]} can't be started: {error}", flush=True)
        return _NOT_STARTED
    threading.Thread(target=_end_with, args=(owner, process.pid), daemon=True).start()
    code = process.wait()
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _end_with(owner: int, leader: int) -> None:
    os.read(owner, 1)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

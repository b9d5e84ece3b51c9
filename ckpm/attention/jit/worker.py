"""``python -m ckpm.attention.jit.worker ORDER JOBS owner=PID``: compile the order of a file, in the file's folder.

The worker is a process of its own. If the process PID ends or is killed, the worker and its compilers end, too.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from ckpm.attention.cpp.index import write_index
from ckpm.attention.jit.orders import Order
from ckpm.base import logs, settings
from ckpm.base.entry import exit_code
from ckpm.base.files import write_atomically
from ckpm.base.processes import end_with_owner
from ckpm.base.records import as_text
from ckpm.kernels.code.toolchains import detect
from ckpm.kernels.library import building

TALLY = "tally.json"  # written at the end, in the folder of the order


def compile_order(file: Path, jobs: int) -> int:
    """Build an order's library below the folder of its file, and return 0."""
    order = Order.read(file)
    cache, origin = settings.cache_folder(), order.origin
    request = order.request(origin.tree(cache), detect(origin.toolchain, cache=cache), file.parent)
    tally = building.run(request, jobs=jobs)
    write_index(request.work / request.folder)
    write_atomically(file.with_name(TALLY), as_text({"compilers": tally.seconds}))
    return 0


def main(argv: list[str]) -> int:
    file, jobs, owner = argv
    end_with_owner(int(owner.removeprefix("owner=")), threading.Event().set)
    with logs.print_logs():
        return exit_code(lambda: compile_order(Path(file), int(jobs)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

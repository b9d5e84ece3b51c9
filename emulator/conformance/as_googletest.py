"""Run functions of Python as the tests of a googletest program: its options, its output.

Programs of other projects' Python import this file; it needs nothing of the emulator.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence

_LIST, _FILTER = "--gtest_list_tests", "--gtest_filter="


def run(tests: Mapping[str, Callable[[], object]], requests: Sequence[str]) -> None:
    """List the tests, which are named suite.test, or run the requested ones. A test that raises has failed."""
    if _LIST in requests:
        for name in tests:
            print("{}.\n  {}".format(*name.split(".", 1)))
        return
    for name in requests[-1].removeprefix(_FILTER).split(":"):
        print(f"[ RUN      ] {name}", flush=True)
        end = "       OK "
        try:
            tests[name]()
        except Exception as error:  # of any kind that a tested project has
            end = "  FAILED  "
            print(traceback.format_exc(), f"Failure: {' '.join(str(error).split())[-400:]}", sep="\n")
        print(f"[{end}] {name} (0 ms)", flush=True)

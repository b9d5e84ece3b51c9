"""Run a file of tinygrad's tests on its HIP device: ``python tinygrad_tests.py FILE OPTION...`` of googletest.

The Python is of a root with Debian's libamd-comgr, which compiles the kernels.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path

import as_googletest


def _set_variables() -> None:
    """Set what tinygrad asks for: it opens libraries by their paths, and forked compilers would hang."""
    folders = [*os.environ["LD_LIBRARY_PATH"].split(":"), f"{sys.prefix}/lib/x86_64-linux-gnu"]

    def library(name: str) -> str:
        return next(str(file) for folder in folders if (file := Path(folder, name)).is_file())

    comgr = library("libamd_comgr.so.3")
    values = {"HIP_PATH": library("libamdhip64.so"), "COMGR_PATH": comgr, "COMGR_3_PATH": comgr}
    os.environ.update(values, DEV="HIP", PARALLEL="0", CACHELEVEL="0")


def _cases(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _cases(test)
        else:
            yield test


def main(path: str, *requests: str) -> None:
    """List or run the tests of a file."""
    _set_variables()
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cases = _cases(unittest.defaultTestLoader.loadTestsFromModule(module))
    as_googletest.run({case.id().partition(".")[2]: case.debug for case in cases}, requests)


if __name__ == "__main__":
    main(*sys.argv[1:])

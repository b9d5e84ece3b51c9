"""Run the tests of a file of unittest: ``python unittest_tests.py FILE OPTION...`` of googletest.

tinygrad finds the emulated device by this file: it opens a library by its path, and ``--root`` hides LD_LIBRARY_PATH's.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path

import as_googletest


def _cases(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _cases(test)
        else:
            yield test


def main(path: str, *requests: str) -> None:
    """List or run the tests of a file."""
    for folder in os.environ["LD_LIBRARY_PATH"].split(":"):
        if (library := Path(folder, "libamdhip64.so")).is_file():
            os.environ.setdefault("HIP_PATH", str(library))
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cases = _cases(unittest.defaultTestLoader.loadTestsFromModule(module))
    as_googletest.run({case.id().partition(".")[2]: case.debug for case in cases}, requests)


if __name__ == "__main__":
    main(*sys.argv[1:])

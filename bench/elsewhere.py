"""``python -m kernels benchmark``: another name of ``python -m attention benchmark``, which kernels/ may not import.

It needs the dispatcher's plans, float64 reference and tuning database. This process becomes that command's.
"""

from __future__ import annotations

import argparse
import os
import sys

from ckpm.base.settings import IMPORTS


def add_options(parser: argparse.ArgumentParser) -> None:
    """Every word is handed on, also those that look like options of this parser."""
    parser.prefix_chars = "\0"
    parser.add_argument("words", nargs="*", metavar="OPTION", help="see python -m attention benchmark --help")


def run(args: argparse.Namespace) -> int:
    """Does not return."""
    path = os.pathsep.join(filter(None, (str(IMPORTS), os.environ.get("PYTHONPATH"))))
    sys.stdout.flush()
    os.execve(  # noqa: S606 - no shell
        sys.executable,
        [sys.executable, "-m", "ckpm.attention", "benchmark", *args.words],
        {**os.environ, "PYTHONPATH": path},
    )

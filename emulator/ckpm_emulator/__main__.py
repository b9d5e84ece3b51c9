"""Run ``ckpm-emulator COMMAND``, or ``python -m ckpm_emulator COMMAND``; ``cli.py`` has the commands."""

from __future__ import annotations

import sys

from ckpm_emulator.base.importing import Importing


def run() -> int:
    """Run the command of the command line; return its exit code."""
    with Importing():
        from ckpm_emulator.cli import main
    return main()


if __name__ == "__main__":
    sys.exit(run())

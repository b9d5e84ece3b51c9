"""``python -m tests.gpu``: run a suite of GPU tests on a GPU or the emulator."""

from __future__ import annotations

import sys

from tests.gpu.cli import main

if __name__ == "__main__":  # processes that a command starts may import this
    sys.exit(main())

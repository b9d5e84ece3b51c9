"""``python -m kernels COMMAND``: build, manifest, parity, reproduce, doctor, bench."""

from __future__ import annotations

import sys

from kernels.cli import main

if __name__ == "__main__":  # processes that a command starts may import this
    sys.exit(main())

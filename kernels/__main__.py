"""``python -m kernels COMMAND``: build, manifest, parity, reproduce, doctor, bench."""

from __future__ import annotations

import sys

from ckpm.base.importing import Importing

if __name__ == "__main__":  # processes that a command starts may import this module
    with Importing():
        from ckpm.kernels.cli import main
    sys.exit(main())

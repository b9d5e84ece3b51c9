"""``python -m suites``: run a suite of GPU tests on a GPU or the emulator."""

from __future__ import annotations

import sys

from ckpm.base.importing import Importing

if __name__ == "__main__":  # processes that a command starts may import this
    with Importing():
        from ckpm.suites.cli import main
    sys.exit(main())

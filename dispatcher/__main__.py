"""``python -m dispatcher COMMAND``."""

from __future__ import annotations

import sys

from matrix.base.importing import Importing

if __name__ == "__main__":  # processes that a command starts may import this
    with Importing():
        from dispatcher.cli import main
    sys.exit(main())

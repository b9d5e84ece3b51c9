"""``python -m reports COMMAND``."""

from __future__ import annotations

import sys

from reports.cli import main

if __name__ == "__main__":  # processes that a command starts may import this
    sys.exit(main())

"""Entry point of ``python -m workflows``."""

import sys

from ckpm.workflows.cli import main

if __name__ == "__main__":
    sys.exit(main())

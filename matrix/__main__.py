"""``python -m matrix COMMAND``."""

from __future__ import annotations

import gc
import sys

from ckpm.base.importing import Importing

if __name__ == "__main__":  # processes that a command starts may import this
    with Importing():
        from ckpm.matrix.cli import main
    gc.disable()  # keys live as long as the process, and looking through them for garbage took a tenth of it
    sys.exit(main())

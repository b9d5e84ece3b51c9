"""``python -m kernels COMMAND``: build, manifest, parity, reproduce, doctor, bench."""

from __future__ import annotations

import sys

from kernels.cli import main

sys.exit(main())

"""``python -m tests.gpu``: run a suite of GPU tests on a GPU or the emulator."""

from __future__ import annotations

import sys

from tests.gpu.cli import main

sys.exit(main())

"""Settings of all tests: hypothesis has no time limit, as the machine may be busy, and bytecode is kept."""

import sys

from hypothesis import settings

# Many containers set PYTHONDONTWRITEBYTECODE. Without bytecode each process that a test starts compiles for seconds.
sys.dont_write_bytecode = False
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

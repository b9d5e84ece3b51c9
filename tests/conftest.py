"""What every test shares: hypothesis judges results, never seconds (a busy machine is no defect); bytecode is kept."""

import sys

from hypothesis import settings

# Also where PYTHONDONTWRITEBYTECODE is set, as in many containers: to compile every test and module anew takes each
# worker, and each process that a test starts, seconds.
sys.dont_write_bytecode = False
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

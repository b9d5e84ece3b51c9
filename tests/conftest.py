"""Settings of all tests: hypothesis has no time limit, as the machine may be busy, and bytecode is kept."""

import sys

import pytest
from hypothesis import settings

from ckpm.commands import main
from tests.unit.shared import Run

# Many containers set PYTHONDONTWRITEBYTECODE. Without bytecode each process that a test starts compiles for seconds.
sys.dont_write_bytecode = False
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """``run("list", "--arch", "gfx950")`` of ckpm: exit code, standard output, standard error."""

    def call(*argv: object) -> tuple[int, str, str]:
        code = main([*map(str, argv)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call

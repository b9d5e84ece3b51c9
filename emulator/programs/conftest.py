"""`pytest programs --toolchain rocm`: the programs are compiled and linked by hipcc."""

from __future__ import annotations

import os

import pytest

from ckpm_emulator import toolchain
from programs.program_builder import CHOICES, TOOLCHAIN


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--toolchain", choices=CHOICES, help="what compiles the programs (default: embedded)")


def pytest_configure(config: pytest.Config) -> None:
    if chosen := config.getoption("--toolchain"):
        os.environ[TOOLCHAIN] = chosen


@pytest.fixture(scope="session", autouse=True)
def core() -> None:
    """Build the core before a program runs, whose standard error would have the build's message."""
    toolchain.library()

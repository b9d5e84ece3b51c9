"""`pytest tests/programs --toolchain rocm`: the programs are compiled and linked by hipcc."""

from __future__ import annotations

import os

import pytest

from ckpm.kernels.code.toolchains import CHOICES
from tests.programs.program_builder import TOOLCHAIN


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--toolchain", choices=CHOICES, help="what compiles the programs (default: embedded)")


def pytest_configure(config: pytest.Config) -> None:
    if chosen := config.getoption("--toolchain"):
        os.environ[TOOLCHAIN] = chosen

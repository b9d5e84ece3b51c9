"""These tests compile with Triton: `nox -s test-decode` makes the environment that has it."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="session")
def compiled_here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Triton's cache is of this run alone: what was compiled by another version of a kernel is no evidence."""
    import triton

    folder = tmp_path_factory.mktemp("triton")
    triton.knobs.cache.dir = str(folder)
    return folder

"""These tests compile with Triton: `nox -s test-decode` makes the environment that has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.decode import posed


@pytest.fixture(autouse=True, scope="session")
def compiled_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Triton's cache is of this run alone: what was compiled by another version of a kernel is no evidence."""
    import triton

    folder = tmp_path_factory.mktemp("triton")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(folder))  # for the processes of the devices
        triton.knobs.cache.dir = str(folder)
        yield folder
    posed.end()

"""Fixtures of tests that compile with Triton, in the environment of `nox -s test-decode`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.decode import posed


@pytest.fixture(autouse=True, scope="session")
def compiled_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Use a cache of Triton's for this run alone: code of another version of a kernel proves nothing."""
    import triton

    folder = tmp_path_factory.mktemp("triton")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(folder))  # for the processes of the devices
        triton.knobs.cache.dir = str(folder)
        yield folder
    posed.end()

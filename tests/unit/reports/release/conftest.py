"""One signed and one unsigned bundle for all tests, which change copies of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.reports.release.samples import make_bundle, make_key


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="session")
def signed(tmp_path_factory: pytest.TempPathFactory, key: Path) -> tuple[Path, Path]:
    """Folder and tar."""
    return make_bundle(tmp_path_factory.mktemp("signed"), key=key)


@pytest.fixture(scope="session")
def unsigned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folder and tar."""
    return make_bundle(tmp_path_factory.mktemp("unsigned"))

"""Fixtures of the tests that need an upstream's tree: fetched once into the user's cache folder, or CKPM_CACHE."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kernels.settings import cache_folder
from kernels.upstream import Tree, locate
from matrix.dialects import upstreams


@pytest.fixture(scope="session")
def trees() -> Mapping[str, Tree]:
    """The tree of every packaged upstream, by name."""
    return {name: locate(name, cache=cache_folder()) for name in upstreams()}

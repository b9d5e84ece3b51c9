"""An accepted build, in a folder where changes can be planted."""

from __future__ import annotations

import pytest

from ckpm.base.settings import cache_folder
from ckpm.kernels.upstream.trees import locate
from tests.gate.planted import Copy


@pytest.fixture(scope="session")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """The unchanged build, accepted as the baseline."""
    copy = Copy(tmp_path_factory.mktemp("planted"), locate("aiter", cache=cache_folder()).root)
    copy.build()
    copy.accept()
    return copy

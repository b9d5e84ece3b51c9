"""The kernels that ckpm may build, and a copy of our headers for each module of tests."""

from __future__ import annotations

import pytest

from ckpm.matrix.dialects import dialect
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.keys import Key
from tests.prefill.copies import PrefillCopy
from tests.prefill.instead import ARCH


@pytest.fixture(scope="session")
def keys() -> tuple[Key, ...]:
    """The kernels that ckpm may build, in dispatch order."""
    return tuple(enumerate_keys(dialect("rocm-libraries-2026").family("batch_prefill"), arch=ARCH))


@pytest.fixture(scope="session")
def v3_keys() -> tuple[Key, ...]:
    """The kernels that ckpm-v3 may build, in dispatch order."""
    return tuple(enumerate_keys(dialect("prefill-v3").family("batch_prefill"), arch=ARCH))


@pytest.fixture(scope="session")
def extended_keys() -> tuple[Key, ...]:
    """The kernels that ckpm-extended may build, in dispatch order."""
    return tuple(enumerate_keys(dialect("ckpm-extended").family("batch_prefill"), arch=ARCH))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> PrefillCopy:
    return PrefillCopy(tmp_path_factory.mktemp("planted"))

"""Build the emulator's image with a real engine, for tests that run commands in it."""

from __future__ import annotations

import pytest

from ckpm.base import settings
from ckpm.base.errors import CkPrefillError
from ckpm.docker import building
from ckpm.docker.context import ImageSources, labels
from ckpm.docker.engines import Engine, detect
from ckpm.docker.images import image


@pytest.fixture(scope="session")
def engine() -> Engine:
    try:
        return detect()
    except CkPrefillError as error:  # not a skip: an image that was not built was not tested
        pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)


@pytest.fixture(scope="session")
def built(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> building.BuiltImage:
    sources = ImageSources(settings.cache_folder(), labels=labels())
    return building.build(engine, image("debian-emulator"), tmp_path_factory.mktemp("images"), sources)

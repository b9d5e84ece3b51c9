"""Fixtures of the tests that need an upstream's tree or a compiled library, each made once a run.

Trees and objects are kept in the user's cache folder, or CKPM_CACHE.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ckpm.attention.launch.c_abi import Library
from ckpm.base.settings import cache_folder
from ckpm.kernels.library.manifest import MANIFEST
from ckpm.kernels.upstream.tree import Tree
from ckpm.kernels.upstream.trees import locate
from ckpm.matrix.dialects import upstreams
from ckpm.matrix.keys import Key
from tests.build import real_kernel
from tests.build.newest import MASK_IMPLS, Compiler, build_samples, build_whole, sample
from tests.unit.shared import made_once

# fixtures that a worker makes in memory or for one module: tests with one of them are run by one worker
_OF_ONE_WORKER = {"libraries", "library", "objects", "select"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that share a fixture to one worker (`--dist loadgroup`). The other tests are spread over all."""
    for item in items:
        if shared := _OF_ONE_WORKER & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(min(shared)))


@pytest.fixture(scope="session")
def trees() -> Mapping[str, Tree]:
    """The tree of every packaged upstream, by name."""
    return {name: locate(name, cache=cache_folder()) for name in upstreams()}


@pytest.fixture(scope="session")
def built(trees: Mapping[str, Tree], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a library with one real kernel for two archs, which all workers share."""
    work = made_once(tmp_path_factory, "built", lambda folder: real_kernel.build(trees["aiter"], folder))
    (manifest,) = work.glob(f"build/**/{MANIFEST}")
    return manifest.parent


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    """The compiler over the interface of 2026."""
    return Compiler(tmp_path_factory.mktemp("newest"))


@pytest.fixture(scope="session")
def samples() -> Mapping[str, list[Key]]:
    """A sample of the newest dialect's kernels for each set of masks."""
    return {mask_impl: sample(mask_impl) for mask_impl in MASK_IMPLS}


@pytest.fixture(scope="session")
def libraries(compiler: Compiler, samples: Mapping[str, list[Key]]) -> Mapping[tuple[str, str], Library]:
    """The samples' libraries by masks and selector form."""
    return build_samples(compiler, samples)


@pytest.fixture(scope="session")
def whole(compiler: Compiler, libraries: Mapping[tuple[str, str], Library]) -> Library:
    """The dispatch over every kernel, without the kernels; it takes the harness of ``libraries``."""
    return build_whole(compiler)

"""Fixtures for tests of many machines, which need requirements-cluster.txt: `nox -s tests -- cluster`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpm.base import settings
from tests.cluster.machines import Compiler, Machines, machines
from tests.unit.shared import Run

KERNELS = ("--unit-size", "1", "--where", "key.bias == 'no' and key.tile.bm0 == 64 and key.dtype == 'bf16'")


@pytest.fixture(scope="module")  # not for the modules with real kernels
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the stub compiler (``rocm``) and a cache with the default upstream, for all processes."""
    folder = tmp_path_factory.mktemp("environment")
    cache = folder / "cache"
    (cache / "upstream").mkdir(parents=True)
    cache.chmod(0o700)
    kept = settings.cache_folder() / "upstream"
    for tree in kept.glob("aiter-*"):  # without this the first build downloads it
        copy = shutil.copytree if tree.is_dir() else shutil.copy2
        copy(tree, cache / "upstream" / tree.name)
    Compiler.make(folder / "rocm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CKPM_CACHE", str(cache))
        patch.setenv("ROCM_PATH", str(folder / "rocm"))
        patch.delenv("CK_ROOT", raising=False)
        patch.setattr(
            "ckpm.kernels.library.request.manifest_command",  # the stub's objects have no kernels
            lambda folder: ("cp", f"{folder}/plan.json", f"{folder}/manifest.json"),
        )
        yield folder


@pytest.fixture(scope="module")
def running(environment: Path) -> Iterator[Machines]:
    # a unit fails after two lost workers; Dask's default is four
    with machines(environment / "local", {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}) as there:
        yield there


@pytest.fixture
def there(running: Machines) -> Machines:
    """A scheduler with two workers, w1 and w2. Tests share them, and a lost worker is started again."""
    for name in ("w1", "w2"):
        if name not in running.workers or running.workers[name].poll() is not None:
            running.start(name, "--no-nanny")
    return running


@pytest.fixture
def compiler(environment: Path) -> Iterator[Compiler]:
    """The stub compiler with an empty log."""
    stub = Compiler(environment / "rocm")
    yield stub
    stub.forget()


@pytest.fixture
def build(tmp_path: Path, run: Run) -> Run:
    """``build("name", "--scheduler", ADDRESS)`` builds four kernels in four units."""

    def call(work: str, *options: str) -> tuple[int, str, str]:
        (tmp_path / work).mkdir(exist_ok=True)
        return run("build", *KERNELS, "--work", tmp_path / work, "--toolchain", "rocm", *options)

    return call

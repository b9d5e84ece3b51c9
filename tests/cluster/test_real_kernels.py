"""Real kernels from two workers with the embedded toolchain have the bytes of one machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpm import commands as cli
from ckpm.kernels.library.manifest import Manifest
from tests.cluster.machines import Machines, machines
from tests.cluster.test_builds import take_files

# two kernels in two units
WHERE = "key.dtype == 'fp16'"


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Machines]:
    with machines(tmp_path / "local", {}) as running:
        running.start("w1", "--no-nanny")
        running.start("w2", "--no-nanny")
        yield running


def build(work: Path, *options: str) -> int:
    work.mkdir()
    command = ["build", "--toolchain", "embedded", "--unit-size", "1", "--where", WHERE, "--work", str(work)]
    return cli.main([*command, "--upstream", "aiter", "--no-cache", *options])


def test_two_workers_compile_bytes_of_one_machine(there: Machines, tmp_path: Path) -> None:
    assert build(tmp_path / "work", "--scheduler", there.address) == 0
    manifest = Manifest.read(tmp_path / "work/build/gfx950/aiter/manifest.json")
    assert len({kernel.unit for kernel in manifest.kernels.values()}) == 2
    many = take_files(tmp_path / "work")
    assert build(tmp_path / "work") == 0
    assert take_files(tmp_path / "work") == many

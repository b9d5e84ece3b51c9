"""Jumps of the clock: file times in the future or the past do not affect what is built, and do not hide a change."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.library import building
from ckpm.kernels.library.progress import Tally
from ckpm.kernels.library.request import LIBRARY, BuildRequest

Make = Callable[..., BuildRequest]
YEAR = 365 * 86400
pytestmark = pytest.mark.usefixtures("copied_manifest")


def build(request: BuildRequest) -> Tally:
    return building.run(request, jobs=2)


def set_all(folder: Path, seconds: float) -> None:
    for file in folder.rglob("*"):
        os.utime(file, (seconds, seconds), follow_symlinks=False)


@pytest.mark.parametrize("years", [-40, -1, 1, 20])
def test_build_ignores_file_times(stub_toolchain: Callable[..., Toolchain], request_for: Make, years: int) -> None:
    request = request_for(stub_toolchain(), where=("key.logits", "key.lse"))
    build(request)
    built = request.work / request.folder
    before = (built / LIBRARY).read_bytes()
    set_all(request.work, time.time() + years * YEAR)
    tally = build(request)
    assert (tally.compiled, tally.failed) == (0, 0)
    assert (built / LIBRARY).read_bytes() == before
    # the changed object is older, or newer, than the other files: only its bytes show the change
    victim = built / "obj/dispatch.o"
    there = victim.stat()
    victim.write_bytes(b"?" * (there.st_size + 1))
    os.utime(victim, ns=(there.st_atime_ns, there.st_mtime_ns))
    build(request)
    assert victim.read_bytes() == (built / "src/dispatch.hip").read_bytes()

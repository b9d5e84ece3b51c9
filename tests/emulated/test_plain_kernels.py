"""CK's kernels write the same bytes on a core without the short ways of isa/fast.h.

The core is built a second time (-DEMU_PLAIN). Each core runs in a process of its own, without checks and with all
of them. With checks, both run the general ways.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ckpm.base.paths import PROJECT
from ckpm_emulator import toolchain
from tests.emulated.emulator_fwd import build

pytestmark = pytest.mark.nightly  # the core is compiled a second time, and run on all kernels of the smoke tier

SETTINGS = {
    "none": {},
    "all": dict.fromkeys(("poison", "poison_memory", "late_loads", "lds_races", "uninitialised"), True),
}


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory, "plain", ("batch_prefill",), "True")


@pytest.mark.parametrize("checks", SETTINGS)
def test_kernels_without_short_ways_give_same_bytes_and_counts(library: Path, checks: str) -> None:
    runs = [_launches(library, toolchain.library(plain=plain), checks) for plain in (False, True)]
    assert len(runs[0]) >= 4
    assert runs[0] == runs[1]


def test_checks_change_no_byte_of_what_kernels_write(library: Path) -> None:
    core = toolchain.library()
    runs = [_launches(library, core, checks) for checks in SETTINGS]
    assert [record["outputs"] for record in runs[0].values()] == [record["outputs"] for record in runs[1].values()]


def _launches(library: Path, core: Path, checks: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.emulated.plain_launches", str(library), str(core)]
    settings = json.dumps(SETTINGS[checks])
    done = subprocess.run([*command, settings], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))

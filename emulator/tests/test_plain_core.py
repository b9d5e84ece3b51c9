"""The short ways that the core has for the usual cases of an instruction (isa/fast.h) change no bit.

The core is built a second time without them (-DEMU_PLAIN). Both run single instructions on the same states.
They run CK's kernels in a process each, without checks and with all of them. With checks, both run the general ways.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpm.base.paths import PROJECT
from ckpm_emulator import toolchain
from tests.emulator.emulator_fwd import build
from tests.emulator.emulator_wave import differences, plain_machine
from tests.emulator.opcodes.test_emulator_opcodes import ENCODINGS, listed_opcodes
from tests.emulator.oracle.cases import Case
from tests.emulator.oracle.machine import machine
from tests.emulator.oracle.operands import EXEC
from tests.emulator.oracle.suite import cases_for

pytestmark = pytest.mark.nightly  # the core is compiled a second time, and run on all kernels of the smoke tier

ALL = (1 << 64) - 1
MEMORY = ("GLOBAL", "FLAT", "MUBUF", "MTBUF", "SMEM", "SCRATCH")  # their cases name addresses of one core
ONE_WAVE = tuple(encoding for encoding in ENCODINGS if encoding not in MEMORY)
SETTINGS = {
    "none": {},
    "all": dict.fromkeys(("poison", "poison_memory", "late_loads", "lds_races", "uninitialised"), True),
}


def whole_waves(encoding: str, op: Any) -> Iterator[Case]:
    """Cases of an opcode with every lane on: there the ways part. Four of them."""
    cases = (case for case in cases_for(encoding, op, "gfx950", 0) if case.state.pair(EXEC) == ALL)
    return itertools.islice(cases, 4)


@pytest.mark.parametrize("encoding", ONE_WAVE)
def test_instructions_give_same_bits_without_short_ways(encoding: str) -> None:
    compared = 0
    for named, op in listed_opcodes():
        if named != encoding:
            continue
        for case in whole_waves(encoding, op):
            different = differences(machine().run(case), plain_machine().run(case))
            assert different == [], f"{op.name}: {case.label}"
            compared += 1
    assert compared > 0 or encoding == "SOPP"


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
    command = [sys.executable, "-m", "tests.emulator.plain_launches", str(library), str(core)]
    settings = json.dumps(SETTINGS[checks])
    done = subprocess.run([*command, settings], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))

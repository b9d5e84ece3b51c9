"""The short ways that the core has for the usual cases of an instruction (isa/fast.h) change no bit.

The core is built a second time without them (-DEMU_PLAIN). Both run single instructions on the same states.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from emulator_wave import differences, plain_machine
from opcodes.test_emulator_opcodes import ENCODINGS, listed_opcodes
from oracle.cases import Case
from oracle.machine import machine
from oracle.operands import EXEC
from oracle.suite import cases_for

pytestmark = pytest.mark.nightly  # the core is compiled a second time

ALL = (1 << 64) - 1
MEMORY = ("GLOBAL", "FLAT", "MUBUF", "MTBUF", "SMEM", "SCRATCH")  # their cases name addresses of one core
ONE_WAVE = tuple(encoding for encoding in ENCODINGS if encoding not in MEMORY)


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

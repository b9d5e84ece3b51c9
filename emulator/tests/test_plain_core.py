"""The short ways that the core has for the usual cases of an instruction (isa/fast.h) change no bit.

The core is built a second time without them (-DEMU_PLAIN). MFMA of bf16 adds two products at a time by the host's
instruction (isa/matrix_pairs.h), the other core one after the other. On a host without the instruction both cores do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ckpm_emulator.lowering.lower import lower
from emulator_assembly import instructions_of
from emulator_wave import differences, plain_machine
from opcodes.test_emulator_opcodes import ENCODINGS, listed_opcodes
from oracle.cases import Case, fresh_state
from oracle.floats import F16
from oracle.machine import machine
from oracle.operands import EXEC, State
from oracle.suite import cases_for

A, B, C = 8, 24, 64  # first registers
SHAPES = {"16x16x16": (16, 4), "16x16x32": (16, 8), "32x32x8": (32, 4), "32x32x16": (32, 8)}  # rows, values a lane

Words = npt.NDArray[np.uint32]


def bf16_words(values: npt.NDArray[np.float32]) -> Words:
    """Two values a dword, the first in the low half: [register, lane] of values by [register, lane, half]."""
    halves = values.view(np.uint32) >> 16
    return np.asarray(halves[..., 0] | halves[..., 1] << 16, np.uint32)


def floats(dwords: Words) -> npt.NDArray[np.float32]:
    """The operand of bf16_words: [register, lane, half]."""
    bits = np.stack([dwords << 16, dwords & 0xFFFF0000], axis=-1).astype(np.uint32)
    return np.asarray(bits.view(np.float32), np.float32)


class Wave:
    """A state with factors of ordinary sizes, for a shape."""

    def __init__(self, shape: str) -> None:
        self.rows, self.values = SHAPES[shape]
        self.code = f"v_mfma_f32_{shape}_bf16"
        self.random = np.random.default_rng(7)
        self.state = fresh_state(self.random, "gfx950")
        self.state.mode = 0xF0
        self.state.set_pair(EXEC, (1 << 64) - 1)
        self.results = self.rows * self.rows // 64
        self.set(A, self.numbers(-6, 6, 2))
        self.set(B, self.numbers(-6, 6, 2))
        self.sums(self.numbers(-8, 8, 1, self.results)[..., 0])

    def numbers(self, low: int, high: int, halves: int, registers: int = 0) -> npt.NDArray[np.float32]:
        shape = (registers or self.values // 2, 64, halves)
        significands = self.random.uniform(1, 2, shape) * self.random.choice([-1, 1], shape)
        return np.asarray(significands * 2.0 ** self.random.integers(low, high, shape), np.float32)

    def set(self, first: int, values: npt.NDArray[np.float32]) -> None:
        dwords = bf16_words(values)
        self.state.vector[first : first + len(dwords)] = dwords

    def put(self, first: int, bits: int) -> None:
        """One bf16 in place of the second value of lane 5."""
        self.state.vector[first, 5] = (int(self.state.vector[first, 5]) & 0xFFFF) | bits << 16

    def sums(self, values: npt.NDArray[np.float32]) -> None:
        self.state.vector[C : C + self.results] = values.view(np.uint32)

    def operands(self, d: int = C, c: str = "") -> str:
        half = self.values // 2
        addend = c or f"v[{C}:{C + self.results - 1}]"
        return f"v[{d}:{d + self.results - 1}], v[{A}:{A + half - 1}], v[{B}:{B + half - 1}], {addend}"

    def case(self, operands: str) -> tuple[object, Case]:
        code = f"{self.code} {operands}\n"
        return lower(instructions_of({"wave": code}, "gfx950")["wave"]).ops, Case("", [], self.state)

    def run(self, operands: str) -> State:
        """The state after the instruction, the same on both cores."""
        operations, case = self.case(operands)
        after = machine().run_lowered(operations, case)
        assert differences(after, plain_machine().run_lowered(operations, case)) == []
        return after

    def expected_sums(self) -> npt.NDArray[np.float32]:
        """[row, column]. In double every step is exact for these sizes, and rounded once to f32."""
        half, groups = self.values // 2, 64 // self.rows
        a, b = (floats(self.state.vector[first : first + half]).astype(np.float64) for first in (A, B))
        sums = self.by_rows(self.state)
        for group in range(groups):
            lanes = slice(group * self.rows, (group + 1) * self.rows)
            for value in range(self.values):
                left, right = (side[value // 2, lanes, value % 2] for side in (a, b))
                sums = (np.outer(left, right) + sums).astype(np.float32)
        return np.asarray(sums, np.float32)

    def by_rows(self, state: State) -> npt.NDArray[np.float32]:
        """C or D, [row, column]: of 32 rows register r holds 8 * (r / 4) + 4 * (lane / 32) + r % 4."""
        registers = state.vector[C : C + self.results].view(np.float32)
        groups = 64 // self.rows
        by_group = registers.reshape(self.results // 4, 4, groups, self.rows)
        return np.asarray(by_group.transpose(0, 2, 1, 3).reshape(self.rows, self.rows), np.float32)


@pytest.mark.parametrize("shape", SHAPES)
def test_sums_are_rounded_after_each_product_in_order_of_k(shape: str) -> None:
    wave = Wave(shape)
    expected = wave.expected_sums()
    assert np.array_equal(wave.by_rows(wave.run(wave.operands())).view(np.uint32), expected.view(np.uint32))
    assert np.any(expected.view(np.uint32) & 0xFF)  # they fill their bits: else the order would not show


def _subnormal_factor(wave: Wave) -> None:
    wave.put(A, 0x0001)
    wave.put(B, 0x7E00)


def _subnormal_addend(wave: Wave) -> None:
    wave.set(A, np.zeros((wave.values // 2, 64, 2), np.float32))
    wave.sums(np.full((wave.results, 64), 1e-40, np.float32))


def _small_products(wave: Wave) -> None:
    for first in (A, B):
        wave.set(first, wave.numbers(-66, -62, 2))
    wave.sums(np.zeros((wave.results, 64), np.float32))


def _least_products(wave: Wave) -> None:
    """Multiples of 2^-126 that nearly cancel a sum of that size."""
    for first in (A, B):
        wave.set(first, wave.numbers(-56, -55, 2))
    wave.sums(wave.numbers(-103, -101, 1, wave.results)[..., 0])


def _large_products(wave: Wave) -> None:
    for first in (A, B):
        wave.set(first, wave.numbers(60, 64, 2))


def _zeros(wave: Wave) -> None:
    wave.state.vector[A] &= 0xFFFF0000
    wave.state.vector[B, ::3] = 0x80008000  # of either sign


CHANGES: dict[str, Callable[[Wave], None]] = {
    "zeros": _zeros,
    "a subnormal factor": _subnormal_factor,
    "an infinite factor": lambda wave: wave.put(A, 0x7F80),
    "no number": lambda wave: wave.put(B, 0x7FC1),
    "sums that are not numbers": lambda wave: wave.sums(np.full((wave.results, 64), np.nan, np.float32)),
    "sums of zero": lambda wave: wave.sums(np.zeros((wave.results, 64), np.float32)),
    "subnormal sums": _subnormal_addend,
    "subnormal products": _small_products,
    "the least products": _least_products,
    "products beyond the greatest number": _large_products,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("change", CHANGES)
def test_numbers_that_host_instruction_loses_are_kept(shape: str, change: str) -> None:
    wave = Wave(shape)
    CHANGES[change](wave)
    wave.run(wave.operands())
    wave.run(wave.operands(c="0"))


@pytest.mark.parametrize("shape", SHAPES)
def test_constants_and_results_over_factors(shape: str) -> None:
    for d, c in ((C, "0"), (C, "1.0"), (C, "-16"), (A, ""), (B, "")):
        wave = Wave(shape)
        wave.run(wave.operands(d, c))


def test_subnormal_results_are_kept() -> None:
    wave = Wave("16x16x16")
    _small_products(wave)
    after = wave.by_rows(wave.run(wave.operands()))
    assert np.any((np.abs(after) < 2.0**-126) & (after != 0))


# ---- every instruction, by both cores


@pytest.mark.parametrize(
    ("dtype", "dword", "other", "alike"),
    [
        (np.float32, 0x7FC00000, 0xFFC00001, True),
        (np.float32, 0x3F800000, 0x3F800001, False),
        (np.float32, 0x7F800000, 0x7FC00000, False),  # an infinity, and a NaN: both are NaNs of f16
        (np.float16, 0x3C007E00, 0x3C00FE01, True),
        (np.float16, 0x7E003C00, 0xFE003C01, False),
        (np.float16, 0x7C003C00, 0x7E003C00, False),  # an infinity, and a NaN
    ],
)
def test_differences_of_numbers_are_seen_and_of_nans_are_not(
    dtype: type[np.floating], dword: int, other: int, alike: bool
) -> None:
    state = fresh_state(np.random.default_rng(7), "gfx950")
    state.vector[3, 5] = dword
    changed = state.copy()
    changed.vector[3, 5] = other
    assert differences(state, changed, dtype) == ([] if alike else ["vectors"])


ALL = (1 << 64) - 1
MEMORY = ("GLOBAL", "FLAT", "MUBUF", "MTBUF", "SMEM", "SCRATCH")  # their cases name addresses of one core
ONE_WAVE = tuple(encoding for encoding in ENCODINGS if encoding not in MEMORY)


def whole_waves(encoding: str, op: Any) -> Iterator[Case]:
    """Cases of an opcode with every lane on: there the ways part. Four of them."""
    cases = (case for case in cases_for(encoding, op, "gfx950", 0) if case.state.pair(EXEC) == ALL)
    return itertools.islice(cases, 4)


@pytest.mark.nightly
@pytest.mark.parametrize("encoding", ONE_WAVE)
def test_instructions_give_same_bits_without_short_ways(encoding: str) -> None:
    compared = 0
    for named, op in listed_opcodes():
        if named != encoding:
            continue
        for case in whole_waves(encoding, op):
            dtype = np.float16 if F16 in {kind.format for kind in case.outputs.values()} else np.float32
            different = differences(machine().run(case), plain_machine().run(case), dtype)
            assert different == [], f"{op.name}: {case.label}"
            compared += 1
    assert compared > 0 or encoding == "SOPP"

"""One wave of hand-written assembly on a state of the test's choice, and the core without short ways."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ckpm_emulator import toolchain
from ckpm_emulator.lowering.lower import lower
from emulator_assembly import instructions_of
from oracle.cases import Case, fresh_state
from oracle.machine import Machine, machine
from oracle.operands import EXEC, State


def run_wave(
    assembly: str,
    vectors: Mapping[int, Any],
    scalars: Mapping[int, int] | None = None,
    *,
    arch: str = "gfx950",
    mode: int = 0xF0,
    execute: int = (1 << 64) - 1,
    lds: int = 0,
    memory: bytes = b"",
    options: Mapping[str, int] | None = None,
) -> State:
    """The state after ``assembly``. Registers by number: a value for all lanes, or one for each.

    ``lds``: its bytes, all zero at first. ``memory`` stands at ``memory_base()``. Raises RuntimeError: a fault.
    """
    state = fresh_state(np.random.default_rng(1), arch)
    state.mode = mode
    state.set_pair(EXEC, execute)
    state.lds = bytearray(lds)
    if memory:
        state.memory = {memory_base(): bytearray(memory)}
    for row, values in vectors.items():
        state.vector[row] = values
    for code, value in (scalars or {}).items():
        state.scalar[code] = value & 0xFFFFFFFF
    operations = lower(instructions_of({"wave": assembly}, arch)["wave"], arch=arch).ops
    with _options(options or {}):
        return machine().run_lowered(operations, Case("", [], state))


def memory_base() -> int:
    """The address of an allocation of oracle.memory_cases.MEMORY_BYTES."""
    return machine().base


@contextmanager
def _options(options: Mapping[str, int]) -> Iterator[None]:
    before = {name: machine().option(name) for name in options}
    for name, value in options.items():
        machine().c.emu_set_option(name.encode(), value)
    try:
        yield
    finally:
        for name, value in before.items():
            machine().c.emu_set_option(name.encode(), value)


@functools.cache
def plain_machine() -> Machine:
    return Machine(toolchain.library(plain=True))


def differences(state: State, other: State, dtype: type[np.floating] = np.float32) -> list[str]:
    """The parts of two states that differ in a bit. Two NaNs of ``dtype`` are alike, whatever sign and payload."""
    a, b = state.vector.view(dtype), other.vector.view(dtype)
    bits = f"u{a.itemsize}"
    parts = {
        "vectors": bool(np.all((a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b)))),
        "scalars": bool(np.array_equal(state.scalar, other.scalar)),
        "lds": state.lds == other.lds,
        "mode": state.mode == other.mode,
    }
    return [name for name, alike in parts.items() if not alike]

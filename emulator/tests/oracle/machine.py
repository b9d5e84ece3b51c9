"""The emulator under test, through the C functions of core/hip/device_api.h: one wave state in, one wave state out."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ckpm_emulator import toolchain
from ckpm_emulator.lowering.decode import decode
from ckpm_emulator.lowering.lower import lower as lower_program
from ckpm_emulator.lowering.lower import lower_one
from oracle.cases import Case
from oracle.memory_cases import MEMORY_BYTES
from oracle.operands import State

ARCHS = {"gfx90a": 910, "gfx942": 942, "gfx950": 950}


class TrapError(NotImplementedError):
    """The emulator lowered the instruction to a trap, as it lacks it."""


class _WaveState(ctypes.Structure):
    _fields_ = (
        ("vector", ctypes.c_uint32 * 64 * 512),
        ("scalar", ctypes.c_uint32 * 256),
        ("mode", ctypes.c_uint32),
        ("lds_bytes", ctypes.c_uint32),
        ("lds", ctypes.c_void_p),
        ("next", ctypes.c_uint32),
        ("stopped", ctypes.c_uint32),
    )


class Machine:
    """The core's library, and one allocation that memory instructions of the tests use."""

    def __init__(self, core: Path | None = None) -> None:
        self.c = ctypes.CDLL(str(core or toolchain.library()), mode=ctypes.RTLD_GLOBAL)
        self.c.emu_allocate.restype = ctypes.c_void_p
        self.c.emu_allocate.argtypes = (ctypes.c_size_t, ctypes.c_uint32, ctypes.c_char_p)
        self.c.emu_last_error.restype = ctypes.c_char_p
        self.c.emu_execute.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(_WaveState))
        self.c.emu_set_option.argtypes = (ctypes.c_char_p, ctypes.c_int64)
        self.base = int(self.c.emu_allocate(MEMORY_BYTES, 0, b"oracle"))

    def option(self, name: str) -> int:
        """The value of one of the core's options."""
        value = ctypes.c_int64()
        self.c.emu_get_option(name.encode(), ctypes.byref(value))
        return value.value

    def run(self, case: Case) -> State:
        """The state after the case's program. Raises TrapError, or RuntimeError with the emulator's message."""
        return self.run_lowered(lower(case.program), case)

    def run_lowered(self, operations: Any, case: Case) -> State:
        """The state after micro-ops, on the state before the case's program."""
        before = case.state
        self.c.emu_set_option(b"arch", ARCHS[before.arch])
        state = _WaveState()
        ctypes.memmove(state.vector, before.vector.ctypes.data, before.vector.nbytes)
        ctypes.memmove(state.scalar, before.scalar.ctypes.data, before.scalar.nbytes)
        state.mode = before.mode
        lds = (ctypes.c_uint8 * max(1, len(before.lds))).from_buffer_copy(bytes(before.lds) or b"\0")
        state.lds, state.lds_bytes = ctypes.addressof(lds), len(before.lds)
        for base, data in before.memory.items():
            ctypes.memmove(base, bytes(data), len(data))
        status = self.c.emu_execute(operations.ctypes.data, len(operations), ctypes.byref(state))
        if status:
            raise RuntimeError(self.c.emu_last_error().decode())
        after = before.copy()
        after.vector = np.frombuffer(bytes(state.vector), np.uint32).reshape(512, 64)
        after.scalar = np.frombuffer(bytes(state.scalar), np.uint32)
        after.mode, after.stopped = state.mode, state.stopped
        after.lds = bytearray(bytes(lds)[: len(before.lds)])
        after.memory = {base: bytearray(ctypes.string_at(base, len(data))) for base, data in before.memory.items()}
        return after


@cache
def machine() -> Machine:
    return Machine()


def lower(program: list[Any]) -> Any:
    """Micro-ops of a program, by the emulator's own decoder and lowering from the encoded bytes."""
    instructions = list(decode(b"".join(inst.to_bytes() for inst in program)))
    assert len(instructions) == len(program), f"decoded as {[i.text for i in instructions]}"
    for instruction in instructions:
        operation, reason = lower_one(instruction)
        if operation.name == "trap":
            raise TrapError(reason)
    return lower_program(instructions).ops

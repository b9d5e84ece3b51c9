"""The generator of an opcode's cases, the expected state of a case, and its comparison with the real state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle import cases, floats, matrix_cases, memory_cases, mfma, scalar_cases, typed_buffers
from oracle.cases import Case
from oracle.encoding import view
from oracle.floats import Format
from oracle.instruction import execute
from oracle.operands import SCC, Operand, State
from oracle.pcode import text_of

Mask = npt.NDArray[np.bool_]
COMPARED_SCALARS = [*range(128), SCC]
BRANCHES = ("S_BRANCH", "S_CBRANCH_SCC", "S_CBRANCH_VCC", "S_CBRANCH_EXEC", "S_CBRANCH_CDBG")
MATRIX = ("V_MFMA", "V_SMFMAC")
QUIET = (
    *("S_NOP", "S_WAITCNT", "S_SETPRIO", "S_SLEEP", "S_ICACHE", "S_DCACHE", "S_SETHALT", "S_TTRACE", "S_INCPERF"),
    *("S_SENDMSG", "S_WAKEUP", "S_ATC_PROBE", "S_DECPERF", "BUFFER_WBL2", "BUFFER_INV", "V_NOP", "DS_NOP", "V_CLREXCP"),
)


WITHOUT_LISTING = ("DS_SWIZZLE_B32", "DS_APPEND", "DS_CONSUME")


class NoOracleError(LookupError):
    """An opcode has neither pseudocode nor a hand-written reference here."""


def cases_for(cls: str, op: Any, arch: str, base: int) -> Iterator[Case]:
    """All cases of an opcode in an encoding; `base` is the address of MEMORY_BYTES that the emulator has mapped."""
    name = op.name
    if name.startswith(MATRIX):
        return matrix_cases.matrix_cases(op, arch)
    if cls == "DS" and "_TR_" in name:
        return memory_cases.lds_cases(op, arch)
    if name.startswith(BRANCHES):
        return scalar_cases.branch_cases(op, arch)
    if name.startswith(QUIET):
        return scalar_cases.quiet_cases(op, arch)
    if name == "S_TRAP":
        return scalar_cases.debugger_cases(op, arch)
    if name in ("S_MEMTIME", "S_MEMREALTIME"):
        return memory_cases.clock_cases(op, arch)
    if name in ("S_ENDPGM", "S_BARRIER", "S_ENDPGM_SAVED"):
        return scalar_cases.stop_cases(op, arch)
    if name in ("S_GETPC_B64", "S_SETPC_B64", "S_SWAPPC_B64", "S_CALL_B64"):
        return scalar_cases.program_counter_cases(op, arch)
    if name.startswith(("S_SET_GPR_IDX_OFF", "S_SET_GPR_IDX_MODE")):
        return scalar_cases.index_cases(op, arch)
    if "_FORMAT_" in name:
        return typed_buffers.cases(cls, op, arch, base)
    if text_of(op) is None and "LOAD_LDS" not in name and name not in WITHOUT_LISTING:
        raise NoOracleError(name)
    if cls.startswith("VOP"):
        return cases.vop_cases(cls.split("_")[0], op, arch)
    if cls.startswith("SOP") and not cls.startswith("SOPP"):
        return scalar_cases.sop_cases(cls.split("_")[0], op, arch)
    if cls == "DS":
        return memory_cases.lds_cases(op, arch)
    if cls in ("GLOBAL", "FLAT"):
        return memory_cases.flat_cases(cls, op, arch, base)
    if cls == "SCRATCH":
        return memory_cases.scratch_cases(op, arch)
    if cls == "MUBUF":
        return memory_cases.buffer_cases(op, arch, base)
    if cls == "SMEM":
        return memory_cases.scalar_memory_cases(op, arch, base)
    raise NoOracleError(f"{cls} {name}")


def expected_state(case: Case) -> State:
    """The oracle's state after the case's program, branches included."""
    state = case.state.copy()
    state.pc, addresses, at = 0, {}, 0
    for inst in case.program:
        addresses[at] = inst
        at += inst.size()
    while state.pc in addresses:
        inst = addresses[state.pc]
        before = state.pc
        execute(inst, state)
        if state.stopped:
            break
        if state.pc == before:  # vector and memory instructions leave the program counter alone
            state.pc += inst.size()
    return state


def differences(case: Case, want: State, got: State) -> list[str]:
    """Everything that differs and may not; empty if the emulator agrees."""
    different = []
    inst = view(case.program[0])
    if want.stopped != got.stopped:
        different.append(f"stopped: expected {want.stopped}, got {got.stopped}")
    matrix = inst.op.name.startswith(MATRIX)
    accepted = _matrix_accepts(inst, case.state, got) if matrix else _accepts(case, want, got)
    for row, lane in np.argwhere((want.vector != got.vector) & ~accepted)[:6]:
        register = f"v{row}" if row < 256 else f"a{row - 256}"
        sources = " ".join(f"{case.state.vector[r, lane]:08x}" for r in (20, 30, 40))
        different.append(
            f"{register}[{lane}]: expected {want.vector[row, lane]:08x}, got {got.vector[row, lane]:08x}"
            f" (v20 v30 v40: {sources}, before {case.state.vector[row, lane]:08x})"
        )
    different += [
        f"s{code}: expected {int(want.scalar[code]):08x}, got {int(got.scalar[code]):08x}"
        for code in COMPARED_SCALARS
        if want.scalar[code] != got.scalar[code]
    ]
    if want.mode != got.mode:
        different.append(f"MODE: expected {want.mode:#x}, got {got.mode:#x}")
    if want.lds != got.lds:
        at = next(n for n, (a, b) in enumerate(zip(want.lds, got.lds, strict=True)) if a != b)
        different.append(
            f"LDS from byte {at}: expected {want.lds[at : at + 16].hex()}, got {got.lds[at : at + 16].hex()}"
        )
    for base, data in want.memory.items():
        if data != got.memory[base]:
            at = next(n for n, (a, b) in enumerate(zip(data, got.memory[base], strict=True)) if a != b)
            pair = data[at : at + 16].hex(), got.memory[base][at : at + 16].hex()
            different.append(f"memory from base + {at}: expected {pair[0]}, got {pair[1]}")
    return different


def _accepts(case: Case, want: State, got: State) -> Mask:
    """Differences within the rules: any NaN for a NaN (quiet if the expected one is), and the opcode's tolerance."""
    accepted = np.zeros((512, 64), dtype=bool)
    for row, kind in case.outputs.items():
        fmt = kind.format
        if case.low_half:
            accepted[row] = (want.vector[row] ^ got.vector[row]) & 0xFFFF == 0
            if fmt is not None:
                _accept(accepted, row, want.vector[row] & 0xFFFF, got.vector[row] & 0xFFFF, fmt, case.tolerance)
            continue
        if fmt is None:
            continue
        for n in range(max(1, kind.bits // 32)):
            if fmt.width == 64:
                if n % 2 == 0:
                    wanted, result = (_join_words(state, row + n) for state in (want, got))
                    _accept(accepted, row + n, wanted, result, fmt, case.tolerance)
            else:
                _accept(accepted, row + n, want.vector[row + n], got.vector[row + n], fmt, case.tolerance)
    return accepted


def _join_words(state: State, row: int) -> npt.NDArray[np.uint64]:
    high: npt.NDArray[np.uint64] = state.vector[row + 1].astype(np.uint64) << np.uint64(32)
    low: npt.NDArray[np.uint64] = state.vector[row].astype(np.uint64)
    return high | low


def _accept(accepted: Mask, row: int, want: Any, got: Any, fmt: Format, tolerance: int) -> None:
    mask = (1 << fmt.width) - 1
    for lane in np.nonzero(want != got)[0]:
        left, right = int(want[lane]), int(got[lane])
        fine = True
        for part in range(max(1, 32 // fmt.width)):
            a, b = left >> part * fmt.width & mask, right >> part * fmt.width & mask
            fine = fine and _close(a, b, fmt, tolerance)
        accepted[row, lane] = fine
        if fmt.width == 64:
            accepted[row + 1, lane] = fine


def _close(a: int, b: int, fmt: Format, tolerance: int) -> bool:
    if a == b:
        return True
    if fmt.is_nan(a):
        return fmt.is_nan(b) and (fmt.is_signalling(a) or not fmt.is_signalling(b))
    if fmt.is_nan(b):
        return False
    # where a result may be off by one place, the largest number and infinity are neighbours
    if fmt.infinity in (a & fmt.infinity, b & fmt.infinity) and not tolerance:
        return False
    return fmt.sign(a) == fmt.sign(b) and abs(a - b) <= tolerance


def _matrix_accepts(inst: Any, before: State, got: State) -> Mask:
    accepted = np.zeros((512, 64), dtype=bool)
    if "_I32_" in inst.op.name:
        return accepted
    d, slack, shape = mfma.reference(inst, before)
    row, result = mfma.rows_of(inst)[3], mfma.result(got, inst, shape)
    with np.errstate(all="ignore"):
        close = (np.abs(result - d) <= slack) | (np.isnan(d) & np.isnan(result)) | (d == result)
        overflow = np.isinf(result) & (np.abs(d) >= float(F32_MAX) * (1 - 2.0**-20)) & (np.sign(result) == np.sign(d))
    dwords = 2 if shape.result == "F64" else 1
    accepted[row : row + dwords * shape.registers] = np.repeat(close | (overflow & (dwords == 1)), dwords, axis=0)
    return accepted


F32_MAX = np.finfo(np.float32).max
__all__ = ["Case", "NoOracleError", "Operand", "cases_for", "differences", "expected_state", "floats"]

"""Test cases of the scalar ALU, of branches, of the program counter, and of instructions that change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tinygrad.renderer.amd.dsl import OPERANDS, src
from tinygrad.runtime.autogen.amd.cdna import enum, ins

from oracle.cases import ALL, Case, exec_mask, fill_scalar, fresh_state, generator, kind_of, scalar
from oracle.operands import EXEC, VCC, Operand


def sop_cases(cls: str, op: Any, arch: str) -> Iterator[Case]:
    rng = generator(f"{cls} {op.name}")
    table = OPERANDS.get(op, {})
    for n in range(16):
        state = fresh_state(rng, arch)
        state.mode = 0xF0
        state.set_pair(EXEC, exec_mask(rng, n))
        state.set_pair(VCC, [0, ALL, int.from_bytes(rng.bytes(8), "little")][n % 3])
        fields: dict[str, Any] = {}
        for at, name in enumerate(name for name in ("ssrc0", "ssrc1") if name in table):
            kind = Operand(kind_of(op, name).element, 1, max(32, table[name][1]))
            fill_scalar(state, 20 + 10 * at, kind, rng)
            fields[name] = _scalar_operand(kind, 20 + 10 * at, at, n)
        if "sdst" in table:
            bits = table["sdst"][1]
            fields["sdst"] = scalar((50, 50, VCC, 50, 124 if bits == 32 else 50)[n % 5], bits)
            if op.name.startswith(("S_ADDK", "S_MULK", "S_CMPK", "S_CMOVK")):
                fields["sdst"] = scalar(50, 32)
                fill_scalar(state, 50, Operand("I32", 1, 32), rng)
        if "MOVREL" in op.name:  # from s30 or to s50 on, by an even number
            fields["ssrc0"], state.scalar[124] = scalar(30, table["ssrc0"][1]), 2 * (n % 8)
            fields["sdst"] = scalar(50, table["sdst"][1])
        if op.name == "S_SET_GPR_IDX_ON":
            fields["ssrc1"] = src[n % 16]  # the field itself is the number
        if cls.startswith("SOPK"):
            fields["simm16"] = int(rng.integers(0, 1 << 16)) if n % 3 else (0, 0x8000, 0x7FFF, 1, 0xFFFF)[n % 5]
        if op.name in ("S_SETREG_B32", "S_GETREG_B32", "S_SETREG_IMM32_B32"):
            low, size = ((0, 4), (4, 4), (4, 2), (6, 2), (0, 2), (2, 2), (0, 8))[n % 7]
            fields["simm16"] = 1 | low << 6 | (size - 1) << 11
            if "sdst" in fields:
                fields["sdst"] = scalar(50, 32)
            if op.name == "S_SETREG_IMM32_B32":
                fields["literal"] = int(rng.integers(0, 16))
                yield Case(f"{n}", [ins.SOPK_LIT(op, **fields)], state)
                continue
        literals = [name for name, value in fields.items() if name != "simm16" and isinstance(value, int)]
        if len(literals) > 1:
            fields[literals[1]] = scalar(30, 32)
        yield Case(f"{n}", [getattr(ins, cls.removesuffix("_LIT"))(op, **fields)], state)


def _scalar_operand(kind: Operand, code: int, at: int, n: int) -> Any:
    if n % 8 == 2 + at:
        return scalar((128, 129, 192, 193, 208)[n % 5], kind.bits)
    if n % 8 == 4 + at and kind.bits == 32:
        return (0x12345678, 0x80000000, 0xFFFF0001)[n % 3]
    if n % 8 == 6:
        return scalar(VCC if at else EXEC, kind.bits)
    if n % 8 == 7 and at == 0 and kind.bits == 32:
        return src[124]
    if n == 10 and at == 0 and kind.bits == 32:
        return src[253]
    return scalar(code, kind.bits)


def branch_cases(op: Any, arch: str) -> Iterator[Case]:
    """A branch over two instructions, forwards: what was skipped shows in s50 and s51."""
    rng = generator(op.name)
    for n in range(8):
        state = fresh_state(rng, arch)
        state.set_pair(EXEC, (0, ALL, 1 << 40)[n % 3])
        state.set_pair(VCC, (0, 1 << 33, ALL)[n // 3 % 3])
        program: list[Any] = [ins.SOPP(op, simm16=n % 3)]
        program += [ins.SOP1(enum.SOP1Op.S_MOV_B32, sdst=src[50 + k], ssrc0=src[129 + k]) for k in range(3)]
        yield Case(f"{n}", program, state)


def quiet_cases(op: Any, arch: str) -> Iterator[Case]:
    """Waits, hints and cache control change nothing that a program can see."""
    rng = generator(op.name)
    for n in range(2):
        cls = ins.SOPP if type(op).__name__ == "SOPPOp" else getattr(ins, type(op).__name__.removesuffix("Op"))
        if type(op).__name__ == "VOP3Op":
            cls = ins.VOP3
        fields = {"simm16": 0xCF7F if "WAITCNT" in op.name else n} if cls is ins.SOPP else {}
        yield Case(f"{n}", [cls(op, **fields)], fresh_state(rng, arch))


def debugger_cases(op: Any, arch: str) -> Iterator[Case]:
    """s_trap 3, a debugger's, changes nothing without one; the others are emulator/tests/test_host_calls.py's."""
    yield Case("3", [ins.SOPP(op, simm16=3)], fresh_state(generator(op.name), arch))


def index_cases(op: Any, arch: str) -> Iterator[Case]:
    """s_set_gpr_idx_off and s_set_gpr_idx_mode: what is left in M0."""
    rng = generator(op.name)
    for n in range(4):
        yield Case(f"{n}", [ins.SOPP(op, simm16=5 * n if "MODE" in op.name else 0)], fresh_state(rng, arch))


def _move(code: int, value: int) -> Any:
    return ins.SOP1(enum.SOP1Op.S_MOV_B32, sdst=src[code], ssrc0=src[128 + value])


def stop_cases(op: Any, arch: str) -> Iterator[Case]:
    """s_endpgm and s_barrier: what follows is not executed."""
    rng = generator(op.name)
    for n in range(2):
        state = fresh_state(rng, arch)
        state.set_pair(EXEC, (ALL, 0)[n])
        yield Case(f"{n}", [_move(50, 1), ins.SOPP(op), _move(51, 2)], state)


def program_counter_cases(op: Any, arch: str) -> Iterator[Case]:
    """Addresses are the emulator's affair: only differences of them, and where a jump leads, are looked at."""
    rng = generator(op.name)
    get = ins.SOP1(enum.SOP1Op.S_GETPC_B64, sdst=src[40:41])
    clean = [_move(40, 0), _move(41, 0)]
    for n in range(2):
        if op.name == "S_GETPC_B64":
            again = ins.SOP1(op, sdst=src[42:43])
            less = ins.SOP2(enum.SOP2Op.S_SUB_U32, sdst=src[50], ssrc0=src[42], ssrc1=src[40])
            program = [get, *[_move(51, 1)] * n, again, less, *clean, _move(42, 0), _move(43, 0)]
        elif op.name == "S_CALL_B64":  # the link is 4 bytes after what s_getpc_b64 gave
            call = ins.SOPK(op, sdst=src[44:45], simm16=n + 1)
            less = ins.SOP2(enum.SOP2Op.S_SUB_U32, sdst=src[50], ssrc0=src[44], ssrc1=src[40])
            program = [get, call, *[_move(51, 1)] * (n + 1), less, *clean, _move(44, 0), _move(45, 0)]
        else:
            fields = {"sdst": src[44:45]} if "SWAP" in op.name else {}
            jump = ins.SOP1(op, ssrc0=src[40:41], **fields)
            skip = [_move(51, 1)] * (n + 1)
            advance = ins.SOP2(enum.SOP2Op.S_ADD_U32, sdst=src[40], ssrc0=src[40], ssrc1=src[128 + 12 + 4 * len(skip)])
            carry = ins.SOP2(enum.SOP2Op.S_ADDC_U32, sdst=src[41], ssrc0=src[41], ssrc1=src[128])
            program = [get, advance, carry, jump, *skip, _move(52, 3), *clean]
            if fields:  # the link minus the target: back over what was skipped
                less = ins.SOP2(enum.SOP2Op.S_SUB_U32, sdst=src[50], ssrc0=src[40], ssrc1=src[44])
                program = [get, advance, carry, jump, *skip, less, *clean, _move(44, 0), _move(45, 0)]
        yield Case(f"{n}", program, fresh_state(rng, arch))

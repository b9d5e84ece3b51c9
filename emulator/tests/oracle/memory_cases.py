"""Test cases of memory instructions: LDS, global, flat, buffer and scalar memory, and loads straight to LDS.

Addresses of stores are distinct for every lane, so that the order of lanes does not matter. Loads and atomics share an
address only if the result does not depend on the order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tinygrad.renderer.amd.dsl import OPERANDS, src
from tinygrad.runtime.autogen.amd.cdna import enum, ins

from oracle.cases import ALL, Case, exec_mask, fresh_state, generator, scalar, vector
from oracle.operands import EXEC, State

LDS_BYTES = 1 << 16
MEMORY_BYTES = 1 << 14
SLOT = 64  # bytes of one lane's own slot
FLOAT_DATA = ("F32", "F64", "F16", "BF16")


def _lane_addresses(state: State, row: int, base: int, rng: np.random.Generator, align: int) -> None:
    order = rng.permutation(64)
    jitter = rng.integers(0, (SLOT // 2) // align, 64) * align
    for lane in range(64):
        state.vector[row, lane] = (base + int(order[lane]) * SLOT + int(jitter[lane])) & 0xFFFFFFFF


def _floats(state: State, op: Any, row: int, count: int, rng: np.random.Generator) -> None:
    """Floating-point atomics: normal numbers, since their treatment of denormals is not MODE's."""
    for kind in FLOAT_DATA:
        if f"_{kind}" in op.name:
            dtype = {"F64": np.float64, "F32": np.float32}.get(kind, np.float16)
            for n in range(count):
                values = rng.uniform(-8, 8, 128).astype(dtype)
                state.vector[row + n] = values.view(np.uint32)[:64]


def lds_cases(op: Any, arch: str) -> Iterator[Case]:
    rng = generator(op.name)
    name, table = op.name, OPERANDS.get(op, {})
    for n in range(6):
        state = fresh_state(rng, arch)
        state.set_pair(EXEC, exec_mask(rng, n))
        state.lds = bytearray(rng.bytes(LDS_BYTES))
        if any(kind in name for kind in FLOAT_DATA):
            state.lds = bytearray(rng.uniform(-8, 8, LDS_BYTES // 4).astype(np.float32).tobytes())
            _floats(state, op, 30, 2, rng)
        align = 1 if "8" in name.rsplit("_", 1)[-1] or "_B8" in name or "_U8" in name or "_I8" in name else 16
        _lane_addresses(state, 20, 256, rng, align)
        fields: dict[str, Any] = {"addr": vector(20, 32)}
        for field, row in (("data0", 30), ("data1", 40), ("vdst", 10)):
            if field in table:
                fields[field] = vector(row, table[field][1])
        offsets = [0, 4, 16, 1, 3, 40]
        if "2" in name.split("_")[1]:  # read2, write2, and their st64 forms: two offsets in elements
            fields["offset0"], fields["offset1"] = (offsets[n], offsets[(n + 1) % 6]) if "ST64" not in name else (n, 5)
            if "WR" in name:
                _lane_addresses(state, 20, 256, rng, 16)
                fields["offset0"], fields["offset1"] = (0, 1) if "ST64" not in name else (n, n + 16)
        elif "PERMUTE" in name or "SWIZZLE" in name:
            fields["offset0"] = 4 * n
        else:
            fields["offset0"] = n if align == 1 else 16 * n
            fields["offset1"] = n % 3
        if "SWIZZLE" in name:
            offset = (0x801F, 0x00B1 | 0x8000, 0x041F, 0x7C1F, 0x03E0, 0x1234)[n]
            fields["offset0"], fields["offset1"] = offset & 255, offset >> 8
        if n == 5 and "_RTN" not in name:
            fields["acc"] = int("READ" in name or "WRITE" in name)
        if "_TR_" in name:
            state.set_pair(EXEC, ALL)  # what a disabled lane contributes is not documented
        if "ADDTID" in name or name in ("DS_APPEND", "DS_CONSUME"):
            state.scalar[124] = 0xABC00000 | 1024 + 64 * n  # the upper bits do not count
            fields.pop("addr")
        if "CMPST" in name:
            _half_equal(state, 30, 2 if "64" in name else 1, fields, bytes(state.lds))
        yield Case(f"{n}", [ins.DS(op, **fields)], state)


def _half_equal(state: State, row: int, dwords: int, fields: dict[str, Any], memory: bytes) -> None:
    """Every other lane of a compare-and-swap compares with what is there."""
    offset = fields["offset0"] | fields.get("offset1", 0) << 8 if "offset0" in fields else fields["offset"]
    for lane in range(0, 64, 2):
        at = int(state.vector[20, lane]) + offset
        for n in range(dwords):
            state.vector[row + n, lane] = int.from_bytes(memory[at + 4 * n : at + 4 * n + 4], "little")


def _fill_memory(state: State, op: Any, base: int, rng: np.random.Generator) -> None:
    data = rng.bytes(MEMORY_BYTES)
    if any(f"_{kind}" in op.name for kind in FLOAT_DATA):
        data = rng.uniform(-8, 8, MEMORY_BYTES // 4).astype(np.float32).tobytes()
    state.memory = {base: bytearray(data)}


def flat_cases(cls: str, op: Any, arch: str, base: int) -> Iterator[Case]:
    """global_* with and without a scalar address, flat_*; `base` is memory that the emulator has mapped."""
    rng = generator(op.name)
    table = OPERANDS.get(op, {})
    for n in range(6):
        state = fresh_state(rng, arch)
        state.set_pair(EXEC, exec_mask(rng, n))
        _fill_memory(state, op, base, rng)
        align = 1 if "BYTE" in op.name else 2 if "SHORT" in op.name else 4
        _lane_addresses(state, 20, 4096, rng, align if "ATOMIC" not in op.name else 8)
        offset = [0, 64, 4095 if align == 1 else 2048 if cls == "FLAT" else -64, 16, 8, 0][n]
        fields: dict[str, Any] = {"offset": offset if cls == "FLAT" else offset & 0x1FFF, "saddr": src[127]}
        if cls == "FLAT":
            fields["saddr"] = src[0]
        if n % 2 and cls == "GLOBAL":
            state.set_pair(70, base)
            fields["saddr"], fields["addr"] = src[70:71], vector(20, 32)
            offset = fields["offset"] - (fields["offset"] >> 12 << 13)
        if "CMPSWAP" in op.name:
            dwords = 2 if "X2" in op.name else 1
            _floats(state, op, 30, 2, rng)
            _half_equal(state, 30 + dwords, dwords, {"offset": offset}, bytes(state.memory[base]))
        if not (n % 2 and cls == "GLOBAL"):
            full = state.vector[20].astype(np.uint64) + np.uint64(base)
            state.vector[20], state.vector[21] = full & np.uint64(0xFFFFFFFF), full >> np.uint64(32)
            fields["addr"] = vector(20, 64)
        _floats(state, op, 30, 2, rng)
        if "data" in table:
            fields["data"] = vector(30, table["data"][1])
        if "vdst" in table:
            fields["vdst"] = vector(10, table["vdst"][1])
        if "ATOMIC" in op.name:
            fields["sc0"] = n % 2
        if "LDS" in op.name:
            _lds_target(state, rng)
        elif n == 5:
            fields["acc"] = 1
        yield Case(f"{n}", [_encode(getattr(ins, cls), op, fields)], state)


def _encode(cls: Any, op: Any, fields: dict[str, Any]) -> Any:
    """Build past tinygrad's register-count check, which takes 0x7f (CDNA's "off") for a scalar address."""
    address = fields.pop("addr")
    inst = cls(op, **fields)
    inst.addr = address
    return inst


def _lds_target(state: State, rng: np.random.Generator) -> None:
    state.lds = bytearray(rng.bytes(LDS_BYTES))
    state.scalar[124] = 512 * int(rng.integers(1, 20)) | 0xABC00000  # the upper bits do not count


def buffer_cases(op: Any, arch: str, base: int, lds: bool = False) -> Iterator[Case]:
    """Raw buffers, in range and out of range; of soffset and the other two, only the latter wrap at 32 bits."""
    rng = generator(f"{op.name} {lds}")
    table = OPERANDS.get(op, {})
    for n in range(8):
        state = fresh_state(rng, arch)
        state.set_pair(EXEC, exec_mask(rng, n))
        _fill_memory(state, op, base, rng)
        align = 1 if "BYTE" in op.name else 2 if "SHORT" in op.name else 4
        _lane_addresses(state, 20, 1024, rng, align if "ATOMIC" not in op.name else 8)
        records = [MEMORY_BYTES, 1024 + 32 * SLOT, MEMORY_BYTES, 4096, MEMORY_BYTES, MEMORY_BYTES, 2048, 0][n]
        state.scalar[40:44] = [base & 0xFFFFFFFF, base >> 32, records, 0x00020000]
        if n == 2:
            state.vector[20, ::3] = 0xFFFFFFF0  # + offset wraps in 32 bits
        state.scalar[45] = [0, 128, 0, 64, 0, 256, 0, 4][n]
        fields: dict[str, Any] = {
            "srsrc": src[40:43],
            "soffset": src[45] if n % 2 else src[128],
            "offset": [0, 256, 16, 8, 0, 512, 64, 0][n],
            "offen": 1,
            "vaddr": vector(20, 32),
        }
        if n == 4 and "STORE" not in op.name and "ATOMIC" not in op.name:
            fields["offen"], fields["offset"] = 0, 1024
        if "vdata" in table:
            fields["vdata"] = vector(30, table["vdata"][1])
        _floats(state, op, 30, 2, rng)
        if "ATOMIC" in op.name:
            fields["sc0"] = n % 2
        if lds:
            fields["lds"] = 1
            _lds_target(state, rng)
        elif n == 5:
            fields["acc"] = 1
        inst = ins.MUBUF(op, **fields)
        if "BYTE" not in op.name:  # whole accesses, in range or out of range: the rule for parts is per dword
            state.vector[20] &= np.uint32(0xFFFFFFF0)
        if "CMPSWAP" in op.name and n == 0:
            dwords = 2 if "X2" in op.name else 1
            _half_equal(state, 30 + dwords, dwords, fields, bytes(state.memory[base]))
        yield Case(f"{n}", [inst], state)


def scratch_cases(op: Any, arch: str) -> Iterator[Case]:
    """Fill 16 bytes of every lane, do the instruction in them, read them back."""
    rng = generator(op.name)
    table = OPERANDS.get(op, {})
    for n in range(6):
        state = fresh_state(rng, arch)
        state.set_pair(EXEC, exec_mask(rng, n) if n != 2 else ALL)
        state.scratch = [bytearray(1024) for _ in range(64)]
        state.vector[20] = rng.integers(0, 16, 64) * 16
        state.scalar[70] = 256
        vectors, scalars = n % 2, n // 2 % 2
        common: dict[str, Any] = {"sve": vectors, "saddr": src[70] if scalars else src[127], "addr": src[276]}
        common["offset"] = 64 + 16 * n
        fields = dict(common)
        if "data" in table:
            fields["data"] = vector(40, table["data"][1])
        if "vdst" in table:
            fields["vdst"] = vector(10, table["vdst"][1])
        if "LDS" in op.name:
            _lds_target(state, rng)
        program = [
            _encode(ins.SCRATCH, enum.SCRATCHOp.SCRATCH_STORE_DWORDX4, {**common, "data": vector(30, 128)}),
            _encode(ins.SCRATCH, op, fields),
            _encode(ins.SCRATCH, enum.SCRATCHOp.SCRATCH_LOAD_DWORDX4, {**common, "vdst": vector(14, 128)}),
        ]
        yield Case(f"{n}", program, state)


def clock_cases(op: Any, arch: str) -> Iterator[Case]:
    """s_memtime: whatever the time is, nothing else changes."""
    rng = generator(op.name)
    clear = [ins.SOP1(enum.SOP1Op.S_MOV_B32, sdst=src[n], ssrc0=src[128]) for n in (50, 51)]
    wait = ins.SOPP(enum.SOPPOp.S_WAITCNT, simm16=0)
    yield Case("0", [ins.SMEM(op, sdata=scalar(50, 64)), wait, *clear], fresh_state(rng, arch))


def scalar_memory_cases(op: Any, arch: str, base: int) -> Iterator[Case]:
    rng = generator(op.name)
    table = OPERANDS.get(op, {})
    bits = table["sdata"][1] if "sdata" in table else 32
    for n in range(6):
        state = fresh_state(rng, arch)
        state.set_pair(EXEC, [ALL, 0][n % 2])
        _fill_memory(state, op, base, rng)
        buffer = "BUFFER" in op.name
        state.set_pair(40, base)
        if buffer:
            state.scalar[42:44] = [MEMORY_BYTES if n != 3 else 16, 0x00020000]
        state.scalar[46] = 128
        fields: dict[str, Any] = {
            "sdata": scalar(64, bits),
            "sbase": src[40:43] if buffer else src[40:41],
            "imm": 1,
            "offset": [0, 16, 1024, 4096, 64, 8][n],
        }
        if n == 4:
            fields["soffset_en"], fields["soffset"] = 1, src[46]
        if n == 5 and not buffer:
            state.set_pair(40, base + 8192)
            fields["offset"] = -4096 & 0x1FFFFF
        if "ATOMIC" in op.name:
            fields["glc"] = n % 2
        if "CMPSWAP" in op.name and n % 3:
            dwords, at = bits // 64, 8192 - 4096 if n == 5 and not buffer else fields["offset"] + 128 * (n == 4)
            held = bytes(state.memory[base])[at : at + 4 * dwords]
            state.scalar[64 + dwords : 64 + 2 * dwords] = np.frombuffer(held, np.uint32)
        yield Case(f"{n}", [ins.SMEM(op, **fields)], state)

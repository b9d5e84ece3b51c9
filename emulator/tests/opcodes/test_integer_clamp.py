"""The clamp modifier of integer instructions: the exact result, kept in the range of the result's format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tinygrad.renderer.amd.dsl import src
from tinygrad.runtime.autogen.amd.cdna import enum, ins

from ckpm_emulator.lowering.opcodes import CLAMPED
from oracle.cases import Case, fresh_state, generator
from oracle.machine import machine

SPECIAL = [0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFF7FFF, 0x80008000, 0xFFFFFF, 0x800000]


def as_signed(value: int, bits: int) -> int:
    low = value & ((1 << bits) - 1)
    return low - (low >> (bits - 1) << bits)


def fields(value: int, bits: int, is_signed: bool) -> list[int]:
    parts = [value >> low & ((1 << bits) - 1) for low in range(0, 32, bits)]
    return [as_signed(part, bits) for part in parts] if is_signed else parts


def distance(a: int, b: int, bits: int) -> int:
    return sum(abs(x - y) for x, y in zip(fields(a, bits, False), fields(b, bits, False), strict=True))


def masked_distance(a: int, b: int) -> int:
    return sum(abs(x - y) for x, y in zip(fields(a, 8, False), fields(b, 8, False), strict=True) if y)


Exact = Callable[[int, int, int], int]  # of operands as unsigned numbers of 32 bits


def in_format(form: str, function: Exact) -> Exact:
    """The function on the operands' low bits as that format has them."""
    bits = int(form[1:])
    mask = (1 << bits) - 1
    return lambda a, b, c: function(*(as_signed(x, bits) if form[0] == "i" else x & mask for x in (a, b, c)))


def dot(bits: int, is_signed: bool) -> Exact:
    def apply(a: int, b: int, c: int) -> int:
        products = zip(fields(a, bits, is_signed), fields(b, bits, is_signed), strict=True)
        return sum(x * y for x, y in products) + (as_signed(c, 32) if is_signed else c)

    return apply


def mad(factor: str, addend: str) -> Exact:
    width = int(factor[1:])

    def convert(value: int, form: str, bits: int) -> int:
        return as_signed(value, bits) if form[0] == "i" else value & ((1 << bits) - 1)

    return lambda a, b, c: convert(a, factor, width) * convert(b, factor, width) + convert(c, addend, 32)


EXACT: dict[str, tuple[str, Exact]] = {  # name: format of the result, exact result
    **{f"v_add_{f}": (f, in_format(f, lambda a, b, c: a + b)) for f in ("u32", "i32", "u16", "i16")},
    **{f"v_sub_{f}": (f, in_format(f, lambda a, b, c: a - b)) for f in ("u32", "i32", "u16", "i16")},
    **{f"v_subrev_{f}": (f, in_format(f, lambda a, b, c: b - a)) for f in ("u32", "u16")},
    **{f"v_mad_{f}": (f, in_format(f, lambda a, b, c: a * b + c)) for f in ("u16", "i16")},
    "v_mad_u32_u16": ("u32", mad("u16", "u32")),
    "v_mad_i32_i16": ("i32", mad("i16", "i32")),
    "v_mad_u32_u24": ("u32", mad("u24", "u32")),
    "v_mad_i32_i24": ("i32", mad("i24", "i32")),
    "v_sad_u8": ("u32", lambda a, b, c: distance(a, b, 8) + c),
    "v_sad_hi_u8": ("u32", lambda a, b, c: (distance(a, b, 8) << 16) + c),
    "v_sad_u16": ("u32", lambda a, b, c: distance(a, b, 16) + c),
    "v_sad_u32": ("u32", lambda a, b, c: abs(a - b) + c),
    "v_msad_u8": ("u32", lambda a, b, c: masked_distance(a, b) + c),
    **{f"v_dot2_{f}32_{f}16": (f"{f}32", dot(16, f == "i")) for f in "iu"},
    **{f"v_dot4_{f}32_{f}8": (f"{f}32", dot(8, f == "i")) for f in "iu"},
    **{f"v_dot8_{f}32_{f}4": (f"{f}32", dot(4, f == "i")) for f in "iu"},
    "v_dot2c_i32_i16": ("i32", dot(16, True)),
    "v_dot4c_i32_i8": ("i32", dot(8, True)),
    "v_dot8c_i32_i4": ("i32", dot(4, True)),
}
PACKED: dict[str, tuple[str, Exact]] = {
    **{f"v_pk_add_{f}": (f, in_format(f, lambda a, b, c: a + b)) for f in ("u16", "i16")},
    **{f"v_pk_sub_{f}": (f, in_format(f, lambda a, b, c: a - b)) for f in ("u16", "i16")},
    **{f"v_pk_mad_{f}": (f, in_format(f, lambda a, b, c: a * b + c)) for f in ("u16", "i16")},
}


def kept(form: str, value: int) -> int:
    bits = int(form[1:])
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if form[0] == "i" else (0, (1 << bits) - 1)
    return min(high, max(low, value)) & ((1 << bits) - 1)


def clamp(name: str, a: int, b: int, c: int) -> int:
    if name in PACKED:
        form, function = PACKED[name]
        halves = [kept(form, function(a >> n, b >> n, c >> n)) for n in (0, 16)]
        return halves[0] | halves[1] << 16
    form, function = EXACT[name]
    return kept(form, function(a, b, c))


def unbounded_results(name: str, operands: list[tuple[int, int, int]]) -> list[int]:
    """The results that would wrap; of packed ones the low halves, beside the whole clamped ones."""
    form, function = (EXACT | PACKED)[name]
    mask = (1 << int(form[1:])) - 1
    if name in PACKED:
        return [clamp(name, *three) & ~mask | function(*three) & mask for three in operands]
    return [function(*three) & mask for three in operands]


def instruction(name: str) -> Any:
    sources = {"src0": src[276], "src1": src[286], "src2": src[296]}
    if name.startswith(("v_pk_", "v_dot2_", "v_dot4_", "v_dot8_")):
        return ins.VOP3P(enum.VOP3POp[name.upper()], vdst=src[266], **sources, opsel_hi=3, opsel_hi2=1, clmp=1)
    accumulates = "c_" in name
    names = {op.name.lower().removesuffix("_e64"): op for op in enum.VOP3Op}
    instruction = ins.VOP3(names[name], vdst=src[296 if accumulates else 266], src0=src[276], src1=src[286], clmp=1)
    if not accumulates:
        instruction.src2 = src[296]
    return instruction


@pytest.mark.parametrize("name", sorted(CLAMPED))
def test_integer_result_stays_in_its_range(name: str) -> None:
    rng = generator(name)
    state = fresh_state(rng)
    for row in (20, 30, 40):
        state.vector[row, ::2] = rng.choice(SPECIAL, 32)
    state.vector[40, 1::4] = rng.choice([0xFFFFFFFF, 0x7FFFFFFF, 0x80000000], 16)
    inst = instruction(name)
    row = inst.vdst.offset - 256
    got = machine().run(Case(name, [inst], state)).vector[row]
    operands = list(zip(*(state.vector[row].tolist() for row in (20, 30, 40)), strict=True))
    want = [clamp(name, *three) for three in operands]
    mask = 0xFFFFFFFF if name in PACKED else (1 << int(EXACT[name][0][1:])) - 1
    assert [int(value) & mask for value in got] == want
    assert any(value != plain for value, plain in zip(want, unbounded_results(name, operands), strict=True))


def test_every_clamped_instruction_has_exact_result() -> None:
    assert EXACT.keys() | PACKED.keys() == CLAMPED

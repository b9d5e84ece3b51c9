"""Cases of the matrix instructions: every field that changes what they compute, and corner values of their formats."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from tinygrad.renderer.amd.dsl import OPERANDS, src
from tinygrad.runtime.autogen.amd.cdna import ins

from oracle import mfma
from oracle.cases import Case, exec_mask, fresh_state, generator, scalar
from oracle.operands import EXEC, State

ROWS = {"src0": 20, "src1": 32, "src2": 96, "vdst": 64}
REGISTERS = (8, 8, 6, 6, 4)  # by the format that cbsz and blgp name
SCALES = (10, 12)
SCALE_CODES = (0, 1, 64, 120, 127, 130, 190, 254, 255)
DENORMALS, CLAMPED = 0xF0, 0xF0 | 1 << 23


def matrix_cases(op: Any, arch: str) -> Iterator[Case]:
    """EXEC partly off (it is ignored), C in VGPRs, AGPRs or a constant, special values in some rounds."""
    rng = generator(op.name)
    for n, fields in enumerate(_modifiers(op, rng)):
        state = fresh_state(rng, arch)
        state.set_pair(EXEC, exec_mask(rng, n))
        state.mode = CLAMPED if n % 6 == 3 else 0xC0 if n % 6 == 2 else DENORMALS
        yield Case(f"{n}", [_instruction(op, n, fields, state, rng)], state)


def _modifiers(op: Any, rng: np.random.Generator) -> Iterator[dict[str, int]]:
    """cbsz, abid and blgp, and what they mean for each kind."""
    shape = mfma.shape_of(op.name)
    if shape.a == "F8F6F4":
        for cbsz, blgp in itertools.product(range(5), range(5)):
            select = {"opsel": int(rng.integers(4)), "opsel_hi": int(rng.integers(4))} if "SCALE" in op.name else {}
            yield {"cbsz": cbsz, "blgp": blgp, "abid": int("SCALE" in op.name), **select}
    elif shape.sparse:
        for cbsz, abid in ((0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (2, 0)):
            yield {"cbsz": cbsz, "abid": abid, "blgp": 0}
    elif shape.result == "F64":
        for n in range(8):
            yield {"cbsz": 0, "abid": 0, "blgp": n}
    else:
        most = shape.blocks.bit_length()  # 2 ** cbsz blocks at most
        for n in range(12):
            cbsz = 0 if n < 4 else n % most
            yield {"cbsz": cbsz, "abid": int(rng.integers(1 << cbsz)), "blgp": 0 if n < 4 else n % 8}


def _instruction(op: Any, n: int, fields: dict[str, int], state: State, rng: np.random.Generator) -> Any:
    shape = mfma.shape_of(op.name)
    dwords = {name: max(1, OPERANDS[op][name][1] // 32) for name in ROWS}
    if shape.a == "F8F6F4":
        dwords |= {"src0": REGISTERS[fields["cbsz"]], "src1": REGISTERS[fields["blgp"]]}
    acc, acc_cd = n % 4, n // 2 % 2
    rows = ROWS | ({"vdst": ROWS["src2"]} if n % 3 == 0 and not shape.sparse else {})
    small = {"src0": fields["cbsz"], "src1": fields["blgp"]} if shape.a == "F8F6F4" else {}
    elements = {"src0": shape.a, "src1": shape.b, "src2": shape.result, "vdst": shape.result}
    for name, bank in (("src0", acc & 1), ("src1", acc >> 1), ("src2", acc_cd), ("vdst", acc_cd)):
        element = mfma.SMALL[small[name]] if name in small else elements[name]
        if name == "src2" and shape.sparse:
            state.vector[rows[name]] = _indices(rng)
        elif name != "vdst" or shape.sparse:
            first = rows[name] + 256 * bank
            state.vector[first : first + dwords[name]] = _random_words(element, rng, n, dwords[name])
    operands: dict[str, Any] = {
        name: src[256 + row : 256 + row + dwords[name] - 1] if dwords[name] > 1 else src[256 + row]
        for name, row in rows.items()
    }
    if n % 6 == 4 and not shape.sparse:
        operands["src2"] = scalar((128, 193, 242)[n // 6 % 3] if shape.result != "I32" else 193, 32 * dwords["src2"])
    if "SCALE" not in op.name:
        return ins.VOP3P_MFMA(op, **operands, acc=acc, acc_cd=acc_cd, **fields)
    for row in SCALES:
        codes = rng.choice(SCALE_CODES[2:7] if n % 5 < 3 else SCALE_CODES, 256).astype(np.uint8)
        state.vector[row] = codes.view(np.uint32)
    scales = {f"scale_src{i}": 256 + row for i, row in enumerate(SCALES)}
    return ins.VOP3PX2(op, **operands, acc=acc, acc_cd=acc_cd, x2encoding=0xD3AC, **scales, **fields)


def _indices(rng: np.random.Generator) -> Any:
    """Pairs of different positions in four, the first below the second (7.5)."""
    pairs = [low | high << 2 for low, high in itertools.combinations(range(4), 2)]
    chosen = rng.choice(pairs, (8, 64)).astype(np.uint32)
    return (chosen << (4 * np.arange(8, dtype=np.uint32))[:, None]).sum(axis=0, dtype=np.uint32)


def _random_words(element: str, rng: np.random.Generator, n: int, dwords: int) -> Any:
    """Registers of numbers, [word, lane]: rounds 5 and 11 have infinities, NaNs and subnormal numbers, 3 large ones."""
    count = 64 * dwords
    if element in ("FP6", "BF6", "FP4", "I8"):
        return rng.integers(0, 1 << 32, (dwords, 64), dtype=np.uint32)
    if element in ("FP8", "BF8"):
        codes = rng.integers(0, 256, 4 * count, dtype=np.uint8)
        return (codes if n % 6 in (3, 5) else codes & 0xBF).view(np.uint32).reshape(dwords, 64)
    if element == "I32":
        near = (
            rng.integers(-(1 << 31), 1 << 31, count) if n % 6 != 3 else rng.choice([-(1 << 31), (1 << 31) - 1], count)
        )
        return near.astype(np.int32).view(np.uint32).reshape(dwords, 64)
    values = rng.normal(0, 10.0 ** rng.integers(-2, 3), 2 * count)
    special = n % 6 == 5
    if special:
        values[::37], values[5::41] = np.inf, np.nan
    if element == "F64":
        if special:
            values[3::7] = 5e-324 * rng.integers(1, 1 << 20, values[3::7].size)
        return np.stack(
            [values[:count].reshape(dwords, 64)[::2].view(np.uint32)[..., i::2] for i in (0, 1)], 1
        ).reshape(dwords, 64)
    if element in ("F32", "XF32"):
        single = values[:count].astype(np.float32)
        single[3::7] *= np.float32(2.0**-140 if special or n % 6 == 2 else 1)
        single[1::11] *= np.float32(2.0**118 if n % 6 == 3 else 1)
        return single.view(np.uint32).reshape(dwords, 64)
    if element == "F16":
        half = values.astype(np.float16)
        half[3::7] *= np.float16(2.0**-20 if special else 1)
        return half.view(np.uint32).reshape(dwords, 64)
    single = values.astype(np.float32)
    single[1::11] *= np.float32(2.0**60 if n % 6 == 3 else 1)
    return (single.view(np.uint32) >> 16).astype(np.uint16).view(np.uint32).reshape(dwords, 64)

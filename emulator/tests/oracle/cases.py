"""Test cases for one opcode: encoded instructions with every operand kind, on states full of corner cases.

A Case is a short program (usually one instruction) and the wave's state before it. The sources are v20, v30, v40 and
s20, s30, s40. The destinations are v10 and s50, and lane masks are in s60. Scalar and memory cases are in modules of
their own.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from tinygrad.renderer.amd.dsl import OPERANDS, Reg, src
from tinygrad.runtime.autogen.amd.cdna import enum, ins

from oracle import numbers
from oracle.encoding import bare_name
from oracle.operands import EXEC, VCC, Operand, State, operand

Generator = np.random.Generator
ALL = (1 << 64) - 1
ROUNDS = 14
# Denormals of these are not decided by the manual when MODE flushes: only MODE.FP_DENORM = allow is compared.
DENORMALS_OPEN = (
    *("V_DIV_", "V_FREXP_EXP_I32_F64", "V_FREXP_MANT_F64", "V_DOT", "V_CVT_PK"),
    *("BF16", "FP8", "BF8", "SCALEF32"),
)
# 16-bit results that clear bits 31:16 on gfx9 (LLVM GCNSubtarget::zeroesHigh16BitsOfDest; it was found by experiment).
# Other 16-bit results keep them or not: there the low half alone is compared.
_CLEARS_HIGH = re.compile(
    r"V_(CVT_F16_|(RCP|RSQ|SQRT|LOG|EXP|SIN|COS|FLOOR|CEIL|TRUNC|RNDNE|FRACT|FREXP_MANT|LDEXP|ADD|SUB|SUBREV|MUL|MAX|MIN)_F16"
    r"|FREXP_EXP_I16|(LSHLREV|LSHRREV)_B16|ASHRREV_I16|(ADD|SUB|SUBREV|MUL_LO|MAX|MIN)_U16|(MAX|MIN)_I16|CVT_F16)"
)


@dataclass
class Case:
    label: str
    program: list[Any]
    state: State
    tolerance: int = 0  # units in the last place of a floating-point result
    outputs: dict[int, Operand] = field(default_factory=dict)  # first destination row: format of what is there
    low_half: bool = False  # of a 16-bit result: what happens to bits 31:16 is not documented


def vector(row: int, bits: int) -> Reg:
    count = max(1, (bits + 31) // 32)
    return cast("Reg", src[256 + row : 256 + row + count - 1] if count > 1 else src[256 + row])


def scalar(code: int, bits: int) -> Reg:
    count = max(1, (bits + 31) // 32)
    return cast("Reg", src[code : code + count - 1] if count > 1 else src[code])


def generator(label: str) -> Generator:
    return np.random.default_rng(zlib.crc32(label.encode()))


def fresh_state(rng: Generator, arch: str = "gfx950") -> State:
    state = State(
        rng.integers(0, 1 << 32, (512, 64), dtype=np.uint32), rng.integers(0, 1 << 32, 256, dtype=np.uint32), arch=arch
    )
    state.scalar[128:] = 0
    state.scalar[253] = rng.integers(2)
    state.set_pair(EXEC, ALL)
    return state


def exec_mask(rng: Generator, n: int) -> int:
    """All, part, none, one lane."""
    random = int.from_bytes(rng.bytes(8), "little")
    return [ALL, random, 0, ALL, 1 << int(rng.integers(64)), random | random >> 1][n % 6]


def mode_register(n: int, denormals_open: bool) -> int:
    """Rounding of f32 and f16/f64, denormals of both, DX10_CLAMP and IEEE, all values in turn."""
    rounding = (n & 3) | (3 - (n & 3)) << 2
    denormals = 15 if denormals_open else (15, 0, 10, 5, 12, 3, 0)[n % 7]
    return rounding | denormals << 4 | (n % 3 != 0) << 8 | (n % 2 == 0) << 9


def fill(state: State, row: int, kind: Operand, rng: Generator, ordinary: bool = False) -> None:
    dwords = numbers.draw(kind, 64, rng, ordinary)
    state.vector[row : row + len(dwords)] = dwords


def fill_scalar(state: State, code: int, kind: Operand, rng: Generator) -> None:
    dwords = numbers.draw(kind, 1, rng)
    state.scalar[code : code + len(dwords)] = dwords[:, 0]


def kind_of(op: Any, name: str) -> Operand:
    return operand(SimpleNamespace(operands=OPERANDS.get(op, {})), name)


def _inline(kind: Operand, n: int) -> Reg:
    """An inline constant that the operand's format has."""
    integers = [128, 129, 192, 193, 208, 133]
    return scalar([242, 240, 247, 244, 248, 128][n % 6] if kind.format is not None else integers[n % 6], kind.bits)


def vop_sources(state: State, cls: str, op: Any, n: int, rng: Generator) -> dict[str, Any]:
    """Source fields of a VOP instruction; round n decides which are SGPRs, inline constants or a literal."""
    names = {"VOP1": ["src0"], "VOP2": ["src0", "vsrc1"], "VOPC": ["src0", "vsrc1"]}.get(cls, ["src0", "src1", "src2"])
    table = OPERANDS.get(op, {})
    names = [name for name in names if name in table]
    fields: dict[str, Any] = {}
    for at, name in enumerate(names):
        kind = kind_of(op, name)
        fill(state, 20 + 10 * at, kind, rng)
        fields[name] = vector(20 + 10 * at, kind.bits)
    first, kind = names[0], kind_of(op, names[0])
    only_vector = "VGPR" in table[first][2].name and "SRC" not in table[first][2].name
    if only_vector or "SRC_VGPR" in table[first][2].name:
        return fields
    choice = n % 7
    if choice == 1:
        fill_scalar(state, 20, kind, rng)
        fields[first] = scalar(20, kind.bits)
    elif choice == 3 and kind.packed == 1 and kind.element not in ("BF16", "FP8", "BF8"):
        fields[first] = _inline(kind, n // 7)
    elif choice == 5 and cls in ("VOP1", "VOP2", "VOPC") and kind.bits <= 32 and kind.packed == 1:
        fields[first] = (0x12345678, 0x3FC00000, 0x80000001, 0x00013C00)[n // 7 % 4]
    elif choice == 6 and len(names) > 2 and cls.startswith("VOP3") and kind_of(op, names[-1]).packed == 1:
        last = kind_of(op, names[-1])
        if "M64" not in table[names[-1]][0].name:
            fill_scalar(state, 40, last, rng)
            fields[names[-1]] = scalar(40, last.bits)
    elif choice == 4 and len(names) > 1 and cls.startswith("VOP3") and kind_of(op, names[1]).packed == 1:
        fields[names[1]] = _inline(kind_of(op, names[1]), n)
    return fields


def _modifiers(cls: str, op: Any, fields: dict[str, Any], n: int, rng: Generator) -> None:
    """neg, abs, clamp, omod, op_sel where the operand formats allow them."""
    kinds = [kind_of(op, name) for name in ("src0", "src1", "src2") if name in fields]
    result = kind_of(op, "vdst")
    bare = op.name.removesuffix("_E64")
    if bare.startswith("V_BITOP3"):
        table = int(rng.integers(256))
        fields["omod"], fields["abs"], fields["neg"] = table >> 6, table >> 3 & 7, table & 7
        return
    if "SCALEF32" in bare:
        _scaled_modifiers(bare, fields, kinds, n, rng)
        return
    if bare.startswith(("V_CMP_CLASS", "V_CVT_SR", "V_CVT_PK_FP8", "V_CVT_PK_BF8", "V_READ", "V_WRITE")):
        if bare.startswith(("V_CVT_PK_FP8", "V_CVT_PK_BF8")) or bare.startswith(("V_CVT_SR_F16", "V_CVT_SR_BF16")):
            fields["opsel"] = 8 * (n % 2)
        elif bare.startswith("V_CVT_SR"):
            fields["opsel"] = 4 * (n % 4)
        return
    if cls in ("VOP3", "VOP3SD") and n % 2:
        allowed = sum(1 << at for at, kind in enumerate(kinds) if kind.format is not None and kind.packed == 1)
        if bare.startswith("V_LDEXP"):
            allowed = 1
        if not bare.startswith("V_DIV_"):
            fields["neg"] = int(rng.integers(8)) & allowed
            if cls == "VOP3":
                fields["abs"] = int(rng.integers(8)) & allowed
    compares = bare.startswith("V_CMP")
    if cls == "VOP3" and result.format is not None and not compares and not bare.startswith(("V_DIV_", "V_CVT_PK")):
        fields["clmp"] = int(n % 5 == 2)
        if result.bits in (16, 32, 64) and result.packed == 1 and not bare.startswith("V_LDEXP"):
            fields["omod"] = n // 3 % 4 if n % 7 in (1, 6) else 0


def _scaled_modifiers(bare: str, fields: dict[str, Any], kinds: list[Operand], n: int, rng: Generator) -> None:
    """op_sel of V_CVT_SCALEF32: which byte or half holds the small values; neg and abs of operands in f32."""
    plain = [at for at, kind in enumerate(kinds) if kind.element == "F32" and kind.packed == 1]
    allowed = sum(1 << at for at in plain)
    fields["neg"], fields["abs"] = int(rng.integers(8)) & allowed, int(rng.integers(8)) & allowed
    if "PK32" in bare or "PK16" in bare:
        return
    to_small = bare.endswith(("F32", "F16"))
    if to_small:
        byte = "_SR_" in bare or "_FP4_" in bare
        fields["opsel"] = 4 * (n % 4) if byte else 8 * (n % 2)
    elif "_PK_" in bare and not bare.endswith("FP4"):
        fields["opsel"] = n % 2
    else:
        fields["opsel"] = n % 4 | 8 * (n // 4 % 2 and "_F16_" in bare and "_PK_" not in bare)


def sdwa_cases(cls: str, op: Any, arch: str) -> Iterator[Case]:
    """Sub-dword selects of both sources and the destination, sign extension, negation, SGPR sources."""
    bare = op.name.removesuffix("_E32")
    rng = generator(f"sdwa {op.name}")
    for n in range(6):
        state = fresh_state(rng, arch)
        state.mode = mode_register(n, True)
        state.set_pair(EXEC, exec_mask(rng, n))
        fields = vop_sources(state, cls, op, 0, rng)
        _special(bare, fields, state, 0, rng)
        _destination(cls, op, fields)
        sources = [kind_of(op, name) for name in ("src0", "vsrc1") if name in fields]
        floats_in = [kind.format is not None for kind in sources]
        allowed = [_selections(bare, kind) for kind in sources]
        fields["vsrc0"], fields["src0"] = fields["src0"], src[249]
        fields["src0_sel"] = allowed[0][n % len(allowed[0])] if n != 2 else min(allowed[0][-1], 6)
        if "FP8" in bare or "BF8" in bare:
            fields["src0_sel"] = allowed[0][n % len(allowed[0])]
        elif not floats_in[0]:
            fields["src0_sel"], fields["src0_sext"] = (0, 1, 2, 3, 4, 5)[n], n // 2 % 2
        elif sources[0].packed == 1:
            fields["src0_neg"], fields["src0_abs"] = n % 2, n // 2 % 2
        fields["src1_sel"] = 6
        if len(sources) > 1:
            fields["src1_sel"] = allowed[1][(n + 1) % len(allowed[1])]
            if not floats_in[1]:
                fields["src1_sext"] = (n + 1) // 3 % 2
        name = f"{cls}_SDWA"
        if cls == "VOPC":
            name, fields["sd"], fields["sdst"] = "VOPC_SDWA_SDST", n % 2, scalar(60, 64)
        else:
            fields["dst_sel"], fields["dst_unused"] = (6, 6, 4, 5, 1, 6)[n], (0, 2, 2, 2, 1, 0)[n]
            if cls == "VOP1" and kind_of(op, "vdst").format is not None:
                fields["dst_sel"], fields["dst_unused"] = 6, 0
            if fields["dst_sel"] != 6:  # the NaN of a part is compared bit by bit: none comes up
                for row, kind in zip((20, 30), sources, strict=False):
                    if kind.format is not None:
                        fill(state, row, kind, rng, ordinary=True)
        inst = getattr(ins, name)(op, **fields)
        whole = fields.get("dst_sel", 6) == 6
        yield Case(f"sdwa {n}", [inst], state, tolerance_of(bare), _outputs(inst, op) if whole else {})


def _selections(bare: str, kind: Operand) -> tuple[int, ...]:
    """SDWA selections of a source that are documented: a byte or a word of small formats, no part of a longer float."""
    if "FP8" in bare or "BF8" in bare:
        return (4, 5) if "_PK_" in bare else (0, 1, 2, 3)
    if kind.packed > 1:
        return (6,)
    return (0, 4, 5, 6) if kind.format is None or kind.bits == 16 else (6,)


DPP_CONTROLS = (0x1B, 0x4E, 0x101, 0x11F, 0x112, 0x128, 0x130, 0x138, 0x140, 0x141, 0x142, 0x143, 0x150, 0x15B)
# row_newbcast: 64-bit operands have no other (LLVM, isLegalDPALU_DPPControl)
WIDE_CONTROLS = (0x150, 0x153, 0x15B, 0x15F)


def dpp_cases(cls: str, op: Any, arch: str) -> Iterator[Case]:
    """Data from other lanes: every control, bound control, row and bank masks, disabled source lanes."""
    bare = op.name.removesuffix("_E32")
    rng = generator(f"dpp {op.name}")
    wide = any(kind_of(op, name).bits > 32 for name in OPERANDS.get(op, {}))
    for n, control in enumerate(WIDE_CONTROLS if wide else DPP_CONTROLS):
        state = fresh_state(rng, arch)
        state.mode = mode_register(n, True)
        state.set_pair(EXEC, exec_mask(rng, n))
        fields = vop_sources(state, cls, op, 0, rng)
        _special(bare, fields, state, 0, rng)
        _destination(cls, op, fields)
        fields["vsrc0"], fields["src0"] = fields["src0"], src[250]
        fields |= {"dpp": control, "bc": n % 2, "row_mask": (15, 15, 10, 15)[n % 4], "bank_mask": (15, 5, 15)[n % 3]}
        inst = getattr(ins, f"{cls}_DPP16")(op, **fields)
        yield Case(f"dpp {control:#x}", [inst], state, tolerance_of(bare), _outputs(inst, op))


def vop_cases(cls: str, op: Any, arch: str) -> Iterator[Case]:
    bare = op.name.removesuffix("_E32").removesuffix("_E64")
    rng = generator(f"{cls} {op.name}")
    table = OPERANDS.get(op, {})
    is_float = any(kind_of(op, name).format is not None for name in table)
    open_denormals = any(part in bare for part in DENORMALS_OPEN)
    for n in rounds(cls, bare, is_float):
        state = fresh_state(rng, arch)
        state.mode = mode_register(n, open_denormals) if is_float else 0xF0 | (n & 3)
        if open_denormals and bare.endswith("F64") and n % 2:
            state.mode &= ~0x30  # of f32 alone: nothing is open
        if "NORM" in bare:  # rounding of these is not documented: nearest
            state.mode &= ~15
        state.set_pair(EXEC, exec_mask(rng, n))
        fields = vop_sources(state, cls, op, n, rng)
        _destination(cls, op, fields)
        name = "VOP3_SDST" if cls == "VOP3" and "vdst" in fields and fields["vdst"].offset < 256 else cls
        if cls in ("VOP3", "VOP3SD"):
            _modifiers(cls, op, fields, n, rng)
        elif cls == "VOP3P":
            _packed_modifiers(op, fields, n, rng)
        _special(bare, fields, state, n, rng)
        if bare.startswith(("V_FMAMK", "V_FMAAK", "V_MADMK", "V_MADAK")):
            halves = bare.endswith("F16")  # an inline f16 and a literal need two constants, which no compiler emits
            fields["src0"] = vector(20, 32) if halves or isinstance(fields["src0"], int) else fields["src0"]
            name, fields["literal"] = "VOP2_LIT", int(numbers.draw(kind_of(op, "vdst"), 1, rng)[0, 0])
            if halves and not fields["literal"] & 0x7C00:  # flushed like an operand, which the listing doesn't say
                fields["literal"] |= 0x3000
        inst = getattr(ins, name)(op, **fields)
        half = "vdst" in table and kind_of(op, "vdst").bits == 16 and not _CLEARS_HIGH.match(bare)
        half = (
            half and "SCALEF32" not in bare and not bare.startswith("V_CVT_SR_")
        )  # these say that the other bits are preserved
        yield Case(f"{n}", [inst], state, tolerance_of(bare), _outputs(inst, op), half)


def rounds(cls: str, bare: str, is_float: bool) -> Iterator[int]:
    """Comparisons and the VOP3 forms of VOP1 and VOP2 opcodes get fewer, spread over modes and operand kinds."""
    if bare.startswith("V_CMP"):
        return iter((0, 1, 3, 4) if cls == "VOPC" else (1, 4, 6, 9))
    again = cls == "VOP3" and (hasattr(enum.VOP1Op, bare + "_E32") or hasattr(enum.VOP2Op, bare + "_E32"))
    if again:
        return iter((1, 2, 4, 7, 11, 13) if is_float else (1, 3, 4, 6))
    return iter(range(ROUNDS if is_float else 8))


def tolerance_of(bare: str) -> int:
    """1 ulp for the transcendental unit (opcode descriptions: "1 ULP accuracy")."""
    if bare.endswith("F64"):
        return 4  # the hardware promises 2**29 units only; the emulator rounds
    return int(bare.startswith(("V_EXP", "V_LOG", "V_RCP", "V_RSQ", "V_SQRT", "V_SIN", "V_COS")))


def _outputs(inst: Any, op: Any) -> dict[int, Operand]:
    if not hasattr(inst, "vdst") or inst.vdst.offset < 256:
        return {}
    kind = kind_of(op, "vdst")
    name = bare_name(inst)
    if "_MIX" in name:
        kind = Operand("F32" if name.endswith("F32") else "F16", 1 if name.endswith("F32") else 2, 32)
    return {inst.vdst.offset - 256: kind}


def _destination(cls: str, op: Any, fields: dict[str, Any]) -> None:
    table = OPERANDS.get(op, {})
    bare = op.name.removesuffix("_E64").removesuffix("_E32")
    if bare.startswith("V_CMP"):
        if cls == "VOP3":
            fields["vdst"] = scalar(60, 64)
        return
    if bare.startswith(("V_READLANE", "V_READFIRSTLANE")):
        fields["vdst"] = src[256 + 50]  # the field is a VGPR number in tinygrad's class: s50
        return
    if "vdst" in table:
        fields["vdst"] = vector(10, table["vdst"][1])
    if cls == "VOP3SD":
        fields["sdst"] = scalar(60, 64)


def _special(bare: str, fields: dict[str, Any], state: State, n: int, rng: Generator) -> None:
    """Constraints that single opcodes put on their operands."""
    if bare.startswith("V_DIV_SCALE"):
        fields["src0"] = fields["src1"] = vector(30, 32 if bare.endswith("F32") else 64)
        if n % 2:
            fields["src0"] = fields["src2"]
        for row, kind in ((30, Operand(bare[-3:], 1, int(bare[-2:]))), (40, Operand(bare[-3:], 1, int(bare[-2:])))):
            fill(state, row, kind, rng)
    if bare.startswith(("V_CNDMASK", "V_ADDC", "V_SUBB")) and "src2" in fields:
        fields["src2"] = scalar((VCC, 70)[n % 2], 64)
    if bare.startswith(("V_READLANE", "V_WRITELANE")):
        fields["src1"] = src[[128 + n % 64, 21, 30][n % 3]] if n % 2 else src[30]
        fields.pop("src2", None)
    if bare.startswith("V_WRITELANE"):
        fields["src0"] = src[[20, 129 + n, 124][n % 3]]
    if bare.startswith("V_PERMLANE"):
        state.set_pair(EXEC, ALL)  # what a disabled lane does is not documented
    if bare.startswith("V_DIV_FMAS"):
        state.set_pair(VCC, int.from_bytes(rng.bytes(8), "little"))
    if bare.startswith("V_PERM_B32"):
        for lane in range(64):
            state.vector[40, lane] = int.from_bytes(bytes(rng.integers(0, 16, 4, dtype=np.uint8)), "little")
        if not isinstance(fields["src2"], Reg) or fields["src2"].offset < 256:
            fields["src2"] = vector(40, 32)
    if bare.startswith(("V_LDEXP", "V_EXP")) and n % 2:
        at = 30 if bare.startswith("V_LDEXP") else 20
        if at == 30:
            state.vector[at] = rng.integers(-160, 160, 64).astype(np.int32).view(np.uint32)
    if bare.startswith("V_CVT_SR_"):  # in the normal range: what is added elsewhere is not documented
        state.vector[20] = (rng.uniform(0.05, 200, 64) * rng.choice([-1, 1], 64)).astype(np.float32).view(np.uint32)
        fields["src0"] = vector(20, 32)
    if bare == "V_CVT_PK_BF8_F32":  # which of E5M2's NaNs a NaN becomes is not documented
        for row in (20, 30):
            nan = (state.vector[row] & 0x7FFFFFFF) > 0x7F800000
            state.vector[row][nan] = 0x3F800000
        fields["src0"] = vector(20, 32) if not isinstance(fields["src0"], Reg) else fields["src0"]
    if bare == "V_DOT2_F32_BF16":  # order and rounding of the sum are open: numbers whose sums are exact
        for row in (20, 30):
            halves = rng.integers(-8, 9, (2, 64)).astype(np.float32).view(np.uint32) >> 16
            state.vector[row] = halves[0] | halves[1] << 16
        state.vector[40] = rng.integers(-99, 99, 64).astype(np.float32).view(np.uint32)
        for at, name in enumerate(("src0", "src1", "src2")):
            fields[name] = vector(20 + 10 * at, 32)
    if bare.startswith(
        ("V_SIN", "V_COS")
    ):  # the documented domain, in turns; sines near zero have no relative accuracy
        turns = rng.integers(-256, 256, 64) + rng.uniform(0.02, 0.23, 64)
        if bare.endswith("F32"):
            state.vector[20] = turns.astype(np.float32).view(np.uint32)
        else:  # near enough to 0 that f16 has places after the point
            state.vector[20] = (turns / 16).astype(np.float16).view(np.uint16)
        fields["src0"] = vector(20, 32)
    if bare.startswith("V_ACCVGPR_WRITE") and n % 2:
        fields["src0"] = src[129 + n]


def _packed_modifiers(op: Any, fields: dict[str, Any], n: int, rng: Generator) -> None:
    if "ACCVGPR" in op.name:
        return
    kinds = [kind_of(op, name) for name in ("src0", "src1", "src2") if name in fields]
    if "_MIX" in op.name:
        fields["opsel"], fields["opsel_hi"] = int(rng.integers(8)), int(rng.integers(4))
        fields["opsel_hi2"] = int(rng.integers(2))
        fields["neg"], fields["neg_hi"] = int(rng.integers(8)) * (n % 2), int(rng.integers(8)) * (n % 2)
        fields |= {name: vector(20 + 10 * at, 32) for at, name in enumerate(("src0", "src1", "src2"))}
        return
    if op.name.startswith("V_DOT"):
        return
    floats_in = sum(1 << at for at, kind in enumerate(kinds) if kind.format is not None)
    fields["opsel"] = int(rng.integers(8)) & ((1 << len(kinds)) - 1) if n % 3 else 0
    if op.name == "V_PK_MOV_B32":
        fields["opsel"] &= 3
        return
    if n % 3:
        fields["opsel_hi"], fields["opsel_hi2"] = int(rng.integers(4)), int(rng.integers(2))
    if n % 2:
        fields["neg"], fields["neg_hi"] = int(rng.integers(8)) & floats_in, int(rng.integers(8)) & floats_in
    if n % 7 == 3 and kinds[0].format is not None:
        fields["src0"] = scalar((242, 247)[n % 2], kinds[0].bits)
        fields["opsel"], fields["opsel_hi"] = fields["opsel"] & ~1, fields.get("opsel_hi", 3) & ~1
    fields["clmp"] = int(n % 5 == 4 and floats_in != 0)

"""The matrix instructions: names, archs, work, passes.

Names, archs and passes: LLVM's VOP3PInstructions.td (isGFX940Plus, HasGFX950Insts, HasXF32Insts, HasFP8Insts) and
SISchedule.td; CDNA3 and CDNA4 ISA documents, tables of MFMA and SMFMA latencies.
"""

from __future__ import annotations

import re
from typing import Any

_FP8 = "fp8_fp8 fp8_bf8 bf8_fp8 bf8_bf8"
# m = n, k, blocks, formats of A and B
_DENSE = (
    *((32, 1, 2, "f32"), (16, 1, 4, "f32"), (4, 1, 16, "f32"), (32, 2, 1, "f32"), (16, 4, 1, "f32")),
    *((32, 4, 2, "f16 bf16 i8"), (16, 4, 4, "f16 bf16 i8"), (4, 4, 16, "f16 bf16 i8")),
    *((32, 8, 1, "f16 bf16"), (16, 16, 1, "f16 bf16"), (32, 16, 1, f"{_FP8} i8"), (16, 32, 1, f"{_FP8} i8")),
    *((16, 4, 1, "f64"), (4, 4, 4, "f64")),
)
_DENSE_942 = ((32, 4, 1, "xf32"), (16, 8, 1, "xf32"))
_DENSE_950 = (
    *((32, 16, 1, "f16 bf16"), (16, 32, 1, "f16 bf16"), (32, 32, 1, "i8"), (16, 64, 1, "i8")),
    *((32, 64, 1, "f8f6f4"), (16, 128, 1, "f8f6f4")),
)
_SPARSE = ((32, 16, 1, "f16 bf16"), (16, 32, 1, "f16 bf16"), (32, 32, 1, f"{_FP8} i8"), (16, 64, 1, f"{_FP8} i8"))
_SPARSE_950 = ((32, 32, 1, "f16 bf16"), (16, 64, 1, "f16 bf16"), (32, 64, 1, f"{_FP8} i8"), (16, 128, 1, f"{_FP8} i8"))
SCALED = "v_mfma_scale_"
SPARSE = "v_smfmac_"
_RESULTS = {"i8": "i32", "f64": "f64"}
_NAME = re.compile(r"v_(?:mfma|smfmac)_(?:scale_)?[fi]\d+_(\d+)x\d+x(\d+)_(?:(\d+)b_)?(\w+)")
FORMATS_OF_8_BITS = 2  # fields CBSZ and BLGP of f8f6f4: fp8, bf8, fp6, bf6, fp4


def _names(prefix: str, rows: tuple[tuple[int, int, int, str], ...]) -> frozenset[str]:
    return frozenset(
        f"{prefix}{_RESULTS.get(form, 'f32')}_{m}x{m}x{k}_{f'{blocks}b_' if blocks > 1 else ''}{form}"
        for m, k, blocks, forms in rows
        for form in forms.split()
    )


NAMES = (
    _names("v_mfma_", (*_DENSE, *_DENSE_942, *_DENSE_950))
    | _names(SCALED, tuple(row for row in _DENSE_950 if row[3] == "f8f6f4"))
    | _names(SPARSE, (*_SPARSE, *_SPARSE_950))
)


# Opcodes that gfx90a has, too; to others of its own the tables here give other instructions' names.
_GFX90A = frozenset(
    name for name in _names("v_mfma_", _DENSE) if name.endswith(("_f32", "_f16", "_f64")) or name.endswith("b_i8")
)


def refusal_of_gfx90a(name: str) -> str:
    """The reason why gfx90a lacks a matrix instruction; '' if it has the opcode."""
    return "" if name in _GFX90A else f"gfx90a has not the matrix instruction {name}"


def flops(name: str) -> int:
    """Multiplications and additions of the whole wave; of a sparse A, those with stored values."""
    n, k, blocks, _ = _shape(name)
    return 2 * n * n * k * blocks // (2 if name.startswith(SPARSE) else 1)


def blocks_of(name: str) -> int:
    return _shape(name)[2]


def passes(name: str, record: Any, arch: str) -> int:
    """Passes of four cycles of the matrix unit."""
    rows, _, blocks, form = _shape(name)
    if form == "f64":
        return 4 if rows == 4 else 16 if arch == "gfx950" else 8
    if arch == "gfx90a" or rows == 4:
        return {4: 2, 16: 8, 32: 16}[rows]
    fast = 4 if rows == 16 else 8
    slow = form == "f32" or blocks > 1
    if form == "f8f6f4":
        slow = min(record.cbsz, record.blgp) < FORMATS_OF_8_BITS
    return 2 * fast if slow else fast


def _shape(name: str) -> tuple[int, int, int, str]:
    """m = n, k, blocks and the formats."""
    match = _NAME.match(name)
    assert match, name
    return int(match[1]), int(match[2]), int(match[3] or 1), match[4]

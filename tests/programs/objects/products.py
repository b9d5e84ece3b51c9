"""AITER's matrix products: bf16gemm (bf16 to float32) and f4gemm (blocks of 32 FP4 numbers with a scale, to bf16)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ckpm.attention.launch.encodings import decode, encode
from ckpm.attention.tolerances import U, compare
from tests.programs.objects.attention import numbers
from tests.programs.objects.launching import Array, Launch, Machine
from tests.programs.objects.package import CodeObject
from triton_launches import number_formats

_THREADS, _BLOCK = 256, 32
_ROWS, _COLUMNS = 256, 8  # f4gemm's scales are padded to multiples of them
_HALF_ULP = 2.0**-8  # of bf16


class Sizes(NamedTuple):
    """D [m, n] = A [m, k] times B [n, k]; the workgroups of a tile share k by ``splits``."""

    m: int
    n: int
    k: int
    splits: int


def bf16(machine: Machine, code: CodeObject) -> None:
    """Compare a kernel's output with float64: a difference is an AssertionError, a fault a DeviceError."""
    tile_m, tile_n = tile(code)
    for sizes in (Sizes(2 * tile_m + 5, 3 * tile_n, 448, 1), Sizes(tile_m - 1, 2 * tile_n, 256, 2)):
        generator = np.random.default_rng(sizes)
        a, b = (numbers(generator, (rows, sizes.k), machine.arch) for rows in (sizes.m, sizes.n))
        with machine.memory() as memory:
            d = memory.upload(np.zeros((sizes.m, sizes.n), np.float32))
            values = {
                **{"d": d, "alpha": 1.0, "beta": 0.0, "m": sizes.m, "n": sizes.n, "k": sizes.k},
                **{name: memory.upload(encode(x, "bf16", machine.arch)) for name, x in (("a", a), ("b", b))},
                **{"a_row": 2 * sizes.k, "b_row": 2 * sizes.k, "c_row": 4 * sizes.n, "splits": sizes.splits},
            }
            grid = (sizes.n // tile_n, -(-sizes.m // tile_m), sizes.splits)
            machine.launch(code, Launch("bf16gemm", grid, _THREADS, values))
            computed = memory.read(d, (sizes.m, sizes.n), np.float32).astype(np.float64)
        agree(computed, a, b, sizes)


def fp4(machine: Machine, code: CodeObject) -> None:
    """Compare a kernel's output with float64: a difference is an AssertionError, a fault a DeviceError."""
    tile_m, tile_n = tile(code)
    shuffled = "BpreShuffle" in code.name_parts
    several = (tile_m, tile_n) in ((256, 256), (128, 512)) and shuffled  # csv: splitK
    for sizes in (Sizes(tile_m + 32, 2 * tile_n, 768, 1), *([Sizes(tile_m, tile_n, 1024, 4)] if several else [])):
        generator = np.random.default_rng(sizes)
        (a, *of_a), (b, *of_b) = (blocks(generator, rows, sizes.k) for rows in (sizes.m, sizes.n))
        with machine.memory() as memory:
            d = memory.upload(np.zeros((sizes.m, sizes.n), np.uint16))
            values = {
                **{"d": d, "alpha": 1.0, "beta": 0.0, "m": sizes.m, "n": sizes.n, "k": sizes.k},
                **{
                    "a": memory.upload(of_a[0]),
                    "b": memory.upload(in_order_of_lanes(of_b[0]) if shuffled else of_b[0]),
                },
                **{
                    f"scale_{name}": memory.upload(scales_in_order(operand[1]))
                    for name, operand in (("a", of_a), ("b", of_b))
                },
                **dict.fromkeys(("a_row", "b_row"), sizes.k),
                **{"c_row": sizes.n, "log2_splits": sizes.splits.bit_length() - 1},
                **dict.fromkeys(("scale_a_row", "scale_b_row"), -(-sizes.k // _BLOCK // _COLUMNS) * _COLUMNS),
            }
            grid = (sizes.n // tile_n, -(-sizes.m // tile_m), sizes.splits)
            machine.launch(code, Launch("f4gemm", grid, _THREADS, values))
            computed = decode(memory.read(d, (sizes.m, sizes.n), np.uint16), "bf16", machine.arch)
        agree(computed, a, b, sizes, stored=_HALF_ULP)


def tile(code: CodeObject) -> tuple[int, int]:
    """Rows and columns of a workgroup's tile, by the name of the file."""
    size = next(word for word in reversed(code.name_parts) if "x" in word and word[0].isdigit())
    m, n = map(int, size.split("x"))
    return m, n


def agree(computed: Array, a: Array, b: Array, sizes: Sizes, stored: float = 0.0) -> None:
    """Compare within the error of sums in float32, with each split's part rounded by ``stored``."""
    size = np.abs(a) @ np.abs(b).T
    allowed = (sizes.k + 8) * U * size + stored * (np.abs(a @ b.T) + (sizes.splits - 1) * size)
    line = compare("d", computed, a @ b.T, allowed)
    assert line.passed, str(line)


def blocks(generator: np.random.Generator, rows: int, k: int) -> tuple[Array, Array, Array]:
    """Random numbers of blocks: their values [rows, k], codes two a byte [rows, k / 2], scales [rows, k / 32]."""
    codes = generator.integers(0, 16, (rows, k), np.uint8)
    scales = generator.integers(124, 131, (rows, k // _BLOCK), np.uint8)  # E8M0
    values = number_formats.numbers("fp4")[codes] * np.exp2(scales.astype(np.float64) - 127).repeat(_BLOCK, axis=1)
    return values, codes[:, ::2] | codes[:, 1::2] << 4, scales


def in_order_of_lanes(content: Array) -> Array:
    """Rows by 16, columns by 32 bytes: of each such block the left 16 bytes of all rows come first."""
    rows, columns = content.shape
    return content.reshape(rows // 16, 16, columns // 32, 2, 16).transpose(0, 2, 3, 1, 4).reshape(rows, columns)


def scales_in_order(scales: Array) -> Array:
    """Padded scales, four of 32 rows and 8 columns in a dword: two of rows 16 apart, two of columns 4 apart."""
    rows, columns = scales.shape
    whole = np.zeros((-(-rows // _ROWS) * _ROWS, -(-columns // _COLUMNS) * _COLUMNS), np.uint8)
    whole[:rows, :columns] = scales
    parts = whole.reshape(len(whole) // 32, 2, 16, whole.shape[1] // 8, 2, 4)
    return np.ascontiguousarray(parts.transpose(0, 3, 5, 2, 4, 1)).reshape(whole.shape)

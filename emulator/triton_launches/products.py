"""Matrix products in Triton: tiles in groups, persistent, of many problems, split along K, with block scales."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _place(tile, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Row and column of a tile: GROUP rows of tiles are walked column by column, for the sake of the cache."""
    down, across = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    group = tile // (GROUP * across)
    height = tl.minimum(down - group * GROUP, GROUP)
    inside = tile % (GROUP * across)
    return group * GROUP + inside % height, inside // height


@triton.jit
def _tile(a, b, m, n, k, row, column, TYPE: tl.constexpr, PRECISION: tl.constexpr, BLOCK_M: tl.constexpr,
          BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """A tile of ``a @ b``; both are row-major."""
    rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = column * BLOCK_N + tl.arange(0, BLOCK_N)
    deep = tl.arange(0, BLOCK_K)
    total = tl.zeros([BLOCK_M, BLOCK_N], TYPE)
    for start in range(0, k, BLOCK_K):
        left = (rows < m)[:, None] & (start + deep < k)[None, :]
        right = (start + deep < k)[:, None] & (columns < n)[None, :]
        x = tl.load(a + rows[:, None] * k + (start + deep)[None, :], mask=left, other=0.0)
        y = tl.load(b + (start + deep)[:, None] * n + columns[None, :], mask=right, other=0.0)
        total = tl.dot(x, y, total, input_precision=PRECISION, out_dtype=TYPE)
    return total


@triton.jit
def _keep(out, product, m, n, row, column, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = column * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    tl.store(out + rows[:, None] * n + columns[None, :], product.to(out.dtype.element_ty), mask=inside)


@triton.jit
def product(a, b, out, m, n, k, TYPE: tl.constexpr, PRECISION: tl.constexpr, LEAKY: tl.constexpr,
            BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr):  # fmt: skip
    """``a @ b``, one tile a program; with LEAKY negative elements are divided by 100 afterwards."""
    row, column = _place(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP)
    result = _tile(a, b, m, n, k, row, column, TYPE, PRECISION, BLOCK_M, BLOCK_N, BLOCK_K)
    if LEAKY:
        result = tl.where(result >= 0, result, 0.01 * result)
    _keep(out, result, m, n, row, column, BLOCK_M, BLOCK_N)


@triton.jit
def persistent(a, b, out, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
               GROUP: tl.constexpr):  # fmt: skip
    """``a @ b`` by as many programs as there are, each of which takes tile after tile."""
    tiles = tl.cdiv(m, BLOCK_M) * tl.cdiv(n, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        row, column = _place(tile, m, n, BLOCK_M, BLOCK_N, GROUP)
        result = _tile(a, b, m, n, k, row, column, tl.float32, "ieee", BLOCK_M, BLOCK_N, BLOCK_K)
        _keep(out, result, m, n, row, column, BLOCK_M, BLOCK_N)


@triton.jit
def grouped(addresses, sizes, problems, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Products of several problems in one launch: ``addresses`` of a, b and out, ``sizes`` m, n and k of each."""
    tile = tl.program_id(0)
    passed = 0
    for problem in range(problems):
        m, n, k = tl.load(sizes + 3 * problem), tl.load(sizes + 3 * problem + 1), tl.load(sizes + 3 * problem + 2)
        across = tl.cdiv(n, BLOCK_N)
        tiles = tl.cdiv(m, BLOCK_M) * across
        while (tile >= passed) & (tile < passed + tiles):
            a = tl.load(addresses + 3 * problem).to(tl.pointer_type(tl.float16))
            b = tl.load(addresses + 3 * problem + 1).to(tl.pointer_type(tl.float16))
            out = tl.load(addresses + 3 * problem + 2).to(tl.pointer_type(tl.float16))
            row, column = (tile - passed) // across, (tile - passed) % across
            result = _tile(a, b, m, n, k, row, column, tl.float32, "ieee", BLOCK_M, BLOCK_N, BLOCK_K)
            _keep(out, result, m, n, row, column, BLOCK_M, BLOCK_N)
            tile += tl.num_programs(0)
        passed += tiles


@triton.jit
def split(a, b, out, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """``a @ b`` with K split among programs that add their parts up by atomics; BLOCK_K divides K."""
    row, column, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rows, columns = row * BLOCK_M + tl.arange(0, BLOCK_M), column * BLOCK_N + tl.arange(0, BLOCK_N)
    deep = part * BLOCK_K + tl.arange(0, BLOCK_K)
    left, right = (rows < m)[:, None], (columns < n)[None, :]
    x = tl.load(a + rows[:, None] * k + deep[None, :], mask=left, other=0.0)
    y = tl.load(b + deep[:, None] * n + columns[None, :], mask=right, other=0.0)
    tl.atomic_add(out + rows[:, None] * n + columns[None, :], tl.dot(x, y), mask=left & right)


@triton.jit
def batched(a, b, out, BATCH: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Products of BATCH matrices in one tensor of three dimensions."""
    batch, rows, columns, deep = tl.arange(0, BATCH), tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + batch[:, None, None] * (M * K) + rows[None, :, None] * K + deep[None, None, :])
    y = tl.load(b + batch[:, None, None] * (K * N) + deep[None, :, None] * N + columns[None, None, :])
    tl.store(
        out + batch[:, None, None] * (M * N) + rows[None, :, None] * N + columns[None, None, :],
        tl.dot(x, y, input_precision="ieee"),
    )


@triton.jit
def scaled(a, a_scale, b, b_scale, out, A_FORMAT: tl.constexpr, B_FORMAT: tl.constexpr, A_PACKED: tl.constexpr,
           B_PACKED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
           BLOCK_K: tl.constexpr):  # fmt: skip
    """``a @ b`` of microscaling formats: an E8M0 scale for each 32 elements along K, none where the pointer is None.

    ``a`` is (M, K / A_PACKED), ``b`` (K / B_PACKED, N), scales (M, K / 32) and (N, K / 32).
    """
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    a_deep, b_deep = tl.arange(0, BLOCK_K // A_PACKED), tl.arange(0, BLOCK_K // B_PACKED)
    of_scales = tl.arange(0, BLOCK_K // 32)
    total = tl.zeros([M, N], tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a + rows[:, None] * (K // A_PACKED) + (start // A_PACKED + a_deep)[None, :])
        y = tl.load(b + (start // B_PACKED + b_deep)[:, None] * N + columns[None, :])
        x_scale = None
        if a_scale is not None:
            x_scale = tl.load(a_scale + rows[:, None] * (K // 32) + (start // 32 + of_scales)[None, :])
        y_scale = None
        if b_scale is not None:
            y_scale = tl.load(b_scale + columns[:, None] * (K // 32) + (start // 32 + of_scales)[None, :])
        total = tl.dot_scaled(x, x_scale, A_FORMAT, y, y_scale, B_FORMAT, total)
    tl.store(out + rows[:, None] * N + columns[None, :], total)

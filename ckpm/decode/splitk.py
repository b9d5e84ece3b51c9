"""Split-K decode attention over an 8-bit KV cache, in Triton: one program for a sequence, a KV head and a split.

The cache has K and V as fp8 or int8 of shape (slots, HEADS_KV, HEAD_DIM). A row has GROUPS groups of consecutive
elements, each with a scale and a shift of shape (slots, HEADS_KV, GROUPS), float32: an element is ``scale * stored +
shift``. A sequence's slots follow one another, or are pages that a table names. Q is (sequences, HEADS_KV * HEADS_Q,
HEAD_DIM), bf16: one token. The HEADS_Q heads that share a KV head are the rows of a tile.

``streaming`` never makes a dequantised tile. It takes scale and shift out of the sums: in each group, q . k is ``scale
* (q . stored) + shift * sum(q)``. Stored elements go straight into the product. The shifts of all groups are one more
product, of GROUPS terms or more. P . V likewise. ``resident`` dequantises all groups of K and V of a tile before the
first product and fills the register file. It is the bad example, which the guard has to refuse.
"""

from __future__ import annotations

import triton
import triton.language as tl

MINUS_INFINITY = tl.constexpr(float("-inf"))


@triton.jit
def _rows(pages, sequence, first, end, capacity, HEADS_KV: tl.constexpr, PAGE_SIZE: tl.constexpr, STEP: tl.constexpr):
    """The cache's rows of STEP tokens from ``first``: a first row, and the distance of each row to it.

    Pools are larger than 4 GB, so the first row is 64 bits wide; within a page 32 are enough. ``capacity`` counts the
    slots of a sequence, or with pages the entries of its row of the table. If a step may lie in several pages, each of
    its tokens is looked up.
    """
    tokens = tl.arange(0, STEP)
    if PAGE_SIZE == 0:
        start = (sequence.to(tl.int64) * capacity + first) * HEADS_KV
        rows = tokens * HEADS_KV
    elif PAGE_SIZE % STEP == 0:
        page = tl.load(pages + sequence.to(tl.int64) * capacity + first // PAGE_SIZE)
        start = (page.to(tl.int64) * PAGE_SIZE + first % PAGE_SIZE) * HEADS_KV
        rows = tokens * HEADS_KV
    else:
        each = first + tokens
        page = tl.load(pages + sequence.to(tl.int64) * capacity + each // PAGE_SIZE, mask=each < end, other=0)
        start = tl.program_id(0).to(tl.int64) * 0  # rows are counted from 0, in the type of the other branches
        rows = (page.to(tl.int64) * PAGE_SIZE + each % PAGE_SIZE) * HEADS_KV
    return start, rows


@triton.jit
def _bounds(lengths, sequence, split, SPLITS: tl.constexpr, BLOCK_N: tl.constexpr):
    """The tokens of a split: whole tiles, spread evenly."""
    length = tl.load(lengths + sequence)
    tiles = tl.cdiv(tl.cdiv(length, BLOCK_N), SPLITS)
    begin = split * tiles * BLOCK_N
    return begin, tl.minimum(begin + tiles * BLOCK_N, length)


@triton.jit
def _queries(q, HEADS_Q: tl.constexpr, HEAD_DIM: tl.constexpr, GROUPS: tl.constexpr, BLOCK_M: tl.constexpr):
    """The tile of Q of each group, (BLOCK_M, HEAD_DIM // GROUPS). The softmax's scale is applied to scores."""
    WIDTH: tl.constexpr = HEAD_DIM // GROUPS
    rows = tl.arange(0, BLOCK_M)
    tiles = ()
    for group in tl.static_range(GROUPS):
        at = q + (rows[:, None] * HEAD_DIM + group * WIDTH + tl.arange(0, WIDTH)[None, :])
        tiles += (tl.load(at, mask=(rows < HEADS_Q)[:, None], other=0.0),)
    return tiles


@triton.jit
def _query_sums(q, HEADS_Q: tl.constexpr, HEAD_DIM: tl.constexpr, PARTS: tl.constexpr, BLOCK_M: tl.constexpr):
    """The sum of each row and part of Q, (BLOCK_M, PARTS), as a factor of the shifts of K."""
    rows = tl.arange(0, BLOCK_M)
    at = q + (rows[:, None] * HEAD_DIM + tl.arange(0, HEAD_DIM)[None, :])
    tile = tl.load(at, mask=(rows < HEADS_Q)[:, None], other=0.0).to(tl.float32)
    return tl.sum(tl.reshape(tile, [BLOCK_M, PARTS, HEAD_DIM // PARTS]), 2)


@triton.jit
def _no_sums(GROUPS: tl.constexpr, BLOCK_M: tl.constexpr, WIDTH: tl.constexpr):
    sums = ()
    for _ in tl.static_range(GROUPS):
        sums += (tl.zeros([BLOCK_M, WIDTH], tl.float32),)
    return sums


@triton.jit
def _scores(queries, query_sums, k, k_scale, k_shift, rows, valid):
    """Q . K of a step, (BLOCK_M, STEP); each group's K goes from memory into its product."""
    GROUPS: tl.constexpr = len(queries)
    WIDTH: tl.constexpr = queries[0].shape[1]
    PARTS: tl.constexpr = query_sums.shape[1]
    across, groups = tl.arange(0, WIDTH), tl.arange(0, PARTS) // (PARTS // GROUPS)
    at = k_shift + (groups[:, None] + rows[None, :] * GROUPS)
    scores = tl.dot(query_sums, tl.load(at, mask=valid[None, :], other=0.0), input_precision="ieee")
    for group in tl.static_range(GROUPS):
        tl.debug_barrier()  # loads of the next groups stay after it, else registers would hold all groups again
        at = k + group * WIDTH + (rows[None, :] * (GROUPS * WIDTH) + across[:, None])
        stored = tl.load(at, mask=valid[None, :], other=0.0)
        by = tl.load(k_scale + group + rows * GROUPS, mask=valid, other=0.0)
        scores += tl.dot(queries[group], stored.to(queries[group].dtype)) * by[None, :]
    return scores


@triton.jit
def _add_values(sums, factor, p, v, v_scale, rows, valid, TYPE: tl.constexpr):
    """The accumulators of all groups, times ``factor`` and with P . V of a step; V is loaded where it is used."""
    GROUPS: tl.constexpr = len(sums)
    WIDTH: tl.constexpr = sums[0].shape[1]
    across = tl.arange(0, WIDTH)
    updated = ()
    for group in tl.static_range(GROUPS):
        tl.debug_barrier()
        at = v + group * WIDTH + (rows[:, None] * (GROUPS * WIDTH) + across[None, :])
        stored = tl.load(at, mask=valid[:, None], other=0.0)
        by = tl.load(v_scale + group + rows * GROUPS, mask=valid, other=0.0)
        updated += (tl.dot((p * by[None, :]).to(TYPE), stored.to(TYPE), sums[group] * factor[:, None]),)
    return updated


@triton.jit
def _value_shifts(p, v_shift, rows, valid, GROUPS: tl.constexpr, COLUMNS: tl.constexpr):
    """P times the shifts of V, (BLOCK_M, COLUMNS), of which the first GROUPS columns are used."""
    columns = tl.arange(0, COLUMNS)
    at = v_shift + (rows[:, None] * GROUPS + columns[None, :])
    shifts = tl.load(at, mask=valid[:, None] & (columns < GROUPS)[None, :], other=0.0)
    return tl.dot(p, shifts, input_precision="ieee")


@triton.jit
def _with_shifts(sums, shifted):
    """Each group's accumulator with its column of :func:`_value_shifts`, the same for all elements of the group."""
    GROUPS: tl.constexpr = len(sums)
    COLUMNS: tl.constexpr = shifted.shape[1]
    columns = tl.arange(0, COLUMNS)
    whole = ()
    for group in tl.static_range(GROUPS):
        whole += (sums[group] + tl.sum(tl.where((columns == group)[None, :], shifted, 0.0), 1)[:, None],)
    return whole


@triton.jit
def _softmax(scores, valid, highest, total, scale):
    """A step's probabilities, and the running maximum, the sum, and the factor of earlier sums."""
    scores = tl.where(valid[None, :], scores * scale, MINUS_INFINITY)
    higher = tl.maximum(highest, tl.max(scores, 1))
    p = tl.exp2(scores - higher[:, None])
    factor = tl.exp2(highest - higher)
    return p, higher, total * factor + tl.sum(p, 1), factor


@triton.jit
def _store(
    partial, logsum, split, sums, highest, total, HEADS_Q: tl.constexpr, SPLITS: tl.constexpr, BLOCK_M: tl.constexpr
):
    """The split's output and the base-2 logarithm of its sum; a split without tokens has -inf and zeros."""
    GROUPS: tl.constexpr = len(sums)
    WIDTH: tl.constexpr = sums[0].shape[1]
    rows = tl.arange(0, BLOCK_M)
    inside = rows < HEADS_Q
    offset = rows * SPLITS + split
    empty = total == 0.0
    inverse = 1.0 / tl.where(empty, 1.0, total)
    tl.store(logsum + offset, tl.where(empty, MINUS_INFINITY, highest + tl.log2(total)), mask=inside)
    for group in tl.static_range(GROUPS):
        at = partial + offset[:, None] * (GROUPS * WIDTH) + group * WIDTH + tl.arange(0, WIDTH)[None, :]
        tl.store(at, sums[group] * inverse[:, None], mask=inside[:, None])


@triton.jit
def streaming(
    q,
    k,
    v,
    k_scale,
    k_shift,
    v_scale,
    v_shift,
    partial,
    logsum,
    lengths,
    pages,
    capacity,
    scale,
    HEADS_KV: tl.constexpr,
    HEADS_Q: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    GROUPS: tl.constexpr,
    SPLITS: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    STEP: tl.constexpr,
    LEAST_K: tl.constexpr = 1,
):
    """Each group's K goes from memory into the product, V is loaded where its accumulator is updated.

    Grid: (sequences, HEADS_KV, SPLITS). ``scale`` is the softmax's times log2(e); PAGE_SIZE is 0 for a contiguous
    cache, else a power of two. A split has whole tiles of BLOCK_N tokens, of which STEP at a time are in registers.
    LEAST_K: of a product, 16 on NVIDIA's GPUs, where Q is summed over parts of a group.
    """
    sequence, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first_head = (sequence * HEADS_KV + head).to(tl.int64) * HEADS_Q
    begin, end = _bounds(lengths, sequence, split, SPLITS, BLOCK_N)
    queries = _queries(q + first_head * HEAD_DIM, HEADS_Q, HEAD_DIM, GROUPS, BLOCK_M)
    query_sums = _query_sums(q + first_head * HEAD_DIM, HEADS_Q, HEAD_DIM, max(GROUPS, LEAST_K), BLOCK_M)
    shifted = tl.zeros([BLOCK_M, 16], tl.float32)
    highest, total = tl.full([BLOCK_M], -1e30, tl.float32), tl.zeros([BLOCK_M], tl.float32)
    sums = _no_sums(GROUPS, BLOCK_M, HEAD_DIM // GROUPS)
    for first in tl.range(begin, end, STEP):
        start, rows = _rows(pages, sequence, first, end, capacity, HEADS_KV, PAGE_SIZE, STEP)
        valid = tl.arange(0, STEP) < end - first
        at, of_group = (start + head) * HEAD_DIM, (start + head) * GROUPS
        scores = _scores(queries, query_sums, k + at, k_scale + of_group, k_shift + of_group, rows, valid)
        p, highest, total, factor = _softmax(scores, valid, highest, total, scale)
        shifted = shifted * factor[:, None] + _value_shifts(p, v_shift + of_group, rows, valid, GROUPS, 16)
        sums = _add_values(sums, factor, p, v + at, v_scale + of_group, rows, valid, q.dtype.element_ty)
    sums = _with_shifts(sums, shifted)
    at = first_head * SPLITS
    _store(partial + at * HEAD_DIM, logsum + at, split, sums, highest, total, HEADS_Q, SPLITS, BLOCK_M)


@triton.jit
def _dequantised(stored, by, more, rows, valid, GROUPS: tl.constexpr, WIDTH: tl.constexpr):
    """All groups of a tile of K or V, each (BLOCK_N, WIDTH) in bf16."""
    across = tl.arange(0, WIDTH)
    tiles = ()
    for group in tl.static_range(GROUPS):
        at = stored + group * WIDTH + (rows[:, None] * (GROUPS * WIDTH) + across[None, :])
        tile = tl.load(at, mask=valid[:, None], other=0.0).to(tl.float32)
        scales = tl.load(by + group + rows * GROUPS, mask=valid, other=0.0)
        shifts = tl.load(more + group + rows * GROUPS, mask=valid, other=0.0)
        tiles += ((tile * scales[:, None] + shifts[:, None]).to(tl.bfloat16),)
    return tiles


@triton.jit
def resident(
    q,
    k,
    v,
    k_scale,
    k_shift,
    v_scale,
    v_shift,
    partial,
    logsum,
    lengths,
    pages,
    capacity,
    scale,
    HEADS_KV: tl.constexpr,
    HEADS_Q: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    GROUPS: tl.constexpr,
    SPLITS: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Compute as ``streaming``, but dequantise all groups of K and V before the first product, into registers."""
    WIDTH: tl.constexpr = HEAD_DIM // GROUPS
    sequence, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first_head = (sequence * HEADS_KV + head).to(tl.int64) * HEADS_Q
    begin, end = _bounds(lengths, sequence, split, SPLITS, BLOCK_N)
    queries = _queries(q + first_head * HEAD_DIM, HEADS_Q, HEAD_DIM, GROUPS, BLOCK_M)
    highest = tl.full([BLOCK_M], -1e30, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    sums = _no_sums(GROUPS, BLOCK_M, HEAD_DIM // GROUPS)
    for first in tl.range(begin, end, BLOCK_N):
        start, rows = _rows(pages, sequence, first, end, capacity, HEADS_KV, PAGE_SIZE, BLOCK_N)
        valid = tl.arange(0, BLOCK_N) < end - first
        at, of_group = (start + head) * HEAD_DIM, (start + head) * GROUPS
        keys = _dequantised(k + at, k_scale + of_group, k_shift + of_group, rows, valid, GROUPS, WIDTH)
        values = _dequantised(v + at, v_scale + of_group, v_shift + of_group, rows, valid, GROUPS, WIDTH)
        scores = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for group in tl.static_range(GROUPS):
            scores += tl.dot(queries[group], tl.trans(keys[group]))
        p, highest, total, factor = _softmax(scores, valid, highest, total, scale)
        updated = ()
        for group in tl.static_range(GROUPS):
            updated += (tl.dot(p.to(queries[group].dtype), values[group], sums[group] * factor[:, None]),)
        sums = updated
    at = first_head * SPLITS
    _store(partial + at * HEAD_DIM, logsum + at, split, sums, highest, total, HEADS_Q, SPLITS, BLOCK_M)


@triton.jit
def reduction(partial, logsum, out, HEAD_DIM: tl.constexpr, SPLITS: tl.constexpr, BLOCK_SPLITS: tl.constexpr):
    """Weigh the splits of one head by their sums. Grid: (sequences * HEADS_KV * HEADS_Q,). ``out``: bf16."""
    head = tl.program_id(0)
    splits = tl.arange(0, BLOCK_SPLITS)
    across = tl.arange(0, HEAD_DIM)
    each = tl.load(logsum + head * SPLITS + splits, mask=splits < SPLITS, other=MINUS_INFINITY)
    highest = tl.max(each, 0)
    weight = tl.exp2(each - tl.where(highest == MINUS_INFINITY, 0.0, highest))
    at = partial + (head * SPLITS + splits)[:, None] * HEAD_DIM + across[None, :]
    parts = tl.load(at, mask=(splits < SPLITS)[:, None], other=0.0)
    whole = tl.sum(parts * weight[:, None], 0) / tl.maximum(tl.sum(weight, 0), 1e-30)
    tl.store(out + head * HEAD_DIM + across, whole.to(out.dtype.element_ty))

"""The random bytes of CK's dropout: the generator, and the position of each byte in the score matrix.

Philox 4x32 with seven rounds (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3; SC 2011). The key is the
seed. The upper half of the counter numbers the subsequence: each tile of 32 x 32 scores has its own. The lower half is
the offset, plus 64 for each batch and head before this one, plus the lane. Each lane draws 16 bytes. Source: CK's
block_dropout.hpp, whose comment promises the same numbers for every tile, and philox_rand.hpp.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ckpm.matrix.problems.case import SuiteCase

Words = NDArray[np.uint64]
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 7
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_TILE = 32
_LANES = 64


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """Four words of 32 bits [..., 4] for counters of four words [..., 4]."""
    a, b, c, d = (counter[..., index].astype(np.uint64) for index in range(4))
    for step in range(_ROUNDS):
        first, second = (np.uint64((word + step * add) & 0xFFFFFFFF) for word, add in zip(key, _KEY_STEPS, strict=True))
        left, right = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b, c, d = (right >> _HALF) ^ b ^ first, right & _LOW, (left >> _HALF) ^ d ^ second, left & _LOW
    return np.stack((a, b, c, d), axis=-1)


def random_bytes(problem: SuiteCase, sequence: int, head: int) -> NDArray[np.uint8]:
    """The bytes that a kernel draws for the scores of a sequence and head, [query, key]."""
    rows, columns = problem.seqlens_q[sequence], problem.seqlens_k[sequence]
    down, right = -(-rows // _TILE), -(-columns // _TILE)
    offset = problem.dropout_offset + (sequence * problem.nhead_q + head) * _LANES
    offsets = (offset + np.arange(_LANES, dtype=np.uint64)) & np.uint64(2**64 - 1)
    counter = np.zeros((down, right, _LANES, 4), np.uint64)
    counter[..., 0], counter[..., 1] = offsets & _LOW, offsets >> _HALF
    counter[..., 2] = np.arange(down)[:, None, None]
    counter[..., 3] = np.arange(right)[None, :, None]
    integers = philox(counter, (problem.seed & 0xFFFFFFFF, problem.seed >> 32))
    drawn = integers.astype("<u4").view(np.uint8).reshape(down, right, _LANES, 16)
    # byte e of lane l is row 16 * (e / 8) + 8 * (l / 32) + e % 8 and column l % 32 of the tile
    tiles = drawn.reshape(down, right, 2, 32, 2, 8).transpose(0, 4, 2, 5, 1, 3)
    return np.ascontiguousarray(tiles.reshape(down * _TILE, right * _TILE)[:rows, :columns])


def drawn(problem: SuiteCase) -> list[NDArray[np.uint8]]:
    """The random bytes of each sequence as [head, query, key]."""
    return [
        np.stack([random_bytes(problem, sequence, head) for head in range(problem.nhead_q)])
        for sequence in range(problem.batch)
    ]

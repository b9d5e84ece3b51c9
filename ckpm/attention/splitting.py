"""Keys of a problem split among workgroups: whether it pays, and how many keys each workgroup takes.

A kernel that splits has as rows the queries of all heads of a KV head, 64 to a tile, so it reads K and V once for them.
Its workgroups write O and LSE in float32, and a second kernel combines them. Times are cycles of the timing model
(docs/reference/own-kernels.md).

Callers often give a longest length that no sequence has: the whole list of pages, or a model's largest context in a
captured graph. So the number of splits is chosen, and the kernel divides each sequence by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ckpm.matrix.problems.problem import MOST_SPLITS, STEP, Problem

MOST_QUERIES = 64  # of a sequence
ROWS = 64  # of a tile, also of V2's smallest
LEAST_KEYS = 256  # of a workgroup; the longest sequence may have fewer
_WORTH = 0.9  # the share of the time without splits that makes them worth their workspace
_START = 11_500  # a workgroup's beginning and end
_LAUNCH = 12_200  # the second kernel's launch and a workgroup of it
_SPLIT = 108  # a split in that workgroup, of 128 columns


@dataclass(frozen=True, slots=True)
class _Kernel:
    """Cycles of a kernel's workgroups.

    ``key`` are the cycles for a key of a workgroup that is alone. ``together`` are the relative times of one, two and
    more on a compute unit.
    """

    key: int
    together: Sequence[float]


# By the kernel's head dim of Q. Registers hold no more workgroups on gfx950, nor LDS more than two on gfx942.
_KERNELS: Mapping[int, _Kernel] = {
    64: _Kernel(32, (1.0, 1.23, 1.49, 1.73)),
    128: _Kernel(72, (1.0, 1.09, 1.2)),
    192: _Kernel(64, (1.0, 1.17)),
    256: _Kernel(95, (1.0, 1.15)),
    512: _Kernel(237, (1.0,)),
    576: _Kernel(298, (1.0,)),
}
_MOST_TOGETHER: Mapping[str, int] = {"gfx942": 2}


@dataclass(frozen=True, slots=True)
class Split:
    """A split, with the reason ``why``.

    ``keys`` are the keys of a workgroup of the longest sequence, ``splits`` their number; 0 if no split pays.
    """

    keys: int
    why: str
    splits: int = 0

    def pose(self, problem: Problem) -> Problem:
        """The problem with this split of its keys."""
        return replace(problem, split_keys=min(self.keys, LEAST_KEYS), splits=self.splits)


def best_split(problem: Problem, compute_units: int) -> Split | None:
    """The fastest split by the estimate; None for a problem that no kernel splits."""
    p = problem
    if p.family != "batch_prefill" or p.bias != "no" or p.p_drop or not 0 < p.seqlen_q <= MOST_QUERIES:
        return None
    kernel = next(
        (kernel for hdim, kernel in _KERNELS.items() if hdim >= p.hdim_q and (hdim != 192 or p.hdim_v <= 128)), None
    )
    if not kernel:
        return None
    key, seen, together = kernel.key, _keys_seen(p), kernel.together[: _MOST_TOGETHER.get(p.arch)]
    combined = _SPLIT * p.hdim_v / 128
    plain = p.batch * p.nhead_q
    groups = p.batch * p.nhead_k * -(-p.seqlen_q * (p.nhead_q // p.nhead_k) // ROWS)
    whole = _rounds(plain, compute_units, together) * (key * seen + _START)
    cost, keys, used, best = _WORTH * whole, 0, plain, 0
    for splits in range(1, min(MOST_SPLITS, -(-p.seqlen_k // STEP)) + 1):
        own = -(-p.seqlen_k // (splits * STEP)) * STEP
        count = groups * -(-seen // own)
        split = _rounds(count, compute_units, together) * (key * min(own, seen) + _START) + _LAUNCH + combined * splits
        if split < cost:
            cost, keys, used, best = split, own, count, -(-p.seqlen_k // own)
    units = f"{compute_units} compute units"
    if not keys:
        return Split(0, f"keys are not split: {plain} workgroups without splits for {units}")
    numbers = f"{used} workgroups instead of {plain} for {units}"
    why = f"keys are split into ranges of {keys}: {numbers}, estimated at {cost / whole:.0%} of the time"
    return Split(keys, why, best)


def _rounds(workgroups: int, compute_units: int, together: Sequence[float]) -> float:
    """The time of so many workgroups, relative to one that is alone."""
    rounds, rest = divmod(-(-workgroups // compute_units), len(together))
    return rounds * together[-1] + (together[rest - 1] if rest else 0)


def _keys_seen(p: Problem) -> int:
    """Keys of a sequence that its queries see through a window, sink tokens included."""
    if p.mask == "no" or p.window_left < 0:
        return p.seqlen_k
    return min(p.seqlen_k, p.window_left + p.seqlen_q + max(p.window_right, 0) + p.sink_size)

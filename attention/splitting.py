"""Keys of a problem split among workgroups: whether it pays, and how many keys each workgroup takes.

A kernel that splits has as rows the queries of all heads of a KV head, 64 to a tile, so it reads K and V once for them.
Its workgroups write O and LSE in float32, and a second kernel combines them. The estimate counts rounds of workgroups
over the compute units, each as long as its keys. Its numbers are of the timing model.
"""

from __future__ import annotations

from dataclasses import dataclass

from ckpm.matrix.problems.problem import MOST_SPLITS, STEP, Problem

MOST_QUERIES = 64  # of a sequence
_ROWS = 64  # of a tile, also of V2's smallest
_COPIES = 2  # workgroups of a compute unit
_START = 192  # keys that take as long as a workgroup's beginning and end
_COMBINE = 320  # keys that take as long as the launch of the second kernel
_COMBINE_SPLIT = 4  # and as long as a split in it


@dataclass(frozen=True, slots=True)
class Split:
    """``keys`` of a workgroup, 0 if splitting doesn't pay; ``why`` in words."""

    keys: int
    why: str


def best_split(problem: Problem, compute_units: int) -> Split | None:
    """The split that the estimate has as fastest; None for a problem that no kernel splits."""
    p = problem
    if p.family != "batch_prefill" or p.bias != "no" or p.p_drop or not 0 < p.seqlen_q <= MOST_QUERIES:
        return None
    places, seen = compute_units * _COPIES, _keys_seen(p)
    plain = p.batch * p.nhead_q
    groups = p.batch * p.nhead_k * -(-p.seqlen_q * (p.nhead_q // p.nhead_k) // _ROWS)
    whole = _rounds(plain, places) * (seen + _START)
    costs: dict[int, tuple[int, int]] = {}
    for splits in range(1, min(MOST_SPLITS, -(-p.seqlen_k // STEP)) + 1):
        keys = -(-p.seqlen_k // (splits * STEP)) * STEP
        used = groups * -(-seen // keys)
        cost = _rounds(used, places) * (min(keys, seen) + _START) + _COMBINE + _COMBINE_SPLIT * splits
        costs.setdefault(keys, (cost, used))
    keys = min(costs, key=lambda one: (costs[one][0], -one), default=0)
    if not keys or costs[keys][0] >= whole:
        return Split(0, f"keys are not split: {plain} workgroups without splits for {compute_units} compute units")
    cost, used = costs[keys]
    numbers = f"{used} workgroups instead of {plain} for {compute_units} compute units"
    return Split(keys, f"keys are split into ranges of {keys}: {numbers}, estimated at {cost / whole:.0%} of the time")


def _rounds(workgroups: int, places: int) -> int:
    return -(-workgroups // places)


def _keys_seen(p: Problem) -> int:
    """Keys of a sequence that its queries see through a window, sink tokens included."""
    if p.mask == "no" or p.window_left < 0:
        return p.seqlen_k
    right = max(p.window_right, 0)
    return min(p.seqlen_k, p.window_left + p.seqlen_q + right + p.sink_size)

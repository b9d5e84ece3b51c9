"""The Mann-Whitney U test and the shift between two samples that belongs to it.

H. B. Mann, D. R. Whitney, "On a Test of Whether one of Two Random Variables is Stochastically Larger than the Other",
Annals of Mathematical Statistics 18 (1947): the recurrence of U's exact distribution. With ties, and for large samples,
the normal approximation with its corrections for ties and continuity is used. The shift is the median of all pairwise
differences. Its interval inverts the test: J. L. Hodges, E. L. Lehmann, "Estimates of
Location Based on Rank Tests", Annals of Mathematical Statistics 34 (1963).
"""

from __future__ import annotations

import functools
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_EXACT_UP_TO = 30  # samples a side; above, the approximation is within a thousandth of the exact probability


@dataclass(frozen=True, slots=True)
class Shift:
    """Difference of the second sample from the first: an estimate, and its confidence interval."""

    estimate: float
    low: float
    high: float


def u_statistic(first: Sequence[float], second: Sequence[float]) -> float:
    """Pairs in which the first sample's value is the larger one; equal ones count half."""
    return sum((a > b) + 0.5 * (a == b) for a in first for b in second)


@functools.cache
def _ways(n: int, m: int) -> tuple[int, ...]:
    """Number of orders of n and m distinct values with U = 0, 1, .. n*m."""
    if n == 0 or m == 0:
        return (1,)
    ways = [0] * (n * m + 1)
    for u, count in enumerate(_ways(n - 1, m)):  # the largest value is of the first sample, above all m of the second
        ways[u + m] += count
    for u, count in enumerate(_ways(n, m - 1)):
        ways[u] += count
    return tuple(ways)


def cumulative(n: int, m: int, u: int) -> float:
    """P(U <= u) for samples of n and m distinct values of the same distribution."""
    return sum(_ways(n, m)[: max(u + 1, 0)]) / math.comb(n + m, n)


def p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p: the probability that samples of one distribution differ at least so much."""
    n, m = len(first), len(second)
    u = u_statistic(first, second)
    smaller = min(u, n * m - u)
    ties = [count for count in Counter([*first, *second]).values() if count > 1]
    if not ties and max(n, m) <= _EXACT_UP_TO:
        return min(1.0, 2 * cumulative(n, m, int(smaller)))
    total = n + m
    tied = sum(count**3 - count for count in ties) / (total * (total - 1))
    variance = n * m / 12 * (total + 1 - tied)
    if variance <= 0:  # all values are equal
        return 1.0
    z = (n * m / 2 - smaller - 0.5) / math.sqrt(variance)
    return min(1.0, math.erfc(z / math.sqrt(2)))


def least_p_value(n: int, m: int) -> float:
    """The smallest :func:`p_value`, of samples that don't overlap."""
    return min(1.0, 2 / math.comb(n + m, n))


def shift(first: Sequence[float], second: Sequence[float], confidence: float) -> Shift:
    """Estimate second minus first. If the samples are too few for the confidence, the interval is all numbers."""
    n, m = len(first), len(second)
    if not n or not m:
        raise ValueError("a sample is empty")
    differences = sorted(b - a for a in first for b in second)
    rank = _rank(n, m, (1 - confidence) / 2)
    low, high = (differences[rank - 1], differences[-rank]) if rank else (-math.inf, math.inf)
    return Shift(statistics.median(differences), low, high)


def _rank(n: int, m: int, tail: float) -> int:
    """The largest k with P(U <= k - 1) <= tail: the interval begins at the k-th smallest difference; 0 for none."""
    if max(n, m) <= _EXACT_UP_TO:
        ways, whole, sum_, k = _ways(n, m), math.comb(n + m, n), 0, 0
        while (sum_ := sum_ + ways[k]) <= tail * whole:
            k += 1
        return k
    z = statistics.NormalDist().inv_cdf(1 - tail)
    return max(int(n * m / 2 - 0.5 - z * math.sqrt(n * m * (n + m + 1) / 12)), 0)

"""Problems by name, and their numbers of floating-point operations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ckpm.matrix.problems.case import SUITES, TIERS, SuiteCase
from ckpm.matrix.problems.performance import performance_problems
from ckpm.matrix.problems.problem import mask_corner
from ckpm.matrix.problems.tables import problems


@cache
def known_problems() -> Mapping[str, SuiteCase]:
    """Every problem of the suites and of the performance table, by name."""
    of_suites = (problem for suite in SUITES for problem in problems(suite, TIERS[-1]))
    return {problem.name: problem for problem in (*of_suites, *performance_problems(TIERS[-1]))}


def flops(problem: SuiteCase) -> int:
    """Multiplications and additions of both gemms over the scores that the mask lets through."""
    seen = sum(_seen(problem, q, k) for q, k in zip(problem.seqlens_q, problem.seqlens_k, strict=True))
    return 2 * seen * problem.nhead_q * (problem.hdim_q + problem.hdim_v)


def _seen(problem: SuiteCase, seqlen_q: int, seqlen_k: int) -> int:
    if problem.mask == "no":
        return seqlen_q * seqlen_k
    y, x = mask_corner(problem, seqlen_q, seqlen_k)
    return sum(max(0, min(seqlen_k, row + x) - max(0, row - y + 1)) for row in range(seqlen_q))

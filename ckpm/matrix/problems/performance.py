"""The gates' problems, and the least bytes that each moves."""

from __future__ import annotations

from ckpm.base.errors import UnknownWordError
from ckpm.matrix.dialects import TABLES
from ckpm.matrix.problems.case import TIERS, SuiteCase
from ckpm.matrix.problems.problem import ELEMENT_BYTES
from ckpm.matrix.problems.tables import read

TABLE = TABLES / "performance.yaml"


def performance_problems(tier: str) -> tuple[SuiteCase, ...]:
    """The table's problems that a tier runs, in its order."""
    if tier not in TIERS:
        raise UnknownWordError("tier", tier, TIERS)
    tiers = TIERS[: TIERS.index(tier) + 1]
    return tuple(problem for tier_name in tiers for problem in read(TABLE, "performance", tier_name))


def compulsory_bytes(problem: SuiteCase) -> int:
    """Bytes of Q, K, V and O, each once: they cross the memory's pins whatever is cached."""
    p = problem
    queries, keys = sum(p.seqlens_q) * p.nhead_q, sum(p.seqlens_k) * p.nhead_k
    inputs = queries * p.hdim_q * ELEMENT_BYTES[p.q_dtype] + keys * (p.hdim_q + p.hdim_v) * p.element_bytes
    return inputs + queries * p.hdim_v * ELEMENT_BYTES[p.o_dtype]

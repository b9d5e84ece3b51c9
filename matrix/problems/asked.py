"""Which problems a library is asked: not those whose kernels its dialect has given up.

One table of problems serves CK of every age. What an age does not have yet, its libraries report as unsupported; what
it has given up (``gave_up`` in the dialect's dialect.yaml) is left out, for no library of that age will ever run it.
"""

from __future__ import annotations

from matrix.dialects import Dialect
from matrix.problems.problem import Problem


def given_up(dialect: Dialect, problem: Problem) -> str | None:
    """What the problem wants that the dialect has given up, with the reason; None if it is asked.

    What must be refused is asked of every library.
    """
    if problem.expect != "ok":
        return None
    wanted = {"mode": problem.mode, "vlayout": problem.vlayout}
    reasons = (f"{one.field} {one.value}: {one.why}" for one in dialect.gave_up if wanted[one.field] == one.value)
    return next(reasons, None)

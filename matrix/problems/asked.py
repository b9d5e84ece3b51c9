"""Choose the problems that a library is tested with: those that some kernel of its dialect serves, in any tier.

One table of problems serves CK of every version. A library reports a problem that its dialect does not have yet as
unsupported. For a dialect with ``asked_everything: false`` such problems are left out. Unsupported then means that a
larger library serves the problem.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ckpm.matrix.dialects import Dialect
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.families import Family
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.problem import in_words, lacking_field, needed_values
from ckpm.matrix.rules import broken

_FAMILY = "batch_prefill"


def not_asked(dialect: Dialect, arch: str, mask_impl: str, problems: Iterable[SuiteCase]) -> dict[str, str]:
    """The problems, by name, that libraries of the dialect, arch and mask set are not asked, and why.

    A reason names what no kernel has, and the rules or the axis that keep it out. What must be refused is always asked.
    """
    if dialect.asked_everything:
        return {}
    family = dialect.family(_FAMILY)
    keys = enumerate_keys(family, arch=arch, mask_impl=mask_impl)
    reasons: dict[tuple[Any, ...], str] = {}  # thousands of problems need the same
    left_out = {}
    for problem in problems:
        needs = tuple(needed_values(problem).items())
        if problem.expect == "ok" and needs not in reasons:
            reasons[needs] = _reason(family, keys, problem)
        if problem.expect == "ok" and reasons[needs]:
            left_out[problem.name] = reasons[needs]
    return left_out


def _reason(family: Family, keys: list[Key], problem: SuiteCase) -> str:
    """ "" if one of the kernels serves the problem."""
    if (lack := lacking_field(keys, problem)) is None:
        return ""
    field, values, others = lack
    ruled = {
        rule.name
        for value in values
        for rule in broken(family.rules, {name: getattr(others[0], name) for name in family.fields} | {field: value})
    }
    return f"{field} {in_words(values)}: " + (f"rule {', '.join(sorted(ruled))}" if ruled else f"axis {field}")

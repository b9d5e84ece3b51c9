"""Values of a kernel's key that no problem of a suite asks for: kernels of them are built, and nothing runs them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields

from ckpm.base.bounded import LARGEST_TABLE, read_text
from ckpm.matrix.dialects import DEFAULT_FAMILY
from ckpm.matrix.keys import ANY_PAGE, PAGE_STEP, Key
from ckpm.matrix.problems.case import SUITES, TIERS, SuiteCase
from ckpm.matrix.problems.serving import needed_values
from ckpm.matrix.problems.tables import FOLDER, NUMBERED, WORDS, problems

FIELDS = ("dtype", "hdim_q", "mode", "vlayout", "bias", "qscale", "page_size", "kv_layout", "kv_table")
_ASKED = (DEFAULT_FAMILY,)  # other families' problems are made from their keys
_DEFAULTS = {field.name: field.default for field in fields(SuiteCase)}


def unasked_values(keys: Iterable[Key]) -> list[str]:
    """A line for each value of these batch-prefill kernels that no problem of any tier asks for."""
    counts: dict[tuple[str, object], int] = {}
    for key in keys:
        for field in FIELDS if key.family in _ASKED else ():
            value = field, getattr(key, field)
            counts[value] = counts.get(value, 0) + 1
    if not counts:
        return []
    text = "\n".join(read_text(FOLDER / f"{suite}.yaml", LARGEST_TABLE) for suite in SUITES)
    parts = set(re.findall("[a-z0-9]+", text))
    for line in read_text(WORDS, LARGEST_TABLE).splitlines():
        text += f"\n{line}" if line.partition(":")[0].strip() in parts else ""
    if not (unwritten := [value for value in counts if not _is_written(*value, text)]):
        return []  # without the tables' 30,000 problems, which take seconds
    asked_values = {
        (field, value)
        for suite in SUITES
        for problem in problems(suite, TIERS[-1])
        for field, values in needed_values(problem).items()
        for value in values
    }
    return [
        f"no problem of any suite asks for {field} {value}: nothing runs its {counts[field, value]:,} kernels. "
        "Add it to a group of matrix/problems/batch-prefill.yaml."
        for field, value in unwritten
        if (field, value) not in asked_values
    ]


def _is_written(field: str, value: object, text: str) -> bool:
    """True if the text of the tables has the value, in a list or a word too, or cases have it without being told."""
    value = PAGE_STEP if field == "page_size" and value == ANY_PAGE else value
    name = "hdim(_q)?" if field == "hdim_q" else field
    prefixes = [prefix for prefix, numbered in NUMBERED.items() if re.fullmatch(name, numbered)]
    patterns = [rf"\b{name}: (\[[^]]*\b)?{value}\b", *(rf"(\b|_){prefix}{value}(\b|_)" for prefix in prefixes)]
    return value in (None, _DEFAULTS[field]) or any(re.search(pattern, text) for pattern in patterns)

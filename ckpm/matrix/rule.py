"""The form of a rule: a predicate over named fields, with its reason and source, from a documented function.

A function's name is the rule's, its parameters are the fields that it reads. The docstring's first paragraph is the
reason, the second the source; a third, after ``Contradicted:``, names kernels of CK that break the rule.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rule:
    """A named predicate. ``excludes`` takes the values of ``fields``; if they break the rule it returns True or a text.

    ``severity`` is error or warning. ``paths`` are the fields of a configuration to fix, the likeliest first.
    """

    name: str
    fields: tuple[str, ...]
    reason: str
    source: str
    contradiction: str
    excludes: Callable[..., bool | str]
    severity: str = "error"
    paths: tuple[str, ...] = ()


def rule_of(function: Callable[..., bool | str], severity: str = "error", paths: Iterable[str] = ()) -> Rule:
    """The rule of a documented function."""
    text, _, contradiction = (inspect.getdoc(function) or "").partition("Contradicted: ")
    reason, _, source = text.partition("\n\n")
    reason, source, contradiction = (" ".join(part.split()) for part in (reason, source, contradiction))
    fields = tuple(inspect.signature(function).parameters)
    return Rule(function.__name__, fields, reason, source, contradiction, function, severity, tuple(paths))


def rules_of(names: Mapping[str, Any]) -> Mapping[str, Rule]:
    """The rules of a module's own public functions, by name."""
    return {
        name: rule_of(function)
        for name, function in names.items()
        if inspect.isfunction(function) and function.__module__ == names["__name__"] and not name.startswith("_")
    }


def broken(rules: Iterable[Rule], values: Mapping[str, Any]) -> dict[Rule, bool | str]:
    """The rules that exclude ``values`` (field name to value), with what they return; rules of missing fields pass."""
    verdicts = {
        rule: rule.excludes(*(values[name] for name in rule.fields))
        for rule in rules
        if all(name in values for name in rule.fields)
    }
    return {rule: verdict for rule, verdict in verdicts.items() if verdict}

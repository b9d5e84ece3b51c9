"""Kernels that an upstream lists and can't compile (matrix/tables/defects.yaml)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from ckpm.base.errors import WhereError
from ckpm.base.tablefile import Field, load
from ckpm.matrix.dialects import TABLES
from ckpm.matrix.keys import Key
from ckpm.matrix.where import Predicate, compile_where


@dataclass(frozen=True, slots=True)
class Defect:
    """``holds(key)`` is True for the kernels of ``dialect`` and ``family`` that don't compile."""

    name: str
    dialect: str
    family: str
    reason: str
    holds: Predicate


@functools.cache
def defects() -> tuple[Defect, ...]:
    """All known defects. Raises TableError."""
    return tuple(_defect(name, row) for name, row in load(TABLES / "defects.yaml").get("defects").mapping().items())


def _defect(name: str, row: Field) -> Defect:
    row.allow(("dialect", "family", "where", "reason"))
    try:
        holds = compile_where(row.get("where").text())
    except WhereError as error:
        raise row.get("where").fail(str(error)) from error
    return Defect(name, row.get("dialect").text(), row.get("family").text(), row.get("reason").text(), holds)


def defect_of(key: Key, dialect: str) -> Defect | None:
    """The defect that keeps a dialect's kernel from being compiled, if one is known."""
    for defect in defects():
        if defect.dialect == dialect and defect.family == key.family and defect.holds(key):
            return defect
    return None


def split(keys: Sequence[Key], dialect: str) -> tuple[list[Key], dict[Defect, list[Key]]]:
    """(kernels that compile, the others by defect), each in the order given."""
    sound: list[Key] = []
    left_out: dict[Defect, list[Key]] = {}
    for key in keys:
        defect = defect_of(key, dialect)
        if defect is None:
            sound.append(key)
        else:
            left_out.setdefault(defect, []).append(key)
    return sound, left_out

"""Kernels that an upstream lists and can't compile (matrix/defects.yaml)."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ckpm.base.errors import WhereError
from ckpm.base.tablefile import Later, Record, add_names, read_table
from ckpm.matrix.dialects import FAMILIES, TABLES, dialect_names
from ckpm.matrix.keys import Key
from ckpm.matrix.where import compile_where


class Defect(Record, frozen=True):
    """A defect. ``where`` is true for the kernels of ``dialect`` and ``family`` that don't compile."""

    dialect: str
    family: str
    where: str
    reason: str
    name: Later = ""

    def holds(self, key: Key) -> bool:
        return compile_where(self.where)(key)


class DefectTable(Record, frozen=True):
    """The record of defects.yaml."""

    defects: dict[str, Defect]


@functools.cache
def defects() -> tuple[Defect, ...]:
    """The known defects."""
    table = read_table(TABLES / "defects.yaml", DefectTable)
    for name, defect in table.record.defects.items():
        table.demand_known(defect.dialect, dialect_names(), "defects", name, "dialect")
        table.demand_known(defect.family, FAMILIES, "defects", name, "family")
        try:
            compile_where(defect.where)
        except WhereError as error:
            raise table.fail(str(error), "defects", name, "where") from error
    return tuple(add_names(table.record.defects).values())


def defect_of(key: Key, dialect: str) -> Defect | None:
    """Return the defect that keeps a dialect's kernel from being compiled, if one is known."""
    for defect in defects():
        if defect.dialect == dialect and defect.family == key.family and defect.holds(key):
            return defect
    return None


def split(keys: Sequence[Key], dialect: str) -> tuple[list[Key], dict[Defect, list[Key]]]:
    """The kernels that compile, and the others by defect, in the order of ``keys``."""
    sound: list[Key] = []
    left_out: dict[Defect, list[Key]] = {}
    for key in keys:
        defect = defect_of(key, dialect)
        if defect is None:
            sound.append(key)
        else:
            left_out.setdefault(defect, []).append(key)
    return sound, left_out

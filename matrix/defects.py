"""Kernels that an upstream lists and can't compile (matrix/tables/defects.yaml)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from matrix.base.errors import WhereError
from matrix.base.tablefile import Field, load
from matrix.dialects import TABLES
from matrix.keys import Key
from matrix.where import Predicate, compile_where


@dataclass(frozen=True, slots=True)
class Defect:
    """``holds(key)`` is True for the kernels of ``dialect`` and ``family`` that don't compile.

    ``upstream`` is the one of that dialect that it is about, '' for every one.
    """

    name: str
    dialect: str
    upstream: str
    family: str
    reason: str
    holds: Predicate


@functools.cache
def defects() -> tuple[Defect, ...]:
    """All known defects. Raises TableError."""
    return tuple(_defect(name, row) for name, row in load(TABLES / "defects.yaml").get("defects").mapping().items())


def _defect(name: str, row: Field) -> Defect:
    row.allow(("dialect", "upstream", "family", "where", "reason"))
    try:
        holds = compile_where(row.get("where").text())
    except WhereError as error:
        raise row.get("where").fail(str(error)) from error
    upstream = row.find("upstream")
    return Defect(
        name=name,
        dialect=row.get("dialect").text(),
        upstream=upstream.text() if upstream else "",
        family=row.get("family").text(),
        reason=row.get("reason").text(),
        holds=holds,
    )


def defect_of(key: Key, dialect: str, upstream: str = "") -> Defect | None:
    """The defect that keeps a dialect's kernel from being compiled, if one is known.

    Without ``upstream`` those count that every upstream of the dialect has.
    """
    for defect in defects():
        meant = defect.dialect == dialect and defect.upstream in ("", upstream) and defect.family == key.family
        if meant and defect.holds(key):
            return defect
    return None


def split(keys: Sequence[Key], dialect: str, upstream: str = "") -> tuple[list[Key], dict[Defect, list[Key]]]:
    """(kernels that compile, the others by defect), each in the order given."""
    sound: list[Key] = []
    left_out: dict[Defect, list[Key]] = {}
    for key in keys:
        defect = defect_of(key, dialect, upstream)
        if defect is None:
            sound.append(key)
        else:
            left_out.setdefault(defect, []).append(key)
    return sound, left_out

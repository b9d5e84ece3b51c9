"""What part of the planted defects must be seen (floors.yaml), and which of that a run misses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matrix.base.tablefile import Field, load
from tests.mutants.drawing import KINDS
from tests.mutants.trial import Tried

_TABLE = Path(__file__).with_name("floors.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Floors:
    """Percent: of all mutants, and of those of some kinds."""

    all: int
    kinds: Mapping[str, int]


def read_floors(file: Path = _TABLE) -> Floors:
    """Raises TableError: the table can't be read, or names a kind that there isn't."""
    table = load(file)
    table.allow(("all", "kinds"))
    kinds = table.get("kinds")
    kinds.allow(KINDS)
    return Floors(all=_percent(table.get("all")), kinds=kinds.map(_percent))


def _percent(field: Field) -> int:
    value = field.integer()
    if not 0 <= value <= 100:
        raise field.fail("a floor is from 0 to 100 percent")
    return value


def missed(tried: Sequence[Tried], floors: Floors) -> list[str]:
    """Which floors a run is below, in words."""
    below = []
    for what, floor in (("all kinds", floors.all), *floors.kinds.items()):
        mine = [one for one in tried if what in ("all kinds", one.mutant.kind)]
        seen = sum(bool(one.killed_by) for one in mine)
        if 100 * seen < floor * len(mine):
            below.append(f"{seen} of {len(mine)} of {what}, where {floor} % are asked for")
    return below

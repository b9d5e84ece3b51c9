"""Whether waves need a barrier: whether two of them use a byte of LDS that nothing but this barrier orders.

Looked at are all uses of LDS that are reached from the barrier, in both directions, without another one in between.
Where an address is not known in every lane (values.py), or a call or an LDS-DMA with an unknown base is among them, the
barrier counts as needed. That global memory is not passed from wave to wave is taken for granted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.lowering.decode import Instruction
from emulator.lowering.flow import successors
from emulator.lowering.registers import VECTOR
from tests.mutants.bits import LANES, UNKNOWN
from tests.mutants.loads import is_to_lds
from tests.mutants.values import CALLS, Values, field

_BARRIER = "s_barrier"
_CROSSBAR = ("ds_bpermute", "ds_permute", "ds_swizzle", "ds_nop")
_FORM = re.compile(r"ds_(read|write)(2)?(st64)?_[a-z](\d+)(_d16(_hi)?)?")
_M0 = 124


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """``bytes_of`` has for each wave the bytes of LDS that its lanes use; None if they are not known."""

    writes: bool
    bytes_of: tuple[NDArray[np.int64], ...] | None


def needed(instructions: Sequence[Instruction], values: Values, barrier: int) -> bool:
    """Whether uses on both sides of it meet, as far as is known."""
    following = successors(instructions)
    before: list[list[int]] = [[] for _ in instructions]
    for at, ways in enumerate(following):
        for after in ways:
            before[after].append(at)
    sides = [_uses(instructions, values, list(_reached(instructions, ways, barrier))) for ways in (before, following)]
    if None in sides:
        return True
    return any(_meet(one, other) for one in sides[0] or () for other in sides[1] or ())


def _reached(instructions: Sequence[Instruction], ways: Sequence[Sequence[int]], start: int) -> Iterator[int]:
    """What the ways lead to until the next barrier."""
    seen, left = set(ways[start]), list(ways[start])
    while left:
        at = left.pop()
        if instructions[at].name == _BARRIER:
            continue
        yield at
        left += [after for after in ways[at] if after not in seen]
        seen |= set(ways[at])


def _uses(instructions: Sequence[Instruction], values: Values, places: Sequence[int]) -> list[Use] | None:
    """The uses of LDS among some instructions; None if one of them may be any."""
    uses = []
    for at in sorted(places):
        one = instructions[at]
        to_lds = is_to_lds(one)
        if one.name in CALLS or one.format == "FLAT" or (to_lds and one.format != "MUBUF"):
            return None
        if to_lds or (one.format == "DS" and not one.name.startswith(_CROSSBAR)):
            uses.append(_dma(one, values, at) if to_lds else _use(one, values, at))
    return uses


def _use(one: Instruction, values: Values, at: int) -> Use:
    form = _FORM.fullmatch(one.name)
    writes = not one.name.startswith("ds_read")
    address = values.before(at).get(VECTOR + (field(one, "addr") or 0), UNKNOWN)
    if form is None or not address.is_constant():
        return Use(writes, None)
    size = int(form[4]) // 8
    low, high = field(one, "offset0") or 0, field(one, "offset1") or 0
    step = size * (64 if form[3] else 1)
    offsets = (low * step, high * step) if form[2] else (low | high << 8,)
    lanes = np.broadcast_to(address.ones.astype(np.int64), (values.waves, LANES))
    reach = np.add.outer(np.asarray(offsets), np.arange(size)).ravel()
    return Use(writes, tuple(np.unique(np.add.outer(wave, reach)) for wave in lanes))


def _dma(one: Instruction, values: Values, at: int) -> Use:
    """A load into LDS: M0 and the offset say where the first lane's value goes, the others' follow."""
    base = values.before(at).get(_M0, UNKNOWN)
    width = re.fullmatch(r"buffer_load_dword(x(\d))?", one.name)
    if width is None or not base.is_constant():
        return Use(True, None)
    size = 4 * int(width[2] or 1) * LANES
    first = np.broadcast_to(base.ones.astype(np.int64), (values.waves, 1)) + (field(one, "offset") or 0)
    return Use(True, tuple(np.arange(int(start), int(start) + size) for (start,) in first))


def _meet(one: Use, other: Use) -> bool:
    """Whether two waves use a byte, one of them writing."""
    if not (one.writes or other.writes):
        return False
    if one.bytes_of is None or other.bytes_of is None:
        return True
    return any(
        left != right and bool(np.isin(mine, theirs).any())
        for left, mine in enumerate(one.bytes_of)
        for right, theirs in enumerate(other.bytes_of)
    )

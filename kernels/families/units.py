"""Units: groups of instances that are compiled together.

Merging pays because the front end dominates: eight instances in a unit take a third of the time of eight units. A unit
holds kernels that share their tile and dtype. Grouping follows axis values, not positions in a list, so that a changed
axis value changes only the units that contain it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from ckpm.kernels.families.libraries import is_default
from ckpm.matrix.keys import Key

DEFAULT_SIZE = 8


@dataclass(frozen=True, slots=True)
class Unit:
    """Kernels of one translation unit. ``name`` follows from the kernels' names alone."""

    name: str
    keys: tuple[Key, ...]


def plan(keys: Sequence[Key], size: int = DEFAULT_SIZE) -> list[Unit]:
    """Group keys into units of at most ``size``.

    A block is the keys that share everything but the cheap flags (logits, lse, dropout, sink, KV layout and table).
    Blocks of at least half a unit are cut into units of their own; smaller ones fill units together with their
    neighbours of the same dtype and tile.
    """
    blocks: dict[tuple[object, ...], dict[tuple[object, ...], list[Key]]] = {}
    for key in keys:
        kind = (key.family, key.dtype, key.hdim_q, key.tile, key.load)
        detail = (key.mode, key.vlayout, key.pad, key.mask, key.bias, key.qscale, key.page_size, key.pipeline)
        blocks.setdefault(kind, {}).setdefault(detail, []).append(key)
    units = []
    for by_detail in blocks.values():
        pool: list[Key] = []
        for block in by_detail.values():
            if 2 * len(block) >= size:
                units += [_unit(block[start : start + size]) for start in range(0, len(block), size)]
                continue
            if len(pool) + len(block) > size:
                units.append(_unit(pool))
                pool = []
            pool += block
        if pool:
            units.append(_unit(pool))
    return units


def _unit(keys: Sequence[Key]) -> Unit:
    first = keys[0]
    digest = hashlib.sha256("\n".join(key.name for key in keys).encode()).hexdigest()[:12]
    rows, columns = (first.tile.bm0, first.tile.bn0) if first.tile.bm0 else (first.tile.bs, first.tile.bsk)
    tile = f"b{rows}x{columns}" if rows else f"b{first.tile.bn1}"
    load = f"_{first.load}" if first.load else ""
    family = "" if is_default(first.family) else f"{first.family}_"
    return Unit(f"{family}d{first.hdim_q}_{first.dtype}{load}_{tile}_{digest}", tuple(keys))

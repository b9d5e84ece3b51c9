"""C++ text of keys: units of instances, the dispatch and the harness, written only where they changed.

Families (ckpm/kernels/families/table.py) have the templates of their kernels. A unit is a group of instances that are
compiled together. Merging pays because the front end dominates: eight instances in a unit take a third of the time of
eight units. A unit holds kernels that share their tile and dtype. Grouping follows axis values, not positions in a
list, so that a changed axis value changes only the units that contain it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.files import make_folder, sha256_of, write_if_changed
from ckpm.base.outputs import forget_output, record, recorded_digests
from ckpm.kernels.families.libraries import host, is_default, library_of_keys, library_with
from ckpm.kernels.families.spellings import Features, fill, pattern
from ckpm.kernels.families.table import FAMILIES
from ckpm.matrix.keys import Key

DEFAULT_SIZE = 8


@dataclass(frozen=True, slots=True)
class Unit:
    """Kernels of one translation unit. ``name`` follows from the kernels' names alone."""

    name: str
    keys: tuple[Key, ...]


def plan_units(keys: Sequence[Key], size: int = DEFAULT_SIZE) -> list[Unit]:
    """Group keys into units of at most ``size``.

    A block is the keys that share everything but the cheap flags (logits, lse, dropout, sink, KV layout and table).
    Blocks are cut into pieces of ``size``. Pieces of more than half a unit are units of their own; smaller ones fill
    units together with their neighbours of the same dtype and tile.
    """
    blocks: dict[tuple[object, ...], dict[tuple[object, ...], list[Key]]] = {}
    for key in keys:
        kind = (key.family, key.dtype, key.hdim_q, key.tile, key.load)
        detail = (key.mode, key.vlayout, key.pad, key.mask, key.bias, key.qscale, key.page_size, key.pipeline)
        blocks.setdefault(kind, {}).setdefault(detail, []).append(key)
    units = []
    for by_detail in blocks.values():
        pool: list[Key] = []
        pieces = (block[at : at + size] for block in by_detail.values() for at in range(0, len(block), size))
        for piece in pieces:
            if 2 * len(piece) > size:
                units.append(_unit(piece))
                continue
            if len(pool) + len(piece) > size:
                units.append(_unit(pool))
                pool = []
            pool += piece
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


def instance_text(key: Key, features: Features, space: str = "ckpm::k0") -> str:
    """The text of one kernel's specialisation."""
    family = FAMILIES[key.family]
    return pattern(family.instance, **family.choices(key, features)) % family.substitutions(key, features, space)


def unit_text(unit: Unit, features: Features) -> str:
    """The text of one translation unit, with a numbered namespace for each instance."""
    texts = [instance_text(key, features, f"ckpm::k{index}") for index, key in enumerate(unit.keys)]
    return fill(FAMILIES[unit.keys[0].family].unit, instances=texts)


def dispatch_text(keys: Sequence[Key], features: Features) -> str:
    """The host dispatch over ``keys`` (at least one) of one library, which must be in upstream's order of emission."""
    return host(library_with(keys[0].family)).dispatch(keys, features)


def render(
    keys: Sequence[Key], units: Sequence[Unit], dialect: str, features: Features, folder: Path
) -> Mapping[str, list[Path]]:
    """Write all sources of a library below ``folder`` and remove sources that we wrote there for another selection.

    Returns:
        the paths by kind: ``units``, ``dispatch``, ``harness``.
    """
    library = library_of_keys(keys, dialect)
    make_folder(folder)
    files = {
        "units": [folder / f"{unit.name}.hip" for unit in units],
        "dispatch": [folder / "dispatch.hip"],
        "harness": [folder / "harness.hip"],
    }
    wanted = {file for group in files.values() for file in group}
    try:
        for unit, file in zip(units, files["units"], strict=True):
            write_if_changed(file, unit_text(unit, features))
        write_if_changed(files["dispatch"][0], dispatch_text(keys, features))
        write_if_changed(files["harness"][0], host(library).harness(dialect, features))
    finally:  # after an interrupt, too: the next render would take the files for somebody else's
        record(folder, {file.name: sha256_of(file) for file in sorted(wanted) if file.is_file()})
    for stale in {folder / name for name in recorded_digests(folder)} - wanted:
        forget_output(stale)
    return files

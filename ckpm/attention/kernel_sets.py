"""Kernels declared by fields of their keys, with ``*`` for any value, and by numbers of tiles, waves and warp tiles.

Declarations are looked up in the matrix, so every declared kernel exists in its upstream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ckpm.attention.registry import Instance
from ckpm.base.errors import LibraryError, demand_type, nearest_and_known, unknown_word
from ckpm.matrix.dialects import check_upstream, dialect
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.families import MASK_IMPLS
from ckpm.matrix.keys import KEY_FIELDS, TILE_NUMBERS, Key

ANY = "*"
_FIELDS = tuple(name for name in KEY_FIELDS if name not in ("name", "family", "tile", "mask_impl"))
_OF_TILE: Mapping[str, tuple[str, ...]] = {
    "wave": tuple(name for name in TILE_NUMBERS if name[0] == "r"),
    "warp": tuple(name for name in TILE_NUMBERS if name[0] == "w"),
    "tile": tuple(name for name in TILE_NUMBERS if name[0] not in "rw"),
}


def kernel_set(
    family: str,
    arch: str = "gfx950",
    *,
    upstream: str = "aiter",
    mask_impl: str = MASK_IMPLS[0],
    receipt: int = 0,
    priority: int = 0,
    tile: Mapping[str, int] | None = None,
    wave: Mapping[str, int] | None = None,
    warp: Mapping[str, int] | None = None,
    **fields: Any,
) -> tuple[Instance, ...]:
    """The kernels of a family with all of these field values, in upstream's order.

    A field's value is a value, a tuple of several, or ``*``.

    ``kernel_set("fwd", dtype="bf16", hdim_q=128, mask="*", bias=("no", "alibi"), tile={"bm0": 128}, warp={"wk0": 16})``
    """
    for argument, value in (("family", family), ("arch", arch), ("upstream", upstream)):
        demand_type(argument, value, str, "a word")
    demand_type("receipt", receipt, int, "a number")
    if str(mask_impl) not in MASK_IMPLS:
        raise LibraryError(unknown_word("mask set", str(mask_impl), MASK_IMPLS), kind="unknown-kernel")
    upstream_dialect = dialect(check_upstream(upstream).dialect)
    upstream_dialect.check_arch(arch)
    keys = enumerate_keys(upstream_dialect.family(family), arch=arch, receipt=receipt, mask_impl=mask_impl)
    left = keys
    for name, value in _wanted_values(fields, {"tile": tile, "wave": wave, "warp": warp}).items():
        demand_type(name, value, (str, int, tuple), "a value, a tuple of several, or '*'")
        if value == ANY:
            continue
        before, left = (
            left,
            [key for key in left if _value(key, name) in (value if isinstance(value, tuple) else (value,))],
        )
        if not left:
            there = sorted({str(_value(key, name)) for key in before})
            raise LibraryError(
                f"{family} of {upstream} for {arch} has no kernel with {name} {value!r} beside what comes before it; "
                f"those have {', '.join(there) or 'nothing'}.",
                kind="unknown-kernel",
            )
    if not left:
        raise LibraryError(f"{upstream} has no kernel of {family} for {arch}.", kind="unknown-kernel")
    return tuple(
        Instance(key=key, arch=arch, upstream=upstream, dialect=upstream_dialect.name, priority=priority)
        for key in left
    )


def _wanted_values(fields: Mapping[str, Any], of_tile: Mapping[str, Mapping[str, int] | None]) -> dict[str, Any]:
    """Wanted values by field. Fields of a tile are named as ``tile.bm0``."""
    wanted = {}
    for name, value in fields.items():
        wanted[_check_field(name, _FIELDS)] = value
    for group, numbers in of_tile.items():
        if numbers is not None and not isinstance(numbers, Mapping):
            raise LibraryError(f"{group} is {numbers!r}: it must be a mapping to numbers.", kind="unknown-kernel")
        for name, number in (numbers or {}).items():
            wanted[f"tile.{_check_field(name, _OF_TILE[group])}"] = number
    return wanted


def _check_field(name: str, names: tuple[str, ...]) -> str:
    if name not in names:
        raise LibraryError(f"a kernel has no field '{name}'{nearest_and_known(name, names)}", kind="unknown-kernel")
    return name


def _value(key: Key, name: str) -> Any:
    holder, _, leaf = name.rpartition(".")
    return getattr(key.tile if holder else key, leaf)

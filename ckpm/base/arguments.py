"""Checks of arguments' types, where a caller gives them."""

from __future__ import annotations

from types import UnionType

from .errors import ArgumentError

Kinds = type | UnionType | tuple[type, ...]


def demand_type(name: str, value: object, kinds: Kinds, wanted: str) -> None:
    """Refuse an argument of another type. ``wanted`` names what to give."""
    if not isinstance(value, kinds):
        raise ArgumentError(f"{name} is {_short(value)}: give {wanted}.", kind="type")


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, int | float | str | bytes | tuple | list | dict | None) else ""
    return text if 0 < len(text) <= 60 else f"of type {type(value).__name__}"

"""Find the value that does not fit a declared record, by the record's structure: msgspec's messages are for people."""

from __future__ import annotations

import contextlib
import datetime
import operator
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect

Misfit = tuple[list[str | int], str]
_RECORDS = (inspect.StructType, inspect.DataclassType)
# What the kinds of a record take, and its words, in the order in which a message lists them.
_KINDS: Mapping[type[inspect.Type], tuple[tuple[type, ...], str]] = {
    inspect.BoolType: ((bool,), "true or false"),
    inspect.IntType: ((int,), "a whole number"),
    inspect.FloatType: ((int, float), "a number"),
    inspect.StrType: ((str,), "text"),
    inspect.DateType: ((datetime.date, str), "a date such as 2027-06-30"),
    **dict.fromkeys((inspect.TupleType, inspect.VarTupleType, inspect.ListType), ((list,), "a list")),
    **dict.fromkeys((inspect.DictType, inspect.StructType, inspect.DataclassType), ((dict,), "a mapping")),
    inspect.NoneType: ((type(None),), "empty"),
}


def describe(value: object) -> str:
    """A value as error messages describe it."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "empty" if value is None else f"{value!r}"


def explain(values: Any, kind: type) -> Misfit:
    """Return the path and the reason of the first value for which msgspec refuses to convert ``values``."""
    return _misfit(values, inspect.type_info(kind)) or ([], "does not fit")


def _misfit(value: Any, kind: inspect.Type) -> Misfit | None:
    """The path and reason of the first value that doesn't fit; None if all fit."""
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    if any(isinstance(choice, inspect.AnyType) for choice in kinds):
        return None
    fitting = next((choice for choice in kinds if type(value) in _KINDS[_plain(choice)][0]), None)
    if fitting is None:
        wanted = dict.fromkeys(text for known, (_, text) in _KINDS.items() if known in map(_plain, kinds))
        return [], f"must be {' or '.join(wanted)}" + ("" if isinstance(value, dict) else f", not {describe(value)}")
    if reason := _against(value, fitting):
        return [], reason
    for part, member, member_kind in _members(value, fitting):
        if member_kind is None:
            return [part], f"unknown field; known here: {', '.join(_fields(fitting))}"
        if misfit := _misfit(member, member_kind):
            return [part, *misfit[0]], misfit[1]
    if missing := [name for name, field in _fields(fitting).items() if field.required and name not in value]:
        return [], f"field '{missing[0]}' is missing; it has {', '.join(value) or 'no field'}"
    if isinstance(fitting, _RECORDS):
        try:
            msgspec.convert(value, fitting.cls, str_keys=True)
        except msgspec.ValidationError as error:  # a record's own check of its fields together
            return [], str(error)
    return None


def _plain(kind: inspect.Type) -> type[inspect.Type]:
    """The class of a kind; of a choice of words or numbers the class of these."""
    if isinstance(kind, inspect.LiteralType):
        return inspect.IntType if isinstance(kind.values[0], int) else inspect.StrType
    return type(kind)


def _against(value: Any, kind: inspect.Type) -> str:
    """The reason against a value of the right kind without its members; "" if there is none."""
    if isinstance(kind, inspect.LiteralType) and value not in kind.values:
        return f"unknown word '{value}'; known here: {', '.join(map(str, kind.values))}"
    if isinstance(kind, inspect.DictType):
        numbered = isinstance(kind.key_type, inspect.IntType)
        keys = (int(key) if numbered and key.isdecimal() else key for key in value)
        if misfit := next(filter(None, (_misfit(key, kind.key_type) for key in keys)), None):
            return misfit[1]
    if isinstance(kind, inspect.DateType) and isinstance(value, str) and not _is_date(value):
        return f"must be {_KINDS[inspect.DateType][1]}"
    if getattr(kind, "max_length", None) == 0 and value:
        return "unknown field"  # of a table: its reader sets it (tablefile.Later)
    if getattr(kind, "min_length", None) and not value:
        return "is empty"
    if isinstance(kind, inspect.TupleType) and len(value) != len(kind.item_types):
        return f"must be a list of length {len(kind.item_types)}, got {len(value)}"
    if isinstance(kind, inspect.StrType) and kind.pattern and not re.search(kind.pattern, value):
        return f"must be text matching regex {kind.pattern!r}"
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        return _out_of_bounds(value, kind)
    return ""


def _is_date(text: str) -> bool:
    with contextlib.suppress(msgspec.ValidationError):
        msgspec.convert(text, datetime.date)
        return True
    return False


def _out_of_bounds(value: float, kind: inspect.IntType | inspect.FloatType) -> str:
    whole = isinstance(kind, inspect.IntType)
    bounds = (
        (">=", kind.gt + 1 if whole and kind.gt is not None else kind.ge, operator.ge),
        (">", None if whole else kind.gt, operator.gt),
        ("<=", kind.lt - 1 if whole and kind.lt is not None else kind.le, operator.le),
        ("<", None if whole else kind.lt, operator.lt),
    )
    text = _KINDS[type(kind)][1]
    for sign, bound, holds in bounds:
        if bound is not None and not holds(value, bound):  # NaN meets none
            return f"must be {text} {sign} {bound if whole else float(bound)}"
    return ""


def _fields(kind: inspect.Type) -> dict[str, inspect.Field]:
    """The fields of a record by name."""
    if isinstance(kind, _RECORDS):
        return {field.encode_name: field for field in kind.fields}
    return {}


def _members(value: Any, kind: inspect.Type) -> Iterator[tuple[str | int, Any, inspect.Type | None]]:
    """The members of a mapping or list: name or position, value, kind; None for a name that a table's record lacks."""
    if isinstance(kind, inspect.DictType):
        yield from ((name, member, kind.value_type) for name, member in value.items())
    elif isinstance(kind, inspect.TupleType):
        yield from zip(range(len(value)), value, kind.item_types, strict=True)
    elif isinstance(kind, inspect.VarTupleType | inspect.ListType):
        yield from ((at, item, kind.item_type) for at, item in enumerate(value))
    elif isinstance(kind, _RECORDS):
        fields = _fields(kind)
        for name, member in value.items():
            if name in fields or isinstance(kind, inspect.StructType):
                yield name, member, fields[name].type if name in fields else None

"""The reason why msgspec refuses a value is found by the record's structure, with the path of the value."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from ckpm.base.tablefile import Later, Record, explain


class Inner(Record, frozen=True):
    number: int
    rate: Annotated[float, Meta(ge=0, lt=1)] = 0.0


@dataclass(frozen=True)
class Span:
    first: int
    last: int

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise ValueError("the span is empty")


class Outer(Record, frozen=True):
    text: Annotated[str, Meta(min_length=1)] = "a"
    code: Annotated[str, Meta(pattern="^[0-9]+$")] = "1"
    count: Annotated[int, Meta(gt=0)] = 1
    few: Annotated[int, Meta(le=3)] = 1
    bits: Literal[8, 16] = 8
    tier: Literal["smoke", "full"] = "smoke"
    on: bool = False
    day: datetime.date | None = None
    pair: tuple[int, int] = (1, 2)
    names: Annotated[tuple[str, ...], Meta(min_length=1)] = ("a",)
    either: str | tuple[str, ...] = "a"
    inner: dict[str, Inner] | None = None
    by_tier: dict[Literal["smoke", "full"], int] | None = None
    by_number: dict[Annotated[int, Meta(ge=0)], str] | None = None
    span: Span | None = None
    name: Later = ""


@pytest.mark.parametrize(
    ("values", "path", "message"),
    [
        ([], [], "must be a mapping, not a list"),
        ({"text": 1}, ["text"], "must be text, not 1"),
        ({"text": {}}, ["text"], "must be text"),
        ({"text": ""}, ["text"], "is empty"),
        ({"code": "x1"}, ["code"], "must be text matching regex '^[0-9]+$'"),
        ({"count": 0}, ["count"], "must be a whole number > 0"),
        ({"count": True}, ["count"], "must be a whole number, not True"),
        ({"few": 4}, ["few"], "must be a whole number <= 3"),
        ({"bits": 9}, ["bits"], "unknown word '9'; known here: 8, 16"),
        ({"tier": "night"}, ["tier"], "unknown word 'night'; known here: full, smoke"),
        ({"on": "yes"}, ["on"], "must be true or false, not 'yes'"),
        ({"day": "lately"}, ["day"], "must be a date such as 2027-06-30"),
        ({"pair": [1]}, ["pair"], "must be a list of length 2, got 1"),
        ({"names": []}, ["names"], "is empty"),
        ({"either": 1}, ["either"], "must be text or a list, not 1"),
        (
            {"inner": {"a": {"number": 1}, "b": {"number": "1"}}},
            ["inner", "b", "number"],
            "must be a whole number, not",
        ),
        ({"inner": {"a": {}}}, ["inner", "a"], "field 'number' is missing; it has no field"),
        (
            {"inner": {"a": {"number": 1, "rat": 1}}},
            ["inner", "a", "rat"],
            "unknown field; known here: number, rate; did you mean 'rate'?",
        ),
        ({"inner": {"a": {"number": 1, "rate": float("nan")}}}, ["inner", "a", "rate"], "must be a number >= 0"),
        ({"by_tier": {"night": 1}}, ["by_tier", "night"], "unknown word 'night'; known here: full, smoke"),
        ({"by_number": {"two": "a"}}, ["by_number", "two"], "must be a whole number, not 'two'"),
        ({"by_number": {"2": "a", "3": 4}}, ["by_number", "3"], "must be text, not 4"),
        ({"span": {"first": 3, "last": 1}}, ["span"], "the span is empty"),
        ({"name": "row"}, ["name"], "unknown field"),
        ({"text": 1, "other": 1}, ["text"], "must be text, not 1"),
        ({"other": 1, "text": 1}, ["other"], "unknown field; known here: text, code, "),
    ],
)
def test_refused_value_has_path_and_reason(values: Any, path: list[str | int], message: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(values, Outer, str_keys=True)
    actual_path, reason = explain(values, Outer)
    assert (actual_path, reason[: len(message)]) == (path, message)

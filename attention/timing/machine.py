"""The numbers of machine.yaml: the timing model's compute unit of each arch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.errors import InconclusiveError
from ckpm.base.tablefile import Field, load

TABLE = Path(__file__).with_name("machine.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number of one arch. ``doubtful``: no document of this arch has it. ``switch``: it is 0 or 1."""

    name: str
    value: int
    about: str
    source: str
    doubtful: bool
    switch: bool


def numbers(arch: str, file: Path = TABLE) -> dict[str, Number]:
    """An arch's numbers by name. Raises InconclusiveError: the table lacks the arch; TableError."""
    found = {name: _number(field, arch) for name, field in load(file).get("numbers").mapping().items()}
    known = {name: number for name, number in found.items() if number is not None}
    if len(known) != len(found):
        raise InconclusiveError(
            f"the timing model has no numbers of {arch}: add them to {file.name}, with sources.", kind="measure"
        )
    return known


def cannot_see(file: Path = TABLE) -> tuple[str, ...]:
    """List what the model leaves out. Raises TableError."""
    return load(file).get("cannot_see").texts()


def values(known: Mapping[str, Number]) -> dict[str, int]:
    """Arguments of the device's replay."""
    return {name: number.value for name, number in known.items()}


def _number(field: Field, arch: str) -> Number | None:
    field.allow(("about", "source", "doubtful", "switch", "values"))
    value, marks = field.get("values").find(arch), {name: field.find(name) for name in ("doubtful", "switch")}
    if value is None:
        return None
    return Number(
        name=field.path.rpartition(".")[2],
        value=value.integer(),
        about=field.get("about").text(),
        source=field.get("source").text(),
        **{name: mark.boolean() if mark else False for name, mark in marks.items()},
    )

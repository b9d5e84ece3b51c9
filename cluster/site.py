"""Read the resources of a job of Slurm: slurm.yaml, a site's own file, options."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.tablefile import Field, load, overlay

DEFAULTS = Path(__file__).resolve().parent / "slurm.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A job of Slurm; slurm.yaml describes the fields."""

    cores: int
    memory: str
    walltime: str
    partition: str
    account: str
    interface: str
    gpus: int
    directives: tuple[str, ...]
    prologue: tuple[str, ...]
    python: str


def read_site(file: Path | None, partition: str | None, walltime: str | None) -> Site:
    """The defaults, replaced by a site's file, replaced by options. Raises TableError."""
    table = overlay(load(DEFAULTS), load(file)) if file else load(DEFAULTS)
    fields = {field.name: field for field in dataclasses.fields(Site)}
    table.allow(fields)
    site = Site(
        cores=_at_least(table.get("cores"), 1),
        gpus=_at_least(table.get("gpus"), 0),
        directives=table.get("directives").texts(),
        prologue=table.get("prologue").texts(),
        **{name: table.get(name).text() for name in fields if fields[name].type == "str"},
    )
    return dataclasses.replace(site, partition=partition or site.partition, walltime=walltime or site.walltime)


def _at_least(field: Field, least: int) -> int:
    if (value := field.integer()) < least:
        raise field.fail(f"must be at least {least}")
    return value

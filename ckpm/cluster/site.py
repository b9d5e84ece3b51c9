"""Read the resources of a job of Slurm: slurm.yaml, a site's own file, options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from ckpm.base.paths import data
from ckpm.base.tablefile import Record, decode, load, overlay

DEFAULTS = data("docker", "slurm.yaml")


class Site(Record, frozen=True):
    """The record of slurm.yaml, which describes the fields of a job."""

    cores: Annotated[int, Meta(ge=1)]
    memory: str
    walltime: str
    partition: str
    account: str
    interface: str
    gpus: Annotated[int, Meta(ge=0)]
    directives: tuple[str, ...]
    prologue: tuple[str, ...]
    python: str


def read_site(file: Path | None, partition: str | None, walltime: str | None) -> Site:
    """The defaults, replaced by a site's file, replaced by options."""
    site = decode(overlay(load(DEFAULTS), load(file)) if file else load(DEFAULTS), Site).record
    return msgspec.structs.replace(site, partition=partition or site.partition, walltime=walltime or site.walltime)

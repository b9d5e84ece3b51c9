"""The numbers and words that validation compares a configuration with, read from tables/validation.yaml."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec import structs

from ckpm.base.tablefile import Record, read_table
from ckpm.matrix.dialects import FAMILIES, TABLES, archs


@dataclass(frozen=True, slots=True)
class ArchLimits:
    """The limits of an arch in CK's dispatcher, and the bytes of LDS that a block can have (archs.yaml)."""

    matrix_cores: str
    dtypes: tuple[str, ...]
    pipelines: tuple[str, ...]
    async_load_bytes: int
    lds_banks: int
    lds_bytes: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Numbers by the names they have in the table. ``words``: field -> spelling -> the word that rules see."""

    archs: Mapping[str, ArchLimits]
    dtypes: Mapping[str, int]
    forward_dtypes: tuple[str, ...]
    backward_dtypes: tuple[str, ...]
    family_pipelines: Mapping[str, tuple[str, ...]]
    tile_length: Mapping[str, int]
    numbers: Mapping[str, int]
    lists: Mapping[str, tuple[int, ...]]
    lds: Mapping[str, int]
    words: Mapping[str, Mapping[str, str]]


class _ArchRow(Record, frozen=True):
    matrix_cores: str
    dtypes: tuple[str, ...]
    pipelines: tuple[str, ...]
    async_load_bytes: int
    lds_banks: int


class _Lds(Record, frozen=True):
    sync_bytes: int
    async_buffers: int
    async_bk1: int
    pack_bytes: int


class LimitTable(Record, frozen=True):
    """The record of validation.yaml."""

    archs: dict[str, _ArchRow]
    dtypes: dict[str, int]
    forward_dtypes: tuple[str, ...]
    backward_dtypes: tuple[str, ...]
    other_pipelines: tuple[str, ...]
    family_pipelines: dict[str, tuple[str, ...]]
    tile_length: dict[str, int]
    hdim_multiple: int
    wave_length: int
    warp_length: int
    mfma_instructions_multiple: int
    combine_bn1: int
    d128_bn0: int
    d128_async_bm0: int
    d128_refused_bk0: int
    trload_d128_refused_bn0: int
    v3_bm0: int
    trload_hdims: tuple[int, ...]
    bm0: tuple[int, ...]
    lds: _Lds
    words: dict[str, dict[str, tuple[str, ...]]]


@functools.cache
def limits() -> Limits:
    """Read validation.yaml. Raises TableError."""
    table = read_table(TABLES / "validation.yaml", LimitTable)
    record = table.record
    for name in {*archs()} ^ {*record.archs}:
        raise table.fail(f"'{name}' must be both here and in archs.yaml", "archs")
    known = {
        name: ArchLimits(**structs.asdict(record.archs[name]), lds_bytes=arch.lds_bytes)
        for name, arch in archs().items()
    }
    pipelines = [name for arch in known.values() for name in arch.pipelines] + [*record.other_pipelines]
    fields = structs.asdict(record)
    return Limits(
        archs=known,
        dtypes=record.dtypes,
        forward_dtypes=record.forward_dtypes,
        backward_dtypes=record.backward_dtypes,
        family_pipelines=record.family_pipelines,
        tile_length=record.tile_length,
        numbers={name: value for name, value in fields.items() if isinstance(value, int)},
        lists={name: fields[name] for name in ("trload_hdims", "bm0")},
        lds=structs.asdict(record.lds),
        words={
            "arch": _themselves(known),
            "family": _themselves(FAMILIES),
            "dtype": _themselves(record.dtypes),
            "pipeline": _themselves(pipelines),
            **{field: _spellings(words) for field, words in record.words.items()},
        },
    )


def _themselves(words: Iterable[str]) -> Mapping[str, str]:
    return {word: word for word in words}


def _spellings(words: Mapping[str, Iterable[str]]) -> Mapping[str, str]:
    return {spelling: word for word, spellings in words.items() for spelling in (word, *spellings)}

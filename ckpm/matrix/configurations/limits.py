"""The numbers and words that validation compares a configuration with, read from matrix/validation.yaml."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from ckpm.base.tablefile import Record, read_table
from ckpm.matrix.dialects import FAMILIES, TABLES, archs


class _LimitRow(Record, frozen=True):
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

    archs: dict[str, _LimitRow]
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
    spellings: dict[str, dict[str, tuple[str, ...]]]


@functools.cache
def limits() -> LimitTable:
    """Read validation.yaml."""
    table = read_table(TABLES / "validation.yaml", LimitTable)
    for name in {*archs()} ^ {*table.record.archs}:
        raise table.fail(f"'{name}' must be both here and in archs.yaml", "archs")
    return table.record


@functools.cache
def spellings() -> Mapping[str, Mapping[str, str]]:
    """Field of a configuration -> spelling -> the word for rules."""
    table = limits()
    pipelines = [name for arch in table.archs.values() for name in arch.pipelines] + [*table.other_pipelines]
    return {
        "arch": _themselves(table.archs),
        "family": _themselves(FAMILIES),
        "dtype": _themselves(table.dtypes),
        "pipeline": _themselves(pipelines),
        **{field: _spellings(listed) for field, listed in table.spellings.items()},
    }


def _themselves(names: Iterable[str]) -> Mapping[str, str]:
    return {word: word for word in names}


def _spellings(by_word: Mapping[str, Iterable[str]]) -> Mapping[str, str]:
    return {spelling: word for word, spellings in by_word.items() for spelling in (word, *spellings)}

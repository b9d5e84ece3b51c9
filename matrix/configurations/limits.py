"""The numbers and words that validation compares a configuration with, read from tables/validation.yaml."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from ckpm.base.tablefile import Field, load
from ckpm.matrix.dialects import FAMILIES, TABLES, archs


@dataclass(frozen=True, slots=True)
class ArchLimits:
    """What CK's dispatcher says of an arch, and the bytes of LDS that a block can have (archs.yaml)."""

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


_NUMBERS = (
    *("hdim_multiple", "wave_length", "warp_length", "mfma_instructions_multiple", "combine_bn1", "d128_bn0"),
    *("d128_async_bm0", "d128_refused_bk0", "trload_d128_refused_bn0", "v3_bm0"),
)
_LISTS = ("trload_hdims", "bm0")
_LDS = ("sync_bytes", "async_buffers", "async_bk1", "pack_bytes")
_REST = ("archs", "dtypes", "forward_dtypes", "backward_dtypes", "other_pipelines", "family_pipelines", "tile_length")


@functools.cache
def limits() -> Limits:
    """Raises TableError."""
    table = load(TABLES / "validation.yaml")
    table.allow((*_NUMBERS, *_LISTS, *_REST, "lds", "words"))
    table.get("lds").allow(_LDS)
    table.get("archs").allow(archs())
    known = {name: _arch(table.get("archs").get(name), arch.lds_bytes) for name, arch in archs().items()}
    dtypes = table.get("dtypes").map(Field.integer)
    pipelines = [name for arch in known.values() for name in arch.pipelines] + [*table.get("other_pipelines").texts()]
    return Limits(
        archs=known,
        dtypes=dtypes,
        forward_dtypes=table.get("forward_dtypes").texts(),
        backward_dtypes=table.get("backward_dtypes").texts(),
        family_pipelines=table.get("family_pipelines").map(Field.texts),
        tile_length=table.get("tile_length").map(Field.integer),
        numbers={name: table.get(name).integer() for name in _NUMBERS},
        lists={name: tuple(item.integer() for item in table.get(name).items()) for name in _LISTS},
        lds={name: table.get("lds").get(name).integer() for name in _LDS},
        words={
            **{name: _themselves(words) for name, words in (("arch", known), ("family", FAMILIES), ("dtype", dtypes))},
            "pipeline": _themselves(dict.fromkeys(pipelines)),
            **table.get("words").map(_spellings),
        },
    )


def _arch(row: Field, lds_bytes: int) -> ArchLimits:
    row.allow(("matrix_cores", "dtypes", "pipelines", "async_load_bytes", "lds_banks"))
    return ArchLimits(
        matrix_cores=row.get("matrix_cores").text(),
        dtypes=row.get("dtypes").texts(),
        pipelines=row.get("pipelines").texts(),
        async_load_bytes=row.get("async_load_bytes").integer(),
        lds_banks=row.get("lds_banks").integer(),
        lds_bytes=lds_bytes,
    )


def _themselves(words: Mapping[str, object] | tuple[str, ...]) -> Mapping[str, str]:
    return {word: word for word in words}


def _spellings(field: Field) -> Mapping[str, str]:
    return {spelling: word for word, item in field.mapping().items() for spelling in (word, *item.texts())}

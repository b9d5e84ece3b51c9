"""A kernel in the words of CK's tile engine: what ``--filter`` asks for, and the columns that name it in results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.matrix.keys import Key
from ckpm.matrix.problems.matching import padding
from ckpm.matrix.selection import load_filter_file
from ckpm.matrix.where import compile_over

_MASKS = {"mask": "top_left", "causal": "top_left", "": "no"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Fields of the tile engine's FmhaKernelConfig. What a family doesn't have is no, False or 0."""

    family: str
    data_type: str
    mode: str
    pipeline: str
    hdim_q: int
    hdim_v: int
    tile_m0: int
    tile_n0: int
    tile_k0: int
    tile_n1: int
    tile_k1: int
    tile_k0max: int
    pad_s: bool
    pad_sk: bool
    pad_d: bool
    pad_dv: bool
    mask: str
    bias: str
    lse: bool
    dropout: bool
    logits: bool
    sink: bool
    skip_min_seqlen_q: bool
    qscale: str
    paged_kv: bool
    rope: str
    deterministic: bool
    dbias: bool
    dropout_variant: str
    block_per_cu: int
    name: str


FIELDS = tuple(field.name for field in dataclasses.fields(Identity))


def identity(key: Key) -> Identity:
    """A kernel's; a mask of the simplified set, which serves every window, is called top_left as in configurations."""
    pads, tile = padding(key.pad), key.tile
    return Identity(
        family=key.family, data_type=key.dtype, mode=key.mode, pipeline=key.pipeline, hdim_q=key.hdim_q,
        hdim_v=key.hdim_v, tile_m0=tile.bm0, tile_n0=tile.bn0, tile_k0=tile.bk0, tile_n1=tile.bn1, tile_k1=tile.bk1,
        tile_k0max=tile.bk0max, pad_s="s" in pads, pad_sk="sk" in pads, pad_d="d" in pads, pad_dv="dv" in pads,
        mask=_MASKS.get(key.mask, key.mask), bias=key.bias or "no", lse=key.lse, dropout=key.dropout,
        logits=key.logits, sink=bool(key.sink), skip_min_seqlen_q=bool(key.skip), qscale=key.qscale or "no",
        paged_kv=bool(key.paged_kv), rope=key.rope or "no", deterministic=bool(key.deterministic),
        dbias=bool(key.dbias), dropout_variant=key.dropout_impl or "no", block_per_cu=tile.occupancy, name=key.name,
    )  # fmt: skip


def filter_keys(keys: Sequence[Key], expressions: Sequence[str], files: Sequence[Path]) -> list[Key]:
    """The kernels that meet every expression over ``c.FIELD`` and every file's ``filter_config(c)``.

    Raises:
        WhereError: an expression is none, or names an unknown field. UsageError: of a file.
    """
    known = tuple(f"c.{name}" for name in FIELDS)
    tests: list[Callable[[Identity], bool]] = [compile_over(text, known) for text in expressions]
    tests += [load_filter_file(file, "filter_config", "c") for file in files]
    return [key for key in keys if all(test(identity(key)) for test in tests)]

"""A key names one kernel: its signature (what it computes) and its algorithm (tile, waves, pipeline).

Field names and values are those of CK's own codegen, so that ``--where`` reads like upstream's source.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Tile:
    """A block tile with its wave and MFMA layout, as CK's ``TileFmhaShape`` takes it.

    bm0 is kM0 (rows of Q), bn0 kN0 (rows of K), bk0 kK0, bn1 kN1 (columns of V), bk1 kK1, bk0max kQKHeaddim;
    r* are waves along m, n, k of gemm 0 and 1; w* the warp tile of gemm 0 and 1; ``occupancy`` -1 leaves
    blocks per CU to the pipeline. ``when`` names the condition under which dispatch takes the tile (see dispatch.py).
    """

    bm0: int
    bn0: int
    bk0: int
    bn1: int
    bk1: int
    bk0max: int
    rm0: int
    rn0: int
    rk0: int
    rm1: int
    rn1: int
    rk1: int
    wm0: int
    wn0: int
    wk0: int
    wm1: int
    wn1: int
    wk1: int
    occupancy: int = field(default=-1, kw_only=True)
    when: str = field(default="always", kw_only=True)

    @property
    def word(self) -> str:
        """The tile's part of a kernel name, e.g. ``b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16``."""
        numbers = [str(getattr(self, name)) for name in TILE_FIELDS[:18]]
        parts = (numbers[:6], numbers[6:9], numbers[9:12], numbers[12:15], numbers[15:18])
        word = "_".join(letter + "x".join(part) for letter, part in zip("brrww", parts, strict=True))
        return word if self.occupancy == -1 else f"{word}_o{self.occupancy}"


@dataclass(frozen=True, slots=True)
class Key:
    """One kernel of a dialect. A field that the dialect doesn't know is None.

    ``name`` is the kernel's name in the dialect's grammar; it is derived from the other fields and parses back to them
    (matrix.names).
    """

    name: str
    family: str
    dtype: str
    hdim_q: int
    hdim_v: int
    mode: str
    tile: Tile
    pipeline: str
    vlayout: str
    pad: str
    logits: bool
    bias: str
    mask: str
    mask_impl: str
    lse: bool
    dropout: bool
    qscale: str
    sink: bool | None = None
    page_size: int | None = None
    load: str | None = None
    kv_layout: str | None = None
    kv_table: str | None = None

    def row(self) -> dict[str, Any]:
        """All fields flat, tile fields as ``tile.bm0``: what exports write, enough to rebuild the key."""
        row: dict[str, Any] = {}
        for name in KEY_FIELDS:
            value = getattr(self, name)
            if isinstance(value, Tile):
                row |= {f"tile.{part}": getattr(value, part) for part in TILE_FIELDS}
            else:
                row[name] = value
        return row


KEY_FIELDS = tuple(field.name for field in dataclasses.fields(Key))
TILE_FIELDS = tuple(field.name for field in dataclasses.fields(Tile))

"""Keys: the names of kernels by signature (the computation) and algorithm (tile, waves, pipeline).

Field names and values are from CK's own codegen, so that ``--where`` reads like upstream's source.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

V3_PIPELINE = "qr_async_trload_v3"
MIXED_DTYPES = ("fp16kvfp8", "bf16kvfp8")  # Q and O in 16 bits, K and V in fp8
FP8_KV_DTYPES = ("fp8bf16", *MIXED_DTYPES)  # of batch prefill, with scales of K and V
SPLIT_PIPELINE = "qr_async_split"
# The words of a key's fields. What renders kernels, chooses them or computes their sizes has to know each.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "dtype": ("fp32", "fp16", "bf16", "fp8", "fp8bf16", "fp8fp32", *MIXED_DTYPES, "mxfp8", "mxfp4"),
    "mode": ("batch", "group"),
    "pipeline": (
        *("qr", "qr_async", "qr_async_trload", V3_PIPELINE, SPLIT_PIPELINE, "qr_hpad", "qr_nwarp_sshuffle"),
        *("qr_pagedkv", "kr_ktr_vr", "kr_ktr_vr_iglp", "unused"),
    ),
    "vlayout": ("row", "col"),
    "pad": (
        *("npad", "ps", "psk", "pd", "pdv", "pddv", "psd", "pskd", "pskdv", "pskddv", "psdv", "psddv", "pssk", "psskd"),
        *("psskdv", "psskddv", "pd1", "pd8", "pdv1", "pdv8", "pd1dv1", "pd1dv8", "pd8dv1", "pd8dv8"),
    ),
    "bias": ("no", "bias", "alibi"),
    "mask": ("no", "mask", "causal", "generic"),
    "mask_impl": ("simplified", "generic"),
    "qscale": ("no", "pertensor", "blockscale", "kv_blockscale", "mx"),
    "load": ("bload", "gload"),
    "kv_layout": ("linear", "vectorized"),
    "kv_table": ("sglang", "vllm"),
    "rope": ("no", "inter", "half"),
    "dropout_impl": ("no", "wg16", "wg16_storerandval"),
    "arch_trait": ("gfx9", "gfx950", "gfx11", "gfx12"),
}
TILE_CONDITIONS = (
    *("always", "few_blocks", "few_blocks_of_64", "few_compute_units", "few_compute_units_guarded"),
    *("few_compute_units_of_gfx942", "max_seqlen_q_below_4096", "seqlen_q_fits", "short_k", "short_q"),
)
ANY_PAGE = 0  # as a page size: each launch gives it, a multiple of PAGE_STEP
PAGE_STEP = 16


def is_v3(pipeline: str) -> bool:
    """Return True for V3: two groups of waves that take turns. Other pipelines are V2's."""
    return pipeline == V3_PIPELINE


def is_split(pipeline: str) -> bool:
    """Return True for V2's pipeline over some of the keys, whose results another kernel combines."""
    return pipeline == SPLIT_PIPELINE


def has_large_head(hdim_q: int) -> bool:
    """Return True for batch prefill's head dims 512 and 576/512."""
    return hdim_q > 256


def has_one_load(pipeline: str, page_size: int | None) -> bool:
    """Return True if a kernel reaches every pool without a load mode: V3, and kernels for pages of any size."""
    return is_v3(pipeline) or page_size == ANY_PAGE


def takes_pages(page_size: int | None, tokens: int) -> bool:
    """Return True if kernels of a key's page size take pages of ``tokens`` tokens. None stands for a page size of 1."""
    if page_size == ANY_PAGE:
        return tokens > 0 and tokens % PAGE_STEP == 0
    return tokens == (page_size or 1)


def example_page(page_size: int | None) -> int:
    """The tokens of a page that kernels of a key's page size take; three steps for ANY_PAGE."""
    return 3 * PAGE_STEP if page_size == ANY_PAGE else page_size or 1


@dataclass(frozen=True, slots=True)
class Tile:
    """A block tile with its wave and MFMA layout; a length that the family doesn't have is 0.

    Forward families (CK's ``TileFmhaShape``): bm0 is kM0 (rows of Q), bn0 kN0 (rows of K), bk0 kK0, bn1 kN1 (columns
    of V), bk1 kK1, bk0max kQKHeaddim. Backward (``TileFmhaBwdShape``): bm0, bn0, then bk0..bk4 along K of its five
    gemms, bhdq and bhdv the head dims, ``max_seq_q`` the longest seqlen_q it serves (0: any). Append-KV: bs, bsk rows
    of Q and K, bd, bdv head dims. r* are waves along m, n, k of gemm 0, 1 (backward: 2), w* the warp tiles;
    ``occupancy`` -1 leaves blocks per CU to the pipeline. ``when`` names the condition under which dispatch takes the
    tile; ``word`` is its part of the kernel's name.
    """

    bm0: int = 0
    bn0: int = 0
    bk0: int = 0
    bn1: int = 0
    bk1: int = 0
    bk0max: int = 0
    rm0: int = 0
    rn0: int = 0
    rk0: int = 0
    rm1: int = 0
    rn1: int = 0
    rk1: int = 0
    wm0: int = 0
    wn0: int = 0
    wk0: int = 0
    wm1: int = 0
    wn1: int = 0
    wk1: int = 0
    bk2: int = 0
    bk3: int = 0
    bk4: int = 0
    bhdq: int = 0
    bhdv: int = 0
    rm2: int = 0
    rn2: int = 0
    rk2: int = 0
    max_seq_q: int = 0
    bs: int = 0
    bsk: int = 0
    bd: int = 0
    bdv: int = 0
    occupancy: int = field(default=-1, kw_only=True)
    when: str = field(default="always", kw_only=True)
    word: str = field(default="", kw_only=True, compare=False)

    def __hash__(self) -> int:  # few fields distinguish nearly all tiles, and keys are made by the ten thousand
        return hash((self.bm0, self.bn0, self.bk0, self.bn1, self.rm0, self.wk0, self.bhdq, self.max_seq_q, self.bd))


@dataclass(frozen=True, slots=True)
class Key:
    """One kernel of a dialect. A field that its family or dialect doesn't have is "", False or None.

    ``name`` is the name in the dialect's grammar. It is derived from the other fields and parses back to them
    (ckpm.matrix.names). ``arch_trait`` is upstream's name for the archs that the kernel is built for. gfx9 means all
    of gfx9, or all but the archs with a trait of their own. The table of a family lists them.
    """

    name: str
    family: str
    dtype: str
    hdim_q: int
    hdim_v: int
    mode: str
    tile: Tile
    pipeline: str = ""
    vlayout: str = ""
    pad: str = ""
    logits: bool = False
    bias: str = ""
    mask: str = ""
    mask_impl: str = ""
    lse: bool = False
    dropout: bool = False
    qscale: str = ""
    sink: bool | None = None
    page_size: int | None = None
    load: str | None = None
    kv_layout: str | None = None
    kv_table: str | None = None
    skip: bool | None = None
    trload: bool | None = None
    paged_kv: bool | None = None
    rope: str | None = None
    dpad: int | None = None
    dvpad: int | None = None
    dbias: bool | None = None
    dropout_impl: str | None = None
    deterministic: bool | None = None
    arch_trait: str = "gfx9"

    def row(self) -> dict[str, Any]:
        """All fields flat, tile fields as ``tile.bm0``, for exports. They suffice to rebuild the key."""
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
TILE_NUMBERS = tuple(name for name in TILE_FIELDS if name not in ("when", "word"))
# of a row of a key
COLUMNS = tuple(
    column for name in KEY_FIELDS for column in ([f"tile.{part}" for part in TILE_FIELDS] if name == "tile" else [name])
)

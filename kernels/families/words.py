"""C++ words that the families share: flags, pads, tiles, the device that code is for, what a dialect's C++ asks for.

The spellings of axis values are in kernels/families/spellings.yaml.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ckpm.base.errors import UsageError
from ckpm.kernels.families.spellings import spellings
from ckpm.matrix.keys import Key, Tile


@dataclass(frozen=True, slots=True)
class Features:
    """What the C++ of an upstream's age asks of the templates.

    With ``own_headers`` the text is for kernels/include_prefill alone: a tree of that age has other classes.
    ``selector_takes_base`` is a property of the tree and not of the dialect: since rocm-libraries pull request 9214,
    fmha_batch_prefill_select_kv_load_mode also takes the V stride and both base addresses.
    """

    paged: bool
    launch_takes_block_size: bool
    trait_names_trload: bool
    own_headers: bool
    selector_takes_base: bool = True


def features(dialect: str, *, selector_takes_base: bool = True) -> Features:
    """What the templates do differently for a dialect. Raises UsageError for one of which only names are known."""
    known = spellings()["dialects"]
    if dialect not in known:
        raise UsageError(
            f"of dialect {dialect} only the kernels' names are known, so there is no C++ to render. "
            f"Dialects with C++: {', '.join(known)}."
        )
    return Features(**known[dialect], selector_takes_base=selector_takes_base)


def flag(value: bool | None) -> str:
    return "true" if value else "false"


@functools.cache
def pad_flags(pad: str) -> tuple[bool, bool, bool, bool]:
    """``psskddv`` -> whether seqlen_q, seqlen_k, hdim_q, hdim_v are padded (kPadSeqLenQ, kPadSeqLenK, kPadHeadDimQ, V).

    ``npad`` is none of them. Raises ValueError for a word that is none.
    """
    match = re.fullmatch(r"p(s)?(sk)?(d)?(dv)?", "p" if pad == "npad" else pad)
    if match is None:
        raise ValueError(f"no padding word: {pad}")
    seqlen_q, seqlen_k, hdim_q, hdim_v = (group is not None for group in match.groups())
    return seqlen_q, seqlen_k, hdim_q, hdim_v


@functools.cache
def pad_words(pad: str) -> Mapping[str, str]:
    """``pads`` as template arguments, and those of them that an epilogue takes, too."""
    spad, skpad, dpad, dvpad = map(flag, pad_flags(pad))
    return {"pads": f"{spad}, {skpad}, {dpad}, {dvpad}", "spad": spad, "dvpad": dvpad}


@functools.cache
def tile_words(tile: Tile) -> Mapping[str, str]:
    """A forward tile (CK's TileFmhaShape): its block, waves and warp tiles of both gemms, blocks per CU."""
    return {
        "occupancy": str(tile.occupancy),
        "block": f"{tile.bm0}, {tile.bn0}, {tile.bk0}, {tile.bn1}, {tile.bk1}, {tile.bk0max}",
        "waves0": f"{tile.rm0}, {tile.rn0}, {tile.rk0}",
        "waves1": f"{tile.rm1}, {tile.rn1}, {tile.rk1}",
        "warp_tile0": f"{tile.wm0}, {tile.wn0}, {tile.wk0}",
        "warp_tile1": f"{tile.wm1}, {tile.wn1}, {tile.wk1}",
    }


def element(key: Key) -> str:
    """The type that names a key's data types."""
    word: str = spellings()["dtype"][key.dtype]["type"]
    return word


def arch_tag(arch_trait: str) -> str:
    return f"ck_tile::{arch_trait}_t"


def device_check(arch_trait: str) -> str:
    """The condition on ``device_name`` under which dispatch looks among an arch trait's kernels."""
    return f'device_name.compare(0, {len(arch_trait)}, "{arch_trait}") == 0'


def guard(key: Key) -> str:
    """Where device code is compiled: on the kernel's own arch trait."""
    return f"defined(__{key.arch_trait}__)"

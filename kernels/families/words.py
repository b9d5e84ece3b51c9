"""C++ spellings that the families share: flags, pads, tiles, arch tags, and the features of a dialect's C++.

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
    """Differences between the C++ of CK's versions that the templates follow.

    With ``own_headers`` the text is for kernels/include_prefill alone: a tree of that version has other classes.
    ``selector_takes_base`` is a property of the tree, not of the dialect: since rocm-libraries pull request 9214,
    fmha_batch_prefill_select_kv_load_mode also takes the V stride and both base addresses.
    """

    paged: bool
    launch_takes_block_size: bool
    trait_names_trload: bool
    own_headers: bool
    selector_takes_base: bool = True


def features(dialect: str, *, selector_takes_base: bool = True) -> Features:
    """Return the features of a dialect. Raises UsageError if only the names of its kernels are known."""
    known = spellings()["dialects"]
    if dialect not in known:
        raise UsageError(
            f"Dialect {dialect} has no C++ to render: only its kernels' names are known. "
            f"Dialects with C++: {', '.join(known)}."
        )
    return Features(**known[dialect], selector_takes_base=selector_takes_base)


def flag(value: bool | None) -> str:
    return "true" if value else "false"


@functools.cache
def pad_flags(pad: str) -> tuple[bool, bool, bool, bool]:
    """Parse a padding such as ``psskddv``: True for each of seqlen_q, seqlen_k, hdim_q and hdim_v that is padded.

    ``npad`` pads none of them. Raises ValueError for an unknown padding.
    """
    match = re.fullmatch(r"p(s)?(sk)?(d)?(dv)?", "p" if pad == "npad" else pad)
    if match is None:
        raise ValueError(f"not a padding: {pad}")
    seqlen_q, seqlen_k, hdim_q, hdim_v = (group is not None for group in match.groups())
    return seqlen_q, seqlen_k, hdim_q, hdim_v


@functools.cache
def pad_words(pad: str) -> Mapping[str, str]:
    """Template arguments of the padding: all four flags, and the two that an epilogue takes."""
    spad, skpad, dpad, dvpad = map(flag, pad_flags(pad))
    return {"pads": f"{spad}, {skpad}, {dpad}, {dvpad}", "spad": spad, "dvpad": dvpad}


@functools.cache
def tile_words(tile: Tile) -> Mapping[str, str]:
    """Template arguments of a forward tile (CK's TileFmhaShape): occupancy; block, waves, warp tiles of both gemms."""
    return {
        "occupancy": str(tile.occupancy),
        "block": f"{tile.bm0}, {tile.bn0}, {tile.bk0}, {tile.bn1}, {tile.bk1}, {tile.bk0max}",
        "waves0": f"{tile.rm0}, {tile.rn0}, {tile.rk0}",
        "waves1": f"{tile.rm1}, {tile.rn1}, {tile.rk1}",
        "warp_tile0": f"{tile.wm0}, {tile.wn0}, {tile.wk0}",
        "warp_tile1": f"{tile.wm1}, {tile.wn1}, {tile.wk1}",
    }


def element(key: Key) -> str:
    """The C++ type that names a key's data types."""
    word: str = spellings()["dtype"][key.dtype]["type"]
    return word


def arch_tag(arch_trait: str) -> str:
    return f"ck_tile::{arch_trait}_t"


def device_check(arch_trait: str) -> str:
    """The condition on ``device_name`` under which dispatch looks among an arch trait's kernels."""
    return f'device_name.compare(0, {len(arch_trait)}, "{arch_trait}") == 0'


def guard(key: Key) -> str:
    """The preprocessor condition of device code: the kernel's own arch trait."""
    return f"defined(__{key.arch_trait}__)"

"""Parts that the three backward families share: their chain, their types, their preprocessor conditions.

A backward pass is dot_do_o (D, the sums of dO * O), dq_dk_dv (the gradients), and convert_dq (dQ from its float32
accumulator), in this order. A kernel of dq_dk_dv determines the other two: they must have its head dim, data type and
mode, and pad what it pads. Source: FmhaBwdApiTrait of codegen/ops/fmha_bwd.py.
"""

from __future__ import annotations

from ckpm.kernels.families.spellings import spellings
from ckpm.kernels.families.words import arch_tag, flag, guard
from ckpm.matrix.keys import Key, Tile

ROWS = 64  # of Q in a block of the first and the last stage, whatever the tile of the second
DOT_DO_O = "bwd_dot_do_o"
DQ_DK_DV = "bwd_dq_dk_dv"
CONVERT_DQ = "bwd_convert_dq"


def element(key: Key) -> str:
    """The C++ type that names a key's data types."""
    word: str = spellings()["bwd_dtype"][key.dtype]
    return word


def common(key: Key, space: str, trait: str) -> dict[str, str]:
    """Substitutions of any instance; ``space`` is the namespace of its aliases."""
    own = "defined(__gfx9__) && !defined(__gfx950__)" if key.arch_trait == "gfx9" else guard(key)
    return {
        "space": space,
        "name": key.name,
        "guard": own,
        "tag": arch_tag(key.arch_trait),
        "trait": trait,
        "hdim": str(key.hdim_q),
        "element": element(key),
        "group_mode": flag(key.mode == "group"),
        "occupancy": str(occupancy(key.tile)),
    }


def occupancy(tile: Tile) -> int:
    """Blocks per CU. The names of the first and the last stage always contain 2, which is not part of their tile."""
    return tile.occupancy if tile.bhdq else 2


def trait_start(key: Key) -> str:
    """The first template arguments of all traits of these families."""
    return f"{key.hdim_q}, {element(key)}, {flag(key.mode == 'group')}"


def chain_key(key: Key) -> tuple[object, ...]:
    """The axes on which all kernels of a chain agree, besides padding."""
    return key.arch_trait, key.dtype, key.hdim_q, key.mode


def spads(key: Key) -> tuple[bool, ...]:
    """The possible row paddings of the stages beside a kernel of dq_dk_dv, in the order of dispatch.

    Stages for whole blocks come first. They are left out where no launch has whole blocks.
    """
    return (True,) if key.mode == "group" or 0 < key.tile.max_seq_q < ROWS else (False, True)

"""What the three backward families have in common: their place in a chain, their types, where they are compiled.

A backward pass is dot_do_o (D, the sums of dO * O), dq_dk_dv (the gradients), and convert_dq (dQ from its float32
accumulator), in this order. A kernel of the second leads to the others: they must be of its head dim, data type and
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
    """The type that names a key's data types."""
    word: str = spellings()["bwd_dtype"][key.dtype]
    return word


def common(key: Key, space: str, trait: str) -> dict[str, str]:
    """The words of any instance; ``space`` is the namespace of its aliases."""
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
    """Blocks per CU; the names of the first and the last stage always say 2, which is no part of their tile."""
    return tile.occupancy if tile.bhdq else 2


def trait_start(key: Key) -> str:
    """What all traits of these families begin with."""
    return f"{key.hdim_q}, {element(key)}, {flag(key.mode == 'group')}"


def place(key: Key) -> tuple[object, ...]:
    """What the kernels of a chain have in common besides what they pad."""
    return key.arch_trait, key.dtype, key.hdim_q, key.mode


def spads(key: Key) -> tuple[bool, ...]:
    """Whether the stages beside a kernel of dq_dk_dv may pad rows of Q, in the order of dispatch.

    Those for whole blocks are tried first, and left out where a launch has none.
    """
    return (True,) if key.mode == "group" or 0 < key.tile.max_seq_q < ROWS else (False, True)

"""Parts that the three backward families share: their chain, types, preprocessor conditions, launches to try.

A backward pass is dot_do_o (D, the sums of dO * O), dq_dk_dv (the gradients), and convert_dq (dQ from its float32
accumulator), in this order. A kernel of dq_dk_dv determines the other two: they must have its head dim, data type and
mode, and pad what it pads. Source: FmhaBwdApiTrait of codegen/ops/fmha_bwd.py.

Each launch is a whole chain. A kernel of dq_dk_dv is reached by lengths and head dims that it pads, or that are short
enough for its tile. A kernel of another stage is reached through a kernel of dq_dk_dv that it serves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ckpm.kernels.families.family import Scenario
from ckpm.kernels.families.kernel_problems import MASKS, MOST
from ckpm.kernels.families.spellings import Features, arch_tag, flag, guard, pad_flags, spellings
from ckpm.matrix.keys import Key, Tile
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.sessions import FAMILY_SUITE

_ANY = 1  # a head dim's padding: any length, against multiples of 8
_SHORT_K = 256  # keys up to which some tiles of gfx950 are taken
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


def choices(key: Key, features: Features) -> dict[str, object]:
    """Values that the templates of all stages ask for before they are filled for a key."""
    return {"d": features}


def chain_key(key: Key) -> tuple[object, ...]:
    """The axes on which all kernels of a chain agree, besides padding."""
    return key.arch_trait, key.dtype, key.hdim_q, key.mode


def spads(key: Key) -> tuple[bool, ...]:
    """The possible row paddings of the other stages of a kernel of dq_dk_dv, in the order of dispatch.

    Stages for whole blocks come first. They are left out where no launch has whole blocks.
    """
    return (True,) if key.mode == "group" or 0 < key.tile.max_seq_q < ROWS else (False, True)


def not_laid_out(key: Key) -> str | None:
    """Return what the kernel needs that no launch here provides; None if it can run."""
    if key.dtype not in ("fp16", "bf16"):
        return f"tolerances of {key.dtype}"
    if (key.mask, key.bias) == ("generic", "alibi"):
        return "ALiBi with a window of neither corner"
    return None


def gradient_scenarios(key: Key, keys: Sequence[Key]) -> tuple[Scenario, ...]:
    """One scenario for each mask of a kernel of dq_dk_dv."""
    return tuple(
        Scenario(label=label, candidates=tuple(itertools.islice(_candidates(key, mask, (True, False)), MOST)))
        for label, mask in MASKS[key.mask].items()
    )


def through(serves: Callable[[Key, Key], bool], key: Key, keys: Sequence[Key]) -> tuple[Scenario, ...]:
    """Scenarios of the first kernels of dq_dk_dv that the kernel of ``key`` serves."""
    spad, *_ = pad_flags(key.pad)
    served = (main for main in keys if main.family == DQ_DK_DV and serves(key, main))
    runnable = [main for main in served if spad in spads(main) and not not_laid_out(main)]
    some = [main for main in runnable if main.mask == "no"] or runnable
    requests = itertools.chain.from_iterable(
        itertools.islice(_candidates(main, next(iter(MASKS[main.mask].values())), (spad,)), 2) for main in some
    )
    candidates = tuple(itertools.islice(requests, MOST))
    return (Scenario(label="in a chain", candidates=candidates),) if candidates else ()


def _candidates(key: Key, mask: Mapping[str, Any], padded: Iterable[bool]) -> Iterable[SuiteCase]:
    """Launches for a kernel of dq_dk_dv; ``padded``: with rows of Q that aren't whole blocks, or are."""
    for spad, hdims, keys in itertools.product(padded, _head_dims(key), _keys(key)):
        yield _problem(key, hdims, _queries(key, spad), keys, mask)


def _queries(key: Key, spad: bool) -> int:
    if key.tile.max_seq_q:
        return key.tile.max_seq_q - 3
    return ROWS + 9 if spad else 2 * ROWS


def _keys(key: Key) -> tuple[int, ...]:
    """Numbers of keys: more than a tile, not whole; then more than the tiles for few keys take."""
    few = min(key.tile.bn0 + 37, _SHORT_K)
    return (few, _SHORT_K + 21) if few < _SHORT_K else (_SHORT_K + 21,)


def _head_dims(key: Key) -> tuple[tuple[int, int], ...]:
    """Head dims: the smallest that the kernel's padding allows, then the tile's."""
    return ((_smaller(key.hdim_q, key.dpad), _smaller(key.hdim_v, key.dvpad)),)


def _smaller(hdim: int, pad: int | None) -> int:
    """A head dim smaller by one vector if the kernel pads vectors, by less if it takes any length."""
    return hdim - 3 if pad == _ANY else hdim - (pad or 0)


def _problem(key: Key, hdims: tuple[int, int], seqlen_q: int, seqlen_k: int, mask: Mapping[str, Any]) -> SuiteCase:
    """Two sequences, of two lengths in group mode."""
    group = key.mode == "group"
    fields: dict[str, Any] = {
        "mode": key.mode, "dtype": key.dtype, "hdim_q": hdims[0], "hdim_v": hdims[1], "nhead_q": 2, "nhead_k": 1,
        "seqlens_q": (seqlen_q, seqlen_q // 2 if group else seqlen_q),
        "seqlens_k": (seqlen_k, seqlen_k // 2 + 3 if group else seqlen_k),
        "bias": key.bias, "alibi_per_batch": True, "p_drop": 0.25 if key.dropout else 0.0, "seed": 7,
        "store_randval": str(key.dropout_impl).endswith("storerandval"), "dbias": bool(key.dbias),
        "deterministic": bool(key.deterministic),
    }  # fmt: skip
    return SuiteCase(
        name=f"{FAMILY_SUITE}/{key.name}", suite=FAMILY_SUITE, tier="full", group=key.family, family=key.family,
        **{**fields, **mask},
    )  # fmt: skip

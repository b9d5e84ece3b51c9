"""bwd_convert_dq: dQ in the kernels' data type, from the float32 accumulators of dq_dk_dv. Its keys as C++.

The order of template arguments is CK's own (fmha_bwd_convert_dq_traits_ in fmha_bwd.hpp). The dispatch of all stages is
bwd_dq_dk_dv's.
"""

from __future__ import annotations

import functools
import re

from ckpm.kernels.families import symbol_spellings
from ckpm.kernels.families.backward import shared_spellings as shared
from ckpm.kernels.families.backward.shared_spellings import not_laid_out, through
from ckpm.kernels.families.family import KernelFamily, Values
from ckpm.kernels.families.spellings import Features, flag, pad_flags
from ckpm.matrix.keys import Key

NAME = shared.CONVERT_DQ


def chain_key(key: Key) -> tuple[object, ...]:
    """The axes on which a kernel agrees with the kernels of dq_dk_dv that it serves, and with the launch."""
    spad, _, dpad, _ = pad_flags(key.pad)
    return (*shared.chain_key(key), spad, dpad, key.deterministic, key.tile.bn0)


def chain_key_of(main: Key, spad: bool, *, counts_tiles: bool = True) -> tuple[object, ...] | None:
    """:func:`chain_key` of the kernel that runs after a kernel of dq_dk_dv, with rows of Q padded or in whole blocks.

    A deterministic kernel has an accumulator for each of its tiles of keys, which this stage adds up; until 2026 it
    ``counts_tiles`` by a template argument. None if dQ needs no conversion: a kernel for short seqlen_q computes it
    whole.
    """
    if main.tile.max_seq_q:
        return None
    splits = main.tile.bn0 if main.deterministic and counts_tiles else 0
    return (*shared.chain_key(main), spad, bool(main.dpad), main.deterministic, splits)


def serves(key: Key, main: Key) -> bool:
    """True if a kernel is a stage of a launch with this kernel of dq_dk_dv."""
    counts_tiles = bool(key.tile.bn0)
    return any(chain_key_of(main, spad, counts_tiles=counts_tiles) == chain_key(key) for spad in shared.spads(main))


def substitutions(key: Key, features: Features, space: str) -> dict[str, str]:
    spad, _, dpad, _ = pad_flags(key.pad)
    keys = "" if features.bwd_workspace else f"{key.tile.bn0}, "
    own = {"spad": flag(spad), "dpad": flag(dpad), "rows": str(key.tile.bm0), "keys": keys}
    return {**shared.common(key, space, trait(key, features)), **own, "deterministic": flag(key.deterministic)}


def trait(key: Key, features: Features) -> str:
    """The C++ type that connects dispatch and instance, besides the arch tag."""
    spad, _, dpad, _ = pad_flags(key.pad)
    return (
        f"fmha_bwd_convert_dq_traits_<{shared.trait_start(key)}, {flag(spad)}, {flag(dpad)}, "
        f"{flag(key.deterministic)}{'' if features.bwd_workspace else f', {key.tile.bn0}'}>"
    )


def symbol(values: Values) -> re.Pattern[str]:
    """The pattern of a kernel's symbol. Element types come first, the same for all kernels of a unit."""
    spad, _, dpad, _ = pad_flags(values["pad"])
    boolean, tile = symbol_spellings.boolean, values["tile"]
    keys = rf"Li{tile.bn0}E" if tile.bn0 else "(?:Li0E)?"
    problem = (
        rf"Li256ELi{tile.bm0}E{keys}Li{values['hdim_q']}E{boolean(values['mode'] == 'group')}"
        rf"{boolean(values['deterministic'])}"
    )
    return re.compile(
        rf"FmhaBwdConvertQGradKernelI.*?ProblemI\w+?{problem}\w+?QGradTraitsI{boolean(spad)}{boolean(dpad)}Li2E"
    )


FAMILY = KernelFamily(
    name=NAME,
    library=shared.DQ_DK_DV,
    serves=serves,
    substitutions=substitutions,
    instance="bwd_convert_dq_instance.hip.j2",
    choices=shared.choices,
    unit="bwd_unit.hip.j2",
    symbol=symbol,
    scenarios=functools.partial(through, serves),
    not_laid_out=not_laid_out,
)

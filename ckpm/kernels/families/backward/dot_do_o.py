"""bwd_dot_do_o: D, the sum of dO * O of each row, which dq_dk_dv subtracts. Its keys as C++.

The order of template arguments is CK's own (fmha_bwd_dot_do_o_traits_ in fmha_bwd.hpp). The dispatch of all stages is
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

NAME = shared.DOT_DO_O


def chain_key(key: Key) -> tuple[object, ...]:
    """The axes on which a kernel agrees with the kernels of dq_dk_dv that it serves, and with the launch."""
    spad, _, _, dvpad = pad_flags(key.pad)
    return (*shared.chain_key(key), spad, dvpad)


def chain_key_of(main: Key, spad: bool) -> tuple[object, ...]:
    """:func:`chain_key` of the kernel that runs before a kernel of dq_dk_dv, with rows of Q padded or whole blocks."""
    return (*shared.chain_key(main), spad, bool(main.dvpad))


def serves(key: Key, main: Key) -> bool:
    """True if a kernel is a stage of a launch with this kernel of dq_dk_dv."""
    return any(chain_key_of(main, spad) == chain_key(key) for spad in shared.spads(main))


def substitutions(key: Key, features: Features, space: str) -> dict[str, str]:
    spad, _, _, dvpad = pad_flags(key.pad)
    lse = "Types::LSEDataType, " if features.bwd_workspace else ""
    own = {"spad": flag(spad), "dvpad": flag(dvpad), "rows": str(key.tile.bm0), "lse": lse}
    return {**shared.common(key, space, trait(key)), **own}


def trait(key: Key) -> str:
    """The C++ type that connects dispatch and instance, besides the arch tag."""
    spad, _, _, dvpad = pad_flags(key.pad)
    return f"fmha_bwd_dot_do_o_traits_<{shared.trait_start(key)}, {flag(spad)}, {flag(dvpad)}>"


def symbol(values: Values) -> re.Pattern[str]:
    """The pattern of a kernel's symbol. Element types come first, the same for all kernels of a unit."""
    spad, _, _, dvpad = pad_flags(values["pad"])
    boolean = symbol_spellings.boolean
    problem = rf"Li{values['tile'].bm0}ELi{values['hdim_v']}E{boolean(values['mode'] == 'group')}"
    return re.compile(
        rf"FmhaBwdOGradDotOKernelI.*?ProblemI\w+?{problem}\w+?DotOTraitsI{boolean(spad)}{boolean(dvpad)}Li2E"
    )


FAMILY = KernelFamily(
    name=NAME,
    library=shared.DQ_DK_DV,
    serves=serves,
    substitutions=substitutions,
    instance="bwd_dot_do_o_instance.hip.j2",
    choices=shared.choices,
    unit="bwd_unit.hip.j2",
    symbol=symbol,
    scenarios=functools.partial(through, serves),
    not_laid_out=not_laid_out,
)

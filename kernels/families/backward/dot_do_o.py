"""bwd_dot_do_o: D, the sum of dO * O of each row, which dq_dk_dv subtracts. Its keys in C++ words.

The order of template arguments is CK's own (fmha_bwd_dot_do_o_traits_ in fmha_bwd.hpp). The dispatch of all stages is
bwd_dq_dk_dv's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ckpm.kernels.families import symbol_words
from ckpm.kernels.families.backward import words as shared
from ckpm.kernels.families.backward.problems import not_laid_out, through
from ckpm.kernels.families.family import Family, Scenario, Values
from ckpm.kernels.families.words import Features, flag, pad_flags
from ckpm.matrix.keys import Key

NAME = shared.DOT_DO_O


def place(key: Key) -> tuple[object, ...]:
    """What a kernel has in common with those of dq_dk_dv that it serves, and with the launch."""
    spad, _, _, dvpad = pad_flags(key.pad)
    return (*shared.place(key), spad, dvpad)


def place_of(main: Key, spad: bool) -> tuple[object, ...]:
    """:func:`place` of the kernel that goes before a kernel of dq_dk_dv, with rows of Q padded or in whole blocks."""
    return (*shared.place(main), spad, bool(main.dvpad))


def serves(key: Key, main: Key) -> bool:
    """Whether a kernel is a stage of a launch with one of dq_dk_dv."""
    return any(place_of(main, spad) == place(key) for spad in shared.spads(main))


def words(key: Key, features: Features, space: str) -> dict[str, str]:
    spad, _, _, dvpad = pad_flags(key.pad)
    own = {"spad": flag(spad), "dvpad": flag(dvpad), "rows": str(key.tile.bm0)}
    return {**shared.common(key, space, trait(key)), **own}


def trait(key: Key) -> str:
    """The type by which dispatch and instance find each other, besides the arch tag."""
    spad, _, _, dvpad = pad_flags(key.pad)
    return f"fmha_bwd_dot_do_o_traits_<{shared.trait_start(key)}, {flag(spad)}, {flag(dvpad)}>"


def symbol(values: Values) -> re.Pattern[str]:
    """What a kernel's symbol contains, in order. Element types come first, the same for all kernels of a unit."""
    spad, _, _, dvpad = pad_flags(values["pad"])
    boolean = symbol_words.boolean
    problem = rf"Li{values['tile'].bm0}ELi{values['hdim_v']}E{boolean(values['mode'] == 'group')}"
    return re.compile(
        rf"FmhaBwdOGradDotOKernelI.*?ProblemI\w+?{problem}\w+?DotOTraitsI{boolean(spad)}{boolean(dvpad)}Li2E"
    )


def scenarios(key: Key, keys: Sequence[Key]) -> tuple[Scenario, ...]:
    """Before a kernel of dq_dk_dv that it serves."""
    return through(key, [one for one in keys if one.family == shared.DQ_DK_DV and serves(key, one)])


FAMILY = Family(
    name=NAME,
    library=shared.DQ_DK_DV,
    serves=serves,
    words=words,
    instance="bwd_dot_do_o_instance.hip.j2",
    unit="bwd_unit.hip.j2",
    symbol=symbol,
    scenarios=scenarios,
    not_laid_out=not_laid_out,
)

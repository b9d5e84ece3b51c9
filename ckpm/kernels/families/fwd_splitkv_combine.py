"""fwd_splitkv_combine: the second stage of split-KV, which joins the splits. Its keys as C++.

The order of template arguments is CK's own (fmha_fwd_splitkv_combine_traits_ in fmha_fwd.hpp). The dispatch of both
stages is fwd_splitkv's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ckpm.kernels.families import fwd_spellings, symbol_spellings
from ckpm.kernels.families.family import KernelFamily, Scenario, Values
from ckpm.kernels.families.kernel_problems import MASKS, MOST, candidates, first, not_laid_out
from ckpm.kernels.families.spellings import Features, flag, pad_flags, pad_words
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import SuiteCase

NAME = "fwd_splitkv_combine"
FIRST_STAGE = "fwd_splitkv"
# The stage is compiled once for each size of its array of scales: up to 8, 16, 32, 64 and 128 splits.
_SPLITS = (3, 9, 17, 33, 65)


def chain_key(key: Key) -> tuple[object, ...]:
    """The axes on which a kernel of fwd_splitkv and its combine kernels agree."""
    spad, _, _, dvpad = pad_flags(key.pad)
    return key.arch_trait, key.dtype, key.hdim_q, key.mode, key.qscale, spad, dvpad


def substitutions(key: Key, features: Features, space: str) -> dict[str, str]:
    return fwd_spellings.common(key, space, trait(key))


def trait(key: Key) -> str:
    """The C++ type that connects dispatch and instance, besides the arch tag."""
    pads = pad_words(key.pad)
    return (
        f"fmha_fwd_splitkv_combine_traits_<{fwd_spellings.trait_start(key)}, {key.tile.bn1}, {flag(key.lse)}, "
        f"{fwd_spellings.squant(key)}, {pads['spad']}, {pads['dvpad']}>"
    )


def symbol(values: Values) -> re.Pattern[str]:
    """The pattern of the symbols of a key's kernels. They differ in the bound of the number of splits."""
    spad, _, _, dvpad = pad_flags(values["pad"])
    boolean = symbol_spellings.boolean
    problem = rf"Li{values['hdim_q']}E{boolean(values['mode'] == 'group')}Li{values['tile'].bn1}E"
    traits = rf"{boolean(spad)}{boolean(dvpad)}{boolean(values['lse'])}{symbol_spellings.squant(values)}Li[3-7]E"
    return re.compile(rf"FmhaFwdSplitKVCombineKernelI.*?ProblemI\w+?{problem}\w+?CombineTraitsI{traits}")


def scenarios(key: Key, keys: Sequence[Key]) -> tuple[Scenario, ...]:
    """Launches of a first stage that this kernel serves, with each range of splits."""
    mains = [main for main in keys if main.family == FIRST_STAGE and chain_key(main) == chain_key(key)]
    served = [main for main in mains if not not_laid_out(main)]
    some = [main for main in served if main.mask == "no"][:2] or served[:2]
    return tuple(
        Scenario(label=f"{splits} splits", candidates=requests)
        for splits in _SPLITS
        if (requests := first(_through(some, key.lse, splits)))
    )


def _through(stages: Iterable[Key], lse: bool, splits: int) -> Iterable[SuiteCase]:
    for key in stages:
        changes = {**next(iter(MASKS[key.mask].values())), "lse": lse}
        yield from candidates(key, changes, splits=splits)[: MOST // 2]


FAMILY = KernelFamily(
    name=NAME,
    library=FIRST_STAGE,
    serves=lambda key, main: chain_key(key) == chain_key(main),
    substitutions=substitutions,
    instance="combine_instance.hip.j2",
    symbol=symbol,
    variants=lambda values, arch: 5,  # see templates/combine_instance.hip.j2
    scenarios=scenarios,
    not_laid_out=not_laid_out,
)

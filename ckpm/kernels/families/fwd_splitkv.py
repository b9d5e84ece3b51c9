"""fwd_splitkv: attention whose keys are split among workgroups. Its keys as C++; the dispatch of both stages.

The order of template arguments is CK's own (fmha_fwd_splitkv_traits_ in fmha_fwd.hpp).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ckpm.base.errors import UsageError
from ckpm.kernels.abi import FwdArguments
from ckpm.kernels.families import fwd_spellings, symbol_spellings
from ckpm.kernels.families import fwd_splitkv_combine as combine
from ckpm.kernels.families.family import Host, KernelFamily, Scenario, Values
from ckpm.kernels.families.fwd_spellings import by_device, harness_text, nest
from ckpm.kernels.families.kernel_problems import MASKS, attention_scenarios, candidates, not_laid_out
from ckpm.kernels.families.spellings import Features, arch_tag, fill, flag, occupancy, pad_flags, pad_words, sink
from ckpm.matrix.keys import Key

NAME = "fwd_splitkv"
_PIPELINES = "splitkv_pipeline"
_SPLITS = 3


def merges(hdim_q: int, bias: str, mask: str) -> bool:
    """True if such a key also has kernels that merge the heads of one KV head into Q's rows."""
    return hdim_q == 128 and bias == mask == "no"


def substitutions(key: Key, features: Features, space: str) -> dict[str, str]:
    return fwd_spellings.attention(key, space, trait(key, features), _PIPELINES, features)


def choices(key: Key, features: Features) -> Mapping[str, object]:
    return {"batch": key.mode == "batch", "merges": merges(key.hdim_q, key.bias, key.mask)}


def trait(key: Key, features: Features) -> str:
    """The C++ type that connects dispatch and instance, besides the arch tag."""
    return (
        f"fmha_fwd_splitkv_traits_<{fwd_spellings.attention_start(key, _PIPELINES)}, {fwd_spellings.squant(key)}, "
        f"{flag(key.paged_kv)}{sink(key, features)}, {pad_words(key.pad)['pads']}{occupancy(key, features)}>"
    )


def conditions(key: Key, features: Features) -> tuple[str, ...]:
    """The conditions of a request for a kernel besides device, dtype and head dims."""
    own = (f"(a.block_table_ptr != nullptr) == {flag(key.paged_kv)}",)
    return fwd_spellings.attention_conditions(key, own, ("a.seqlen_k_ptr == nullptr",), features)


def dispatch_text(keys: Sequence[Key], features: Features) -> str:
    """The host dispatch over keys of both stages, each in upstream's order of emission for each arch trait."""
    ordered = by_device(keys)
    first = [key for key in ordered if key.family == NAME]
    second = [key for key in ordered if key.family == combine.NAME]
    combines: dict[tuple[object, ...], dict[bool, str]] = {}
    for key in second:
        combines.setdefault(combine.chain_key(key), {})[key.lse] = combine.trait(key)
    arms = []
    for key in first:
        own = combines.get(combine.chain_key(key))
        if own is None:
            raise UsageError(f"{key.name}: no combine kernel that serves it is selected. Widen --filter or --where.")
        by_lse = {lse: own.get(lse, "") for lse in (True, False)}
        condition = " && ".join(conditions(key, features))
        arms.append((key, (trait(key, features), arch_tag(key.arch_trait), condition, by_lse)))
    names = [key.name for key in (*first, *second)]
    return fill("splitkv_dispatch.hip.j2", archs=nest(arms), names=names)


def symbol(values: Values) -> re.Pattern[str]:
    """The pattern of the symbols of a key's kernels.

    The parts that follow differ: uneven splits, merged heads.
    """
    traits = (
        symbol_spellings.traits(values) + symbol_spellings.squant(values) + symbol_spellings.boolean(values["paged_kv"])
    )
    if values.get("sink") is not None:
        traits += f"Lb[01]ELb[01]ELi{symbol_spellings.number(values['tile'].occupancy)}E{symbol_spellings.sink(values)}"
    return symbol_spellings.attention(values, rf"FmhaFwdSplitKVKernelI.*?{symbol_spellings.shape(values)}", traits)


def variants(values: Values, arch: str) -> int:
    """Number of kernels of a key, as templates/splitkv_instance.hip.j2 compiles them."""
    merged = merges(values["hdim_q"], values["bias"], values["mask"])
    return (2 if values["mode"] == "batch" else 1) * (2 if merged else 1)


def scenarios(key: Key, keys: Sequence[Key]) -> tuple[Scenario, ...]:
    """Launches with each of the key's masks, with splits of whole tiles, and with merged heads.

    LSE depends on the combine stage, and there may be only a combine kernel without it.
    """
    chain = combine.chain_key(key)
    lse = any(stage.lse for stage in keys if stage.family == combine.NAME and combine.chain_key(stage) == chain)
    listed = list(attention_scenarios(key, lse=lse, splits=_SPLITS))
    changes = {**next(iter(MASKS[key.mask].values())), "lse": lse}
    if key.mode == "batch" and not key.paged_kv:
        even = candidates(key, changes, splits=2, seqlens_k=(4 * key.tile.bn0,))
        listed.append(Scenario(label="even splits", candidates=even))
    padded, *_ = pad_flags(key.pad)
    if merges(key.hdim_q, key.bias, key.mask) and (padded or key.mode == "group"):
        heads = {**changes, "nhead_q": 4, "nhead_k": 2}
        merged = candidates(key, heads, splits=_SPLITS, only_seqlens_q=(1,))
        listed.append(Scenario(label="merged heads", candidates=merged))
    return tuple(listed)


FAMILY = KernelFamily(
    name=NAME,
    substitutions=substitutions,
    instance="splitkv_instance.hip.j2",
    choices=choices,
    symbol=symbol,
    variants=variants,
    host=Host(
        dispatch=dispatch_text,
        dialects=fwd_spellings.dialects,
        harness=lambda dialect, features: harness_text(dialect, NAME, features, pages=True, splits=True),
        arguments=FwdArguments,
        functions=("fmha_fwd_splitkv_oneshot_", "fmha_fwd_splitkv_combine_oneshot_"),
        several=True,
        # waves of the combine kernel beyond those that its LSE tile needs write the same numbers to the same places in
        # LDS (Replicate in block_fmha_fwd_splitkv_combine_pipeline_default_policy.hpp)
        races=False,
    ),
    scenarios=scenarios,
    not_laid_out=not_laid_out,
)

"""fwd_pagedkv: attention over a paged KV cache, in one stage. Its keys as C++, its dispatch, its library.

The order of template arguments is CK's own (fmha_fwd_pagedkv_traits_ in fmha_fwd.hpp).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ckpm.kernels.abi import FwdArguments
from ckpm.kernels.families import fwd_spellings, kernel_problems, symbol_spellings
from ckpm.kernels.families.family import Host, KernelFamily, Scenario, Values
from ckpm.kernels.families.fwd_spellings import by_device, harness_text, one_stage
from ckpm.kernels.families.spellings import Features, flag, occupancy, pad_words, sink
from ckpm.matrix.keys import Key

NAME = "fwd_pagedkv"
_PIPELINES = "pagedkv_pipeline"


def substitutions(key: Key, features: Features, space: str) -> dict[str, str]:
    return fwd_spellings.attention(key, space, trait(key, features), _PIPELINES, features)


def trait(key: Key, features: Features) -> str:
    """The C++ type that connects dispatch and instance, besides the arch tag."""
    return (
        f"fmha_fwd_pagedkv_traits_<{fwd_spellings.attention_start(key, _PIPELINES)}, {flag(key.paged_kv)}, "
        f"{fwd_spellings.squant(key)}, {pad_words(key.pad)['pads']}, {flag(key.skip)}"
        f"{sink(key, features)}{occupancy(key, features)}>"
    )


def conditions(key: Key, features: Features) -> tuple[str, ...]:
    """The conditions of a request for a kernel besides device, dtype and head dims."""
    own = (
        f"t.has_lse == {flag(key.lse)}",
        f"t.use_pagedkv == {flag(key.paged_kv)}",
        f"t.skip_min_seqlen_q == {flag(key.skip)}",
    )
    return fwd_spellings.attention_conditions(key, own, ("a.seqlen_k_ptr == nullptr",), features)


def dispatch_text(keys: Sequence[Key], features: Features) -> str:
    """The host dispatch over ``keys``, which must be in upstream's order of emission for each arch trait."""
    return one_stage(
        by_device(keys),
        function="fmha_fwd_pagedkv",
        trait=lambda key: trait(key, features),
        conditions=lambda key: conditions(key, features),
        by_reference=True,
        counts_units=False,
    )


def symbol(values: Values) -> re.Pattern[str]:
    """The pattern of a kernel's symbol."""
    traits = (
        f"{symbol_spellings.traits(values)}{symbol_spellings.boolean(values['paged_kv'])}{symbol_spellings.squant(values)}"
        f"Li{symbol_spellings.number(values['tile'].occupancy)}E{symbol_spellings.boolean(values['skip'])}"
        f"{symbol_spellings.sink(values)}"
    )
    return symbol_spellings.attention(values, rf"FmhaFwdPagedKVKernelI.*?{symbol_spellings.shape(values)}", traits)


def not_laid_out(key: Key) -> str | None:
    return kernel_problems.not_laid_out(key) or (None if key.paged_kv else "a cache without pages")


def scenarios(key: Key, keys: Sequence[Key]) -> tuple[Scenario, ...]:
    """Launches with each of the key's masks."""
    return kernel_problems.attention_scenarios(key, lse=key.lse)


FAMILY = KernelFamily(
    name=NAME,
    substitutions=substitutions,
    instance="pagedkv_instance.hip.j2",
    symbol=symbol,
    host=Host(
        dispatch=dispatch_text,
        dialects=fwd_spellings.dialects,
        harness=lambda dialect, features: harness_text(dialect, NAME, features, pages=True),
        arguments=FwdArguments,
        functions=("fmha_fwd_pagedkv_",),
    ),
    scenarios=scenarios,
    not_laid_out=not_laid_out,
)

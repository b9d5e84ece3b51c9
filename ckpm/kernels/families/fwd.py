"""fwd: attention over contiguous tensors. Its keys as C++, its dispatch, its library.

The order of template arguments is CK's own (fmha_fwd_traits_ in fmha_fwd.hpp).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ckpm.kernels.abi import FwdArguments
from ckpm.kernels.families import fwd_spellings, symbol_spellings
from ckpm.kernels.families import spellings as cpp
from ckpm.kernels.families.family import Host, KernelFamily, Scenario, Values
from ckpm.kernels.families.fwd_spellings import by_device, harness_text, one_stage
from ckpm.kernels.families.kernel_problems import attention_scenarios, not_laid_out, queries
from ckpm.kernels.families.spellings import Features, flag, pad_words
from ckpm.matrix.keys import Key, is_v3

NAME = "fwd"
_PIPELINES = "fwd_pipeline"
_SYMBOLS = {
    "qr": "BlockFmhaPipelineQRKSVS",
    "qr_async": "BlockFmhaPipelineQRKSVSAsync",
    "qr_async_trload": "BlockFmhaPipelineQRKSVSAsyncTrload",
    "qr_async_trload_v3": "BlockFmhaFwdV3Pipeline",
}


def substitutions(key: Key, features: Features, space: str) -> dict[str, str]:
    """gfx950 has fwd kernels of its own, so the kernels for gfx9 have no device code for gfx950."""
    v3 = is_v3(key.pipeline)
    return {
        **fwd_spellings.attention(key, space, trait(key, features), _PIPELINES, features),
        "guard": "defined(__gfx9__) && !defined(__gfx950__)" if key.arch_trait == "gfx9" else cpp.guard(key),
        "scale": _scale(key, features),
        "buffering": ", false, false" if features.problem_names_buffering else "",
        "kernel": "FmhaFwdV3Kernel" if v3 else "FmhaFwdKernel",
        "arguments": "fmha_fwd_v3" if v3 else "fmha_fwd",
    }


def _scale(key: Key, features: Features) -> str:
    """The template argument of scales: an enumerator since 2026, before that ``true`` for one of each tensor."""
    return cpp.spellings()["qscale"][key.qscale]["enum"] if features.names_sink else fwd_spellings.squant(key)


def trait(key: Key, features: Features) -> str:
    """The C++ type that connects dispatch and instance, besides the arch tag."""
    return (
        f"fmha_fwd_traits_<{fwd_spellings.attention_start(key, _PIPELINES)}, {flag(key.dropout)}, "
        f"{_scale(key, features)}, {pad_words(key.pad)['pads']}, {flag(key.trload)}, {flag(key.skip)}"
        f"{cpp.sink(key, features)}{cpp.occupancy(key, features)}>"
    )


def conditions(key: Key, features: Features, largest_bm0: int) -> tuple[str, ...]:
    """The conditions of a request for a kernel besides device, dtype and head dims.

    ``largest_bm0`` is the largest kM0 among the kernels of the same device, dtype and head dims: a smaller tile serves
    no more queries than it has rows. Since 2026 group mode asks for the longest sequence, and tiles of 64 rows have
    conditions of their own.
    """
    own = [
        f"t.has_lse == {flag(key.lse)}",
        f"t.has_dropout == {flag(key.dropout)}",
        f"t.skip_min_seqlen_q == {flag(key.skip)}",
    ]
    if key.tile.bm0 != largest_bm0 and not (features.names_sink and key.tile.bm0 == 64):
        longest = "max_seqlen_q" if features.names_sink and key.mode == "group" else "seqlen_q"
        own.append(f"a.{longest} <= {key.tile.bm0}")
    scale = f"t.qscale_type == {cpp.spellings()['qscale'][key.qscale]['check']}" if features.names_sink else ""
    whole = ("a.cu_seqlen_k_ptr == nullptr", "a.seqlen_k != 0")
    return fwd_spellings.attention_conditions(key, tuple(own), whole, features, scale)


def dispatch_text(keys: Sequence[Key], features: Features) -> str:
    """The host dispatch over ``keys``, which must be in upstream's order of emission for each arch trait."""
    largest: dict[tuple[Any, ...], int] = {}
    for key in keys:
        largest[_tile_choice(key)] = max(largest.get(_tile_choice(key), 0), key.tile.bm0)
    return one_stage(
        by_device(keys),
        function="fmha_fwd",
        trait=lambda key: trait(key, features),
        conditions=lambda key: conditions(key, features, largest[_tile_choice(key)]),
        by_reference=False,
        counts_units=True,
        first=lambda key: is_v3(key.pipeline),
    )


def _tile_choice(key: Key) -> tuple[object, ...]:
    """The axes of kernels among which dispatch chooses by their tile."""
    return key.arch_trait, key.dtype, key.hdim_q, key.hdim_v, is_v3(key.pipeline)


def symbol(values: Values) -> re.Pattern[str]:
    """The pattern of a kernel's symbol."""
    shape = rf"FmhaFwd(?:V3)?KernelI.*?{_SYMBOLS[values['pipeline']]}I.*?{symbol_spellings.shape(values)}"
    scale = symbol_spellings.squant if values.get("sink") is None else symbol_spellings.scale
    traits = (
        f"{symbol_spellings.traits(values)}{symbol_spellings.boolean(values['dropout'])}{scale(values)}"
        f"Li{symbol_spellings.number(values['tile'].occupancy)}E{symbol_spellings.boolean(values['skip'])}"
        f"{symbol_spellings.sink(values)}"
    )
    return symbol_spellings.attention(values, shape, traits)


def scenarios(key: Key, keys: Sequence[Key]) -> tuple[Scenario, ...]:
    """Launches with each of the key's masks."""
    limited = any(other.tile.bm0 > key.tile.bm0 and _tile_choice(other) == _tile_choice(key) for other in keys)
    return attention_scenarios(key, lse=key.lse, seqlens_q=queries(key, limited=limited))


FAMILY = KernelFamily(
    name=NAME,
    substitutions=substitutions,
    instance="fwd_instance.hip.j2",
    symbol=symbol,
    host=Host(
        dispatch=dispatch_text,
        dialects=fwd_spellings.dialects,
        harness=lambda dialect, features: harness_text(dialect, NAME, features, dropout=True),
        arguments=FwdArguments,
        functions=("fmha_fwd_",),
    ),
    scenarios=scenarios,
    not_laid_out=not_laid_out,
)

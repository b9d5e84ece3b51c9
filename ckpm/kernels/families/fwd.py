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
from ckpm.matrix.keys import Key

NAME = "fwd"
_PIPELINES = "fwd_pipeline"
_SYMBOLS = {
    "qr": "BlockFmhaPipelineQRKSVS",
    "qr_async": "BlockFmhaPipelineQRKSVSAsync",
    "qr_async_trload": "BlockFmhaPipelineQRKSVSAsyncTrload",
}


def substitutions(key: Key, features: Features, space: str) -> dict[str, str]:
    """gfx950 has fwd kernels of its own, so the kernels for gfx9 have no device code for gfx950."""
    shared = fwd_spellings.attention(key, space, trait(key), _PIPELINES)
    guard = "defined(__gfx9__) && !defined(__gfx950__)" if key.arch_trait == "gfx9" else cpp.guard(key)
    return {**shared, "guard": guard}


def trait(key: Key) -> str:
    """The C++ type that connects dispatch and instance, besides the arch tag."""
    return (
        f"fmha_fwd_traits_<{fwd_spellings.attention_start(key, _PIPELINES)}, {flag(key.dropout)}, "
        f"{fwd_spellings.squant(key)}, {pad_words(key.pad)['pads']}, {flag(key.trload)}, {flag(key.skip)}>"
    )


def conditions(key: Key, largest_bm0: int) -> tuple[str, ...]:
    """The conditions of a request for a kernel besides device, dtype and head dims.

    ``largest_bm0`` is the largest kM0 among the kernels of the same device, dtype and head dims: a smaller tile serves
    no more queries than it has rows.
    """
    own = [
        f"t.has_lse == {flag(key.lse)}",
        f"t.has_dropout == {flag(key.dropout)}",
        f"t.skip_min_seqlen_q == {flag(key.skip)}",
    ]
    if key.tile.bm0 != largest_bm0:
        own.append(f"a.seqlen_q <= {key.tile.bm0}")
    return fwd_spellings.attention_conditions(key, tuple(own), ("a.cu_seqlen_k_ptr == nullptr", "a.seqlen_k != 0"))


def dispatch_text(keys: Sequence[Key], features: Features) -> str:
    """The host dispatch over ``keys``, which must be in upstream's order of emission for each arch trait."""
    largest: dict[tuple[Any, ...], int] = {}
    for key in keys:
        largest[_tile_choice(key)] = max(largest.get(_tile_choice(key), 0), key.tile.bm0)
    return one_stage(
        by_device(keys),
        function="fmha_fwd",
        trait=trait,
        conditions=lambda key: conditions(key, largest[_tile_choice(key)]),
        by_reference=False,
        counts_units=True,
    )


def _tile_choice(key: Key) -> tuple[object, ...]:
    """The axes of kernels among which dispatch chooses by their tile."""
    return key.arch_trait, key.dtype, key.hdim_q, key.hdim_v


def symbol(values: Values) -> re.Pattern[str]:
    """The pattern of a kernel's symbol."""
    shape = rf"FmhaFwdKernelI.*?{_SYMBOLS[values['pipeline']]}I.*?{symbol_spellings.shape(values)}"
    traits = (
        f"{symbol_spellings.traits(values)}{symbol_spellings.boolean(values['dropout'])}{symbol_spellings.squant(values)}"
        f"Li{symbol_spellings.number(values['tile'].occupancy)}E{symbol_spellings.boolean(values['skip'])}"
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
        harness=lambda dialect, _: harness_text(dialect, NAME, dropout=True, pages=False, splits=False),
        arguments=FwdArguments,
        functions=("fmha_fwd_",),
    ),
    scenarios=scenarios,
    not_laid_out=not_laid_out,
)

"""fwd_v3: four kernels of gfx950 that CK keeps as files. Its keys as C++, its dispatch, its library.

The order of template arguments is that of fmha_fwd_v3_kernel_traits in fmha_fwd_v3_impl.hpp. Dispatch chooses by data
type and mask as upstream's fmha_fwd_v3.cpp does. Upstream's dispatch launches on any device and for any head dims,
where its kernels compute something else. Here device and head dims are conditions of a kernel.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence

from ckpm.kernels.abi import FwdArguments
from ckpm.kernels.families import symbol_spellings
from ckpm.kernels.families.family import Host, KernelFamily, Scenario, Values
from ckpm.kernels.families.kernel_problems import attention_scenarios, not_laid_out
from ckpm.kernels.families.spellings import Features, device_check, fill, flag, guard, pad_words, spellings, tile_words
from ckpm.matrix.keys import Key

NAME = "fwd_v3"
_ARGS = "ck_tile::fmha_fwd_v3_args"
# fields of ckpm_fwd_problem that CK's arguments contain, and the fields of any launch
_KNOWN = frozenset(
    {
        *("struct_bytes", "abi_version", "stream", "warmup", "repeat"),
        *("data_type", "batch", "seqlen_q", "seqlen_k", "cu_seqlen_q", "cu_seqlen_k"),
        *("nhead_q", "nhead_k", "hdim_q", "hdim_v", "scale_s", "mask_type", "window_left", "window_right"),
        *("q", "k", "v", "o", "is_v_rowmajor"),
        *(f"{kind}stride_{tensor}" for kind in ("", "nhead_", "batch_") for tensor in "qkvo"),
    }
)


def data_type(key: Key) -> str:
    return f"{_ARGS}::data_type_enum::{key.dtype}"


def trait(key: Key) -> str:
    """The C++ type that connects dispatch and instance."""
    masked = flag(key.mask != "no")
    return f"ck_tile::fmha_fwd_v3_kernel_traits<{data_type(key)}, {flag(key.mode == 'group')}, {masked}>"


def substitutions(key: Key, features: Features, space: str) -> dict[str, str]:
    return {
        **tile_words(key.tile),
        "space": space,
        "name": key.name,
        "guard": guard(key),
        "trait": trait(key),
        "data_type": data_type(key),
        "mask": spellings()["mask"][key.mask_impl][key.mask]["type"],
        "v_rowmajor": flag(key.vlayout == "row"),
        "pads": pad_words(key.pad)["pads"],
        "lse": flag(key.lse),
        "group_mode": flag(key.mode == "group"),
    }


def conditions(key: Key) -> tuple[str, ...]:
    """The conditions of a request besides the device."""
    return (
        f"a.data_type == {data_type(key)}",
        f"a.mask_type {'==' if key.mask == 'no' else '!='} static_cast<int>(mask_enum::no_mask)",
        f"a.hdim_qk == {key.hdim_q}",
        f"a.hdim_v == {key.hdim_v}",
    )


def dispatch_text(keys: Sequence[Key], features: Features) -> str:
    """The host dispatch over ``keys``, which are all for one arch trait."""
    arms = [(trait(key), " && ".join(conditions(key))) for key in keys]
    return fill(
        "fwd_v3_dispatch.hip.j2", names=[key.name for key in keys], device=device_check(keys[0].arch_trait), arms=arms
    )


def harness_text(dialect: str, features: Features) -> str:
    """The C ABI of kernels/include_fwd/ckpm_fwd.h. Fields of its struct that aren't listed here must be 0 or null."""
    foreign = [(name, kind is ctypes.c_void_p) for name, kind in FwdArguments.kinds().items() if name not in _KNOWN]
    return fill(
        "fwd_v3_harness.hip.j2",
        dialect=dialect,
        family=NAME,
        abi="ckpm_fwd",
        foreign_pointers=[name for name, pointer in foreign if pointer],
        foreign_numbers=[name for name, pointer in foreign if not pointer],
    )


def symbol(values: Values) -> re.Pattern[str]:
    """The pattern of a kernel's symbol. A unit's kernels have one dtype and tile, so the mask identifies them."""
    mask = symbol_spellings.mask(values)
    return re.compile(rf"FmhaFwdV3KernelI.*?BlockFmhaFwdV3PipelineProblemI.*?{mask}.*?TileFmhaFwdV3TraitsI")


def scenarios(key: Key, keys: Sequence[Key]) -> tuple[Scenario, ...]:
    """Launches with each of the key's masks; head dims are not padded."""
    return attention_scenarios(key, lse=key.lse, hdims=((key.hdim_q, key.hdim_v),))


FAMILY = KernelFamily(
    name=NAME,
    substitutions=substitutions,
    instance="fwd_v3_instance.hip.j2",
    unit="fwd_v3_unit.hip.j2",
    symbol=symbol,
    host=Host(
        dispatch=dispatch_text,
        harness=harness_text,
        arguments=FwdArguments,
        functions=("fmha_fwd_v3_",),
        unread=frozenset({"max_seqlen_q", "scale_p", "scale_o", "nhead_stride_lse", "batch_stride_lse"}),
    ),
    scenarios=scenarios,
    not_laid_out=not_laid_out,
)

"""Keys of fwd_v3 in C++ words, and the texts of its instances and dispatch.

The order of template arguments is that of fmha_fwd_v3_kernel_traits in fmha_fwd_v3_impl.hpp. Dispatch chooses by data
type and mask as upstream's fmha_fwd_v3.cpp does. That one launches on any device and for any head dims, for which its
kernels compute something else; here both are conditions of a kernel.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from kernels.families.cpp import pad_flags
from kernels.families.fwd_cpp import device_check, flag, guard
from kernels.families.spellings import spellings
from kernels.families.template_engine import environment, pattern
from kernels.launch.fwd_harness import FIELDS
from matrix.keys import Key

FWD_V3 = "fwd_v3"
_ARGS = "ck_tile::fmha_fwd_v3_args"
# fields of ckpm_fwd_problem that CK's arguments have a place for, and those of any launch
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
    """The type by which dispatch and instance find each other."""
    masked = flag(key.mask != "no")
    return f"ck_tile::fmha_fwd_v3_kernel_traits<{data_type(key)}, {flag(key.mode == 'group')}, {masked}>"


def words(key: Key, space: str) -> dict[str, str]:
    """The words of the instance template; ``space`` is the namespace of its aliases."""
    tile = key.tile
    return {
        "space": space,
        "name": key.name,
        "guard": guard(key),
        "trait": trait(key),
        "data_type": data_type(key),
        "mask": spellings()["mask"][key.mask_impl][key.mask]["type"],
        "block": f"{tile.bm0}, {tile.bn0}, {tile.bk0}, {tile.bn1}, {tile.bk1}, {tile.bk0max}",
        "waves0": f"{tile.rm0}, {tile.rn0}, {tile.rk0}",
        "waves1": f"{tile.rm1}, {tile.rn1}, {tile.rk1}",
        "warp_tile0": f"{tile.wm0}, {tile.wn0}, {tile.wk0}",
        "warp_tile1": f"{tile.wm1}, {tile.wn1}, {tile.wk1}",
        "v_rowmajor": flag(key.vlayout == "row"),
        "pads": ", ".join(map(flag, pad_flags(key.pad))),
        "lse": flag(key.lse),
        "occupancy": str(tile.occupancy),
        "group_mode": flag(key.mode == "group"),
    }


def instance_text(key: Key, space: str) -> str:
    """One key's specialisation."""
    return pattern("fwd_v3_instance.hip.j2") % words(key, space)


def conditions(key: Key) -> tuple[str, ...]:
    """What a request must meet, beyond the device."""
    return (
        f"a.data_type == {data_type(key)}",
        f"a.mask_type {'==' if key.mask == 'no' else '!='} static_cast<int>(mask_enum::no_mask)",
        f"a.hdim_qk == {key.hdim_q}",
        f"a.hdim_v == {key.hdim_v}",
    )


def dispatch_text(keys: Sequence[Key]) -> str:
    """The host dispatch over ``keys``, which are all for one arch trait."""
    arms = [(trait(key), " && ".join(conditions(key))) for key in keys]
    return (
        environment()
        .get_template("fwd_v3_dispatch.hip.j2")
        .render(names=[key.name for key in keys], device=device_check(keys[0].arch_trait), arms=arms)
    )


def harness_text(dialect: str) -> str:
    """The C ABI of kernels/include_fwd/ckpm_fwd.h. What of its struct isn't listed here must be 0 or null."""
    foreign = [(name, kind is ctypes.c_void_p) for name, kind in FIELDS if name not in _KNOWN]
    return (
        environment()
        .get_template("fwd_v3_harness.hip.j2")
        .render(
            dialect=dialect,
            family=FWD_V3,
            abi="ckpm_fwd",
            foreign_pointers=[name for name, pointer in foreign if pointer],
            foreign_numbers=[name for name, pointer in foreign if not pointer],
        )
    )

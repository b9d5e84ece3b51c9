"""C++ text of the families fwd, fwd_splitkv and fwd_splitkv_combine: instances, dispatch and harness.

kernels/render.py asks here for keys that are not of batch prefill, whose texts it makes itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernels import fwd_cpp
from kernels.template_engine import environment, pattern
from matrix.keys import Key

_INSTANCE = {fwd_cpp.FWD: "fwd_instance.hip.j2"}


def instance_text(key: Key, space: str = "ckpm::k0") -> str:
    """One kernel's specialisation."""
    return pattern(_INSTANCE[key.family]) % fwd_cpp.instance(key, space)


Arm = tuple[str, str, str, str, str]  # alias, kernel's name, trait, arch tag, conditions


def dispatch_text(keys: Sequence[Key]) -> str:
    """The host dispatch over ``keys``, which must be in upstream's order of emission for each arch trait."""
    kernels: list[Arm] = []
    tree: dict[str, dict[str, dict[tuple[int, int], list[Arm]]]] = {}
    # a more specific device comes first: gfx950 before gfx9
    ordered = sorted(keys, key=lambda key: -len(key.arch_trait))
    largest: dict[tuple[str, str, int, int], int] = {}
    for key in ordered:
        place = key.arch_trait, key.dtype, key.hdim_q, key.hdim_v
        largest[place] = max(largest.get(place, 0), key.tile.bm0)
    for index, key in enumerate(ordered):
        place = key.arch_trait, key.dtype, key.hdim_q, key.hdim_v
        conditions = " && ".join(fwd_cpp.conditions(key, largest[place]))
        arm = (f"T{index}", key.name, fwd_cpp.trait(key), fwd_cpp.arch_tag(key.arch_trait), conditions)
        kernels.append(arm)
        hdims = tree.setdefault(key.arch_trait, {}).setdefault(key.dtype, {})
        hdims.setdefault((key.hdim_q, key.hdim_v), []).append(arm)
    archs = [
        (
            fwd_cpp.device_check(arch),
            [(dtype, [(*hdims, arms) for hdims, arms in by_hdim.items()]) for dtype, by_hdim in dtypes.items()],
        )
        for arch, dtypes in tree.items()
    ]
    return environment().get_template("fwd_dispatch.hip.j2").render(archs=archs, kernels=kernels)


def harness_text(dialect: str, family: str) -> str:
    """The C ABI of kernels/include_fwd/ckpm_fwd.h; ``family`` is fwd or fwd_splitkv."""
    return environment().get_template("fwd_harness.hip.j2").render(dialect=dialect, family=family)

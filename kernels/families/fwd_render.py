"""C++ text of fwd, fwd_pagedkv, fwd_splitkv, fwd_splitkv_combine and fwd_appendkv: instances, dispatch and harness.

kernels/families/render.py asks here for keys that are not of batch prefill, whose texts it makes itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from kernels.families import appendkv_cpp, fwd_cpp
from kernels.families.template_engine import environment, pattern
from matrix.base.errors import UsageError
from matrix.keys import Key


def instance_text(key: Key, space: str = "ckpm::k0") -> str:
    """One key's specialisation."""
    if key.family == appendkv_cpp.APPENDKV:
        return pattern("appendkv_instance.hip.j2") % appendkv_cpp.instance(key, space)
    words = fwd_cpp.instance(key, space)
    if key.family == fwd_cpp.FWD:
        return pattern("fwd_instance.hip.j2") % words
    if key.family == fwd_cpp.PAGED:
        return pattern("pagedkv_instance.hip.j2") % words
    if key.family == fwd_cpp.COMBINE:
        return pattern("combine_instance.hip.j2") % words
    batch, merges = key.mode == "batch", fwd_cpp.merges(key.hdim_q, key.bias, key.mask)
    return pattern("splitkv_instance.hip.j2", batch=batch, merges=merges) % words


Arm = tuple[str, str, str, str, str]  # alias, kernel's name, trait, arch tag, conditions
SplitArm = tuple[str, str, str, dict[bool, str]]  # trait, arch tag, conditions, combine's trait by LSE
AppendArm = tuple[str, str, str]  # trait, arch tag, conditions
T = TypeVar("T")
Tree = dict[str, dict[str, dict[tuple[int, int], list[T]]]]  # arch trait -> dtype -> head dims -> arms


def dispatch_text(keys: Sequence[Key]) -> str:
    """The host dispatch over ``keys``, which must be in upstream's order of emission for each family and arch trait.

    Raises:
        UsageError: a kernel of fwd_splitkv without any combine kernel that serves it.
    """
    # a more specific device comes first: gfx950 before gfx9
    ordered = sorted(keys, key=lambda key: -len(key.arch_trait))
    if any(key.family == fwd_cpp.SPLITKV for key in ordered):
        return _splitkv_dispatch(ordered)
    if any(key.family == appendkv_cpp.APPENDKV for key in ordered):
        return _appendkv_dispatch(ordered)
    kernels: list[Arm] = []
    tree: Tree[Arm] = {}
    largest: dict[tuple[str, str, int, int], int] = {}
    for key in ordered:
        place = key.arch_trait, key.dtype, key.hdim_q, key.hdim_v
        largest[place] = max(largest.get(place, 0), key.tile.bm0)
    for index, key in enumerate(ordered):
        place = key.arch_trait, key.dtype, key.hdim_q, key.hdim_v
        conditions = " && ".join(fwd_cpp.conditions(key, largest[place]))
        arm = (f"T{index}", key.name, fwd_cpp.trait(key), fwd_cpp.arch_tag(key.arch_trait), conditions)
        kernels.append(arm)
        _add(tree, key, arm)
    family = ordered[0].family
    return environment().get_template("fwd_dispatch.hip.j2").render(family=family, archs=_nested(tree), kernels=kernels)


def _splitkv_dispatch(ordered: Sequence[Key]) -> str:
    first = [key for key in ordered if key.family == fwd_cpp.SPLITKV]
    second = [key for key in ordered if key.family == fwd_cpp.COMBINE]
    combines: dict[tuple[object, ...], dict[bool, str]] = {}
    for key in second:
        combines.setdefault(fwd_cpp.combine_place(key), {})[key.lse] = fwd_cpp.trait(key)
    tree: Tree[SplitArm] = {}
    for key in first:
        own = combines.get(fwd_cpp.combine_place(key))
        if own is None:
            raise UsageError(f"{key.name}: no combine kernel that serves it is selected. Widen --filter or --where.")
        conditions = " && ".join(fwd_cpp.conditions(key, key.tile.bm0))
        by_lse = {lse: own.get(lse, "") for lse in (True, False)}
        _add(tree, key, (fwd_cpp.trait(key), fwd_cpp.arch_tag(key.arch_trait), conditions, by_lse))
    names = [key.name for key in (*first, *second)]
    return environment().get_template("splitkv_dispatch.hip.j2").render(archs=_nested(tree), names=names)


def _appendkv_dispatch(ordered: Sequence[Key]) -> str:
    tree: Tree[AppendArm] = {}
    for key in ordered:
        conditions = " && ".join(appendkv_cpp.conditions(key))
        _add(tree, key, (appendkv_cpp.trait(key), fwd_cpp.arch_tag(key.arch_trait), conditions))
    names = [key.name for key in ordered]
    return environment().get_template("appendkv_dispatch.hip.j2").render(archs=_nested(tree), names=names)


def _add(tree: Tree[T], key: Key, arm: T) -> None:
    hdims = tree.setdefault(key.arch_trait, {}).setdefault(key.dtype, {})
    hdims.setdefault((key.hdim_q, key.hdim_v), []).append(arm)


def _nested(tree: Tree[T]) -> list[tuple[str, list[tuple[str, list[tuple[int, int, list[T]]]]]]]:
    """The tree as the templates take it: [(device check, [(dtype, [(hdim_q, hdim_v, [arm])])])]."""
    return [
        (
            fwd_cpp.device_check(arch),
            [(dtype, [(*hdims, arms) for hdims, arms in by_hdim.items()]) for dtype, by_hdim in dtypes.items()],
        )
        for arch, dtypes in tree.items()
    ]


def harness_text(dialect: str, family: str) -> str:
    """The C ABI of a library of ``family``: of kernels/include_fwd/ckpm_appendkv.h, or ckpm_fwd.h for all others."""
    start = "appendkv" if family == appendkv_cpp.APPENDKV else "fwd"
    template = environment().get_template(f"{start}_harness.hip.j2")
    return template.render(dialect=dialect, family=family, function=f"fmha_{family}", abi=f"ckpm_{start}")

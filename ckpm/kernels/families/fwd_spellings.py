"""C++ spellings, dispatch conditions and host dispatch that fwd, fwd_pagedkv and fwd_splitkv share.

Dispatch is nested conditions: device, dtype, head dims, the kernel's own. The C ABI is that of ckpm_fwd.h.

An instance names its arch: the same traits are built once for each arch trait, with a tag type that differs. Device
code is compiled for its own arch alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ckpm.kernels.families.spellings import (
    Features,
    arch_tag,
    device_check,
    element,
    fill,
    flag,
    guard,
    pad_flags,
    pad_words,
    sink,
    spellings,
    tile_words,
)
from ckpm.matrix.keys import Key

Arm = tuple[str, str, str, str, str]  # alias, kernel's name, trait, arch tag, conditions
T = TypeVar("T")
Nested = list[tuple[str, list[tuple[str, list[tuple[int, int, list[T]]]]]]]
# Elements that CK's codegen loads at once along head dim, by the tile's kK0 block length (K0_MAX_SUBMAX_MAP).
_LOADED = {32: 32, 48: 48, 64: 64, 80: 96, 96: 128, 128: 128, 192: 192, 256: 256, 512: 512}


def dialects() -> tuple[str, ...]:
    """The dialects of these families that have templates."""
    return "ck-2025-11", "rocm-libraries-2026"


def squant(key: Key) -> str:
    """``true`` if scales are static, one for each tensor."""
    return flag(key.qscale == "pertensor")


def common(key: Key, space: str, trait: str) -> dict[str, str]:
    """Substitutions of any instance, the combine stage included; ``space`` is the namespace of its aliases."""
    pads = pad_words(key.pad)
    return {
        "space": space,
        "name": key.name,
        "guard": guard(key),
        "tag": arch_tag(key.arch_trait),
        "trait": trait,
        "hdim": str(key.hdim_q),
        "element": element(key),
        "group_mode": flag(key.mode == "group"),
        "spad": pads["spad"],
        "dvpad": pads["dvpad"],
        "lse": flag(key.lse),
        "squant": squant(key),
        "occupancy": str(key.tile.occupancy),
        "bn0": str(key.tile.bn0),
        "bn1": str(key.tile.bn1),
    }


def attention(key: Key, space: str, trait: str, pipelines: str, cpp: Features) -> dict[str, str]:
    """Substitutions of an attention kernel's instance; ``pipelines`` names the spellings of its family's pipelines."""
    spelling = spellings()
    return {
        **common(key, space, trait),
        **tile_words(key.tile),
        "pads": pad_words(key.pad)["pads"],
        "pipeline": spelling[pipelines][key.pipeline]["type"],
        "mask": spelling["mask"][key.mask_impl][key.mask]["type"],
        "bias": spelling["bias"][key.bias]["enum"],
        "v_rowmajor": flag(key.vlayout == "row"),
        "logits": flag(key.logits),
        "dropout": flag(key.dropout),
        "skip": flag(key.skip),
        "sink": sink(key, cpp),
        "trload": flag(key.trload),
        "paged_kv": flag(key.paged_kv),
    }


def trait_start(key: Key) -> str:
    """The first template arguments of all traits of these families."""
    return f"{key.hdim_q}, {element(key)}, {flag(key.mode == 'group')}"


def attention_start(key: Key, pipelines: str) -> str:
    """The first template arguments of the traits of attention kernels, up to LSE."""
    spelling = spellings()
    return (
        f"{trait_start(key)}, {tile_words(key.tile)['block']}, {flag(key.vlayout == 'row')}, "
        f"{spelling[pipelines][key.pipeline]['enum']}, {flag(key.logits)}, "
        f"{spelling['mask'][key.mask_impl][key.mask]['type']}, {spelling['bias'][key.bias]['enum']}, {flag(key.lse)}"
    )


def attention_conditions(
    key: Key, own: tuple[str, ...], whole: tuple[str, ...], cpp: Features, scale: str = ""
) -> tuple[str, ...]:
    """The conditions of a request for an attention kernel besides device, dtype and head dims.

    ``own`` are the conditions of the family's features, ``whole`` further ones if K's length isn't padded; ``scale`` is
    the condition on scales, if they are not static ones for each tensor. Source:
    FmhaFwdApiTrait and FmhaFwdSplitKVApiTrait of fmha_fwd.py, fmha_pagedkv_prefill.py and fmha_fwd_splitkv.py.
    """
    spelling = spellings()
    conditions = (
        f"t.is_group_mode == {flag(key.mode == 'group')}",
        f"t.is_v_rowmajor == {flag(key.vlayout == 'row')}",
        f"t.has_logits_soft_cap == {flag(key.logits)}",
        spelling["mask"][key.mask_impl][key.mask]["check"],
        f"t.bias_type == {spelling['bias'][key.bias]['check']}",
        scale or f"t.do_fp8_static_quant == {squant(key)}",
        *((f"t.has_sink == {flag(key.sink)}",) if cpp.names_sink else ()),
        *own,
    )
    when = spelling["when"][key.tile.when]
    return (*conditions, *((when,) if when else ()), *_lengths(key, whole), *_head_dims(key, cpp))


def _lengths(key: Key, whole: tuple[str, ...]) -> tuple[str, ...]:
    """Sequence lengths: group mode pads them always; a kernel that pads takes all (qr) or the rest (qr_async)."""
    if key.mode == "group" or key.pipeline.startswith("qr_async_trload"):
        return ()
    spad, skpad, _, _ = pad_flags(key.pad)
    tiles = f"a.seqlen_k % {key.tile.bn0} == 0"
    if key.pipeline == "qr_async":
        if skpad:
            return (f"(a.cu_seqlen_k_ptr != nullptr || a.seqlen_k == 0 || a.seqlen_k % {key.tile.bn0} != 0)",)
        return *whole, tiles
    query = () if spad else (f"a.seqlen_q % {key.tile.bm0} == 0",)
    return query if skpad else (*query, *whole, tiles)


def _head_dims(key: Key, cpp: Features) -> tuple[str, ...]:
    """Kernels load whole tiles unless they pad; until 2026 qr_async, which pads always, asks for 16 bytes at once."""
    if key.pipeline == "qr_async" and not cpp.names_sink:
        unit = 16 // spellings()["dtype"][key.dtype]["bytes"]
        return f"a.hdim_q % {unit} == 0", f"a.hdim_v % {unit} == 0"
    _, _, dpad, dvpad = pad_flags(key.pad)
    unit = _LOADED[key.tile.bk0max]
    return tuple(f"a.{name} % {unit} == 0" for name, padded in (("hdim_q", dpad), ("hdim_v", dvpad)) if not padded)


def by_device(keys: Sequence[Key]) -> list[Key]:
    """Sort keys so that a more specific device comes first: gfx950 before gfx9."""
    return sorted(keys, key=lambda key: -len(key.arch_trait))


def nest(arms: Iterable[tuple[Key, T]]) -> Nested[T]:
    """Group arms for the templates: [(device check, [(dtype, [(hdim_q, hdim_v, [arm])])])]."""
    tree: dict[str, dict[str, dict[tuple[int, int], list[T]]]] = {}
    for key, arm in arms:
        hdims = tree.setdefault(key.arch_trait, {}).setdefault(key.dtype, {})
        hdims.setdefault((key.hdim_q, key.hdim_v), []).append(arm)
    return [
        (
            device_check(arch),
            [(dtype, [(*hdims, group) for hdims, group in by_hdim.items()]) for dtype, by_hdim in dtypes.items()],
        )
        for arch, dtypes in tree.items()
    ]


def one_stage(
    keys: Sequence[Key],
    *,
    function: str,
    trait: Callable[[Key], str],
    conditions: Callable[[Key], tuple[str, ...]],
    by_reference: bool,
    counts_units: bool,
    first: Callable[[Key], bool] = lambda key: False,
) -> str:
    """The dispatch text of a family with one kernel a launch, over keys sorted :func:`by_device`.

    ``function`` is CK's, which takes its arguments by value or ``by_reference``. With ``counts_units`` the conditions
    read the number of the device's compute units. For more than one query, kernels that are ``first`` are tried before
    the others.
    """
    arms: list[tuple[Key, Arm]] = [
        (key, (f"T{index}", key.name, trait(key), arch_tag(key.arch_trait), " && ".join(conditions(key))))
        for index, key in enumerate(keys)
    ]
    return fill(
        "fwd_dispatch.hip.j2",
        function=function,
        reference="&" if by_reference else "",
        counts_units=counts_units,
        first_archs=nest([(key, arm) for key, arm in arms if first(key)]),
        archs=nest([(key, arm) for key, arm in arms if not first(key)]),
        kernels=[arm for _, arm in arms],
    )


def harness_text(
    dialect: str, family: str, cpp: Features, *, dropout: bool = False, pages: bool = False, splits: bool = False
) -> str:
    """The C ABI of kernels/include_fwd/ckpm_fwd.h for a family that has dropout, a paged cache, splits, or not."""
    features = {"dropout": dropout, "pages": pages, "splits": splits, "d": cpp}
    function = f"fmha_{family}"
    return fill("fwd_harness.hip.j2", dialect=dialect, family=family, function=function, abi="ckpm_fwd", **features)

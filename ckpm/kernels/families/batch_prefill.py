"""Batch prefill: attention over a paged KV cache. Its keys as C++, its dispatch, its library.

The spellings are in kernels/spellings.yaml; the order of template arguments is CK's own (TileFmhaTraits,
TileFmhaBatchPrefillTraits, fmha_fwd_traits_, fmha_fwd_batch_prefill_traits_ in fmha_fwd.hpp of each version).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence

from ckpm.kernels.abi import LaunchArguments
from ckpm.kernels.families import symbol_spellings
from ckpm.kernels.families.family import INCLUDE, Host, KernelFamily, Values, on_own_trait
from ckpm.kernels.families.spellings import (
    Features,
    device_check,
    fill,
    flag,
    occupancy,
    pad_flags,
    pad_words,
    spellings,
    tile_words,
)
from ckpm.matrix.keys import ANY_PAGE, PAGE_STEP, Key, Tile, has_one_load, is_split, is_v3
from ckpm.matrix.problems.problem import V2_MOST_16BIT_ROWS

NAME = "batch_prefill"
WIDE_GUARD = "defined(__gfx94__) || defined(__gfx950__)"  # archs for which gload (CK's GLOBAL_LOAD_LDS) is compiled
# Tiles with device code for gfx942 alone: the gates of rocm-libraries pull request 9214 (dialects/features.yaml).
_GFX942_TILES = ("few_compute_units_guarded", "few_compute_units_of_gfx942")

Arm = tuple[str, str, str, str]  # alias, kernel's name, trait, conditions


@functools.cache
def _type_words(dtype: str, pipeline: str, mask_impl: str, mask: str, bias: str, qscale: str) -> Mapping[str, str]:
    spelling = spellings()
    return {
        "element": spelling["dtype"][dtype]["type"],
        "pipeline": spelling["pipeline"][pipeline]["type"],
        "pipeline_enum": spelling["pipeline"][pipeline]["enum"],
        "mask": spelling["mask"][mask_impl][mask]["type"],
        "bias": spelling["bias"][bias]["enum"],
        "qscale": spelling["qscale"][qscale]["enum"],
    }


@functools.cache
def _layout_words(mode: str, vlayout: str, pad: str) -> Mapping[str, str]:
    return {"group_mode": flag(mode == "group"), "v_rowmajor": flag(vlayout == "row"), **pad_words(pad)}


@functools.cache
def _page_words(
    page_size: int | None, kv_layout: str | None, kv_table: str | None, load: str | None
) -> Mapping[str, str]:
    """Substitutions of paged dialects."""
    spelling = spellings()
    return {
        "page_size": str(page_size),
        "kv_layout": spelling["kv_layout"][kv_layout] if kv_layout else "",
        "kv_table": spelling["kv_table"][kv_table] if kv_table else "",
        "load": spelling["load"][load] if load else "",
    }


def guard(load: str | None, tile: Tile) -> str:
    """The condition of device code. gload bodies are for gfx94x and gfx950, which have the instruction."""
    gfx942 = "defined(__gfx942__)" if tile.when in _GFX942_TILES else ""
    if load != "gload":
        return gfx942
    return f"({WIDE_GUARD}) && {gfx942}" if gfx942 else WIDE_GUARD


def loads(values: Values) -> tuple[str, ...]:
    """The load modes of a kernel whose name has none: bload (32-bit offsets), gload (64-bit addresses) or both.

    With two modes, the selector of kernels/include_prefill/ckpm_prefill/load_mode.hpp chooses at each launch. A page of
    kN0 tokens or more has a descriptor of its own; in V3, any page of more than one token. Pages of one token always
    have 64-bit addresses.
    """
    if is_v3(values["pipeline"]):
        return ("gload",) if values["page_size"] == 1 else ("bload",)
    if values["page_size"] >= values["tile"].bn0:
        return ("bload",)
    return ("gload",) if values["page_size"] == 1 else ("gload", "bload")


def _own_loads(key: Key, cpp: Features) -> tuple[str, ...]:
    """The load modes that a unit instantiates itself; () without pages, and for V2 with the mode in its name."""
    if not cpp.paged:
        return ()
    if key.load:
        return (key.load,) if is_v3(key.pipeline) else ()
    return loads({name: getattr(key, name) for name in ("pipeline", "page_size", "tile")})


def choices(key: Key, cpp: Features) -> Mapping[str, object]:
    """The conditions of instance.hip.j2."""
    enumerators = spellings()["load"]
    modes = tuple((enumerators[load], load == "gload") for load in _own_loads(key, cpp))
    v3, split = is_v3(key.pipeline), is_split(key.pipeline)
    own_v2 = cpp.own_headers and not (v3 or split)
    kinds = {"v3": v3, "split": split, "own_v2": own_v2, "latent": key.hdim_q == 576}
    return {"d": cpp, "guarded": bool(guard(key.load, key.tile)), "loads": modes, **kinds}


def substitutions(key: Key, cpp: Features, space: str) -> dict[str, str]:
    """The substitutions of instance.hip.j2 for one key; ``space`` is the namespace of its aliases.

    Values that depend on a few axes are cached, because their combinations are far fewer than the keys.
    """
    return {
        **tile_words(key.tile),
        **_type_words(key.dtype, key.pipeline, key.mask_impl, key.mask, key.bias, key.qscale),
        **_layout_words(key.mode, key.vlayout, key.pad),
        **_page_words(key.page_size, key.kv_layout, key.kv_table, key.load),
        "guard": guard(key.load, key.tile),
        "space": space,
        "name": key.name,
        "logits": flag(key.logits),
        "lse": flag(key.lse),
        "dropout": flag(key.dropout),
        "sink": flag(key.sink),
        "trait": trait(key, cpp),
        "wide_guard": WIDE_GUARD,
        "selector": _selector("args", key.tile.bn0, str(spellings()["dtype"][key.dtype]["bytes"]), cpp),
    }


def trait(key: Key, cpp: Features) -> str:
    """The C++ type that connects dispatch and instance."""
    types = _type_words(key.dtype, key.pipeline, key.mask_impl, key.mask, key.bias, key.qscale)
    layout = _layout_words(key.mode, key.vlayout, key.pad)
    common = (
        f"{key.hdim_q}, {types['element']}, {layout['group_mode']}, {tile_words(key.tile)['block']}, "
        f"{layout['v_rowmajor']}, {types['pipeline_enum']}, {flag(key.logits)}, {types['mask']}, {types['bias']}, "
        f"{flag(key.lse)}, {flag(key.dropout)}, "
    )
    if not cpp.paged:
        trload = ", false" if cpp.trait_names_trload else ""
        return f"fmha_fwd_traits_<{common}false, {layout['pads']}{trload}>"
    load = key.load or _own_loads(key, cpp)[-1]
    page = _page_words(key.page_size, key.kv_layout, key.kv_table, load)
    mode = f", {page['load']}" if cpp.takes_load else ""
    flags = f"{flag(is_v3(key.pipeline))}, false, {flag(key.sink)}"
    return (
        f"fmha_fwd_batch_prefill_traits_<{common}{types['qscale']}, {layout['pads']}, {flags}, "
        f"{page['page_size']}, {page['kv_layout']}, {page['kv_table']}{mode}{occupancy(key, cpp)}>"
    )


def conditions(key: Key, cpp: Features) -> tuple[str, ...]:
    """The conditions of a request for this kernel besides dtype and head dim, joined by && in the dispatch.

    Source: fmha_batch_prefill.py of each version (FmhaFwdApiTrait checks).
    """
    selected = key.load if cpp.takes_load and not has_one_load(key.pipeline, key.page_size) else None
    return (
        *_layout_conditions(key.mode, key.vlayout),
        f"t.has_logits_soft_cap == {flag(key.logits)}",
        *_type_conditions(*_masks_taken(key), key.bias),
        f"t.has_lse == {flag(key.lse)}",
        f"t.has_dropout == {flag(key.dropout)}",
        *_scale_conditions(cpp.paged, key.qscale, key.sink),
        *_shape_conditions(key.mode, key.pad, key.dtype, key.tile),
        *((when,) if (when := spellings()["when"][key.tile.when]) and not is_split(key.pipeline) else ()),
        *(
            _page_conditions(cpp, key.tile.bn0, key.page_size, key.kv_layout, key.kv_table, selected)
            if cpp.paged
            else ()
        ),
        *(_v3_conditions(key.dtype, key.mask) if is_v3(key.pipeline) else ()),
    )


def _masks_taken(key: Key) -> tuple[str, str]:
    """The mask set and the mask by which a kernel is dispatched. V3's generic kernel takes every mask."""
    return ("simplified", "mask") if is_v3(key.pipeline) and key.mask == "generic" else (key.mask_impl, key.mask)


def _v3_conditions(dtype: str, mask: str) -> tuple[str, ...]:
    """Conditions that leave requests to V3's generic kernel or to V2: sink logits, bounds of windows, few rows."""
    rows = () if dtype == "fp8bf16" else (f"a.max_seqlen_q > {V2_MOST_16BIT_ROWS}",)
    if mask == "generic":
        return rows
    bounds = ("a.window_size_left < 0", "a.window_size_right == 0") if mask == "causal" else ()
    return ("a.sink_ptr == nullptr", *bounds, *rows)


@functools.cache
def _layout_conditions(mode: str, vlayout: str) -> tuple[str, ...]:
    return f"t.is_group_mode == {flag(mode == 'group')}", f"t.is_v_rowmajor == {flag(vlayout == 'row')}"


@functools.cache
def _type_conditions(mask_impl: str, mask: str, bias: str) -> tuple[str, ...]:
    spelling = spellings()
    return spelling["mask"][mask_impl][mask]["check"], f"t.bias_type == {spelling['bias'][bias]['check']}"


@functools.cache
def _scale_conditions(paged: bool, qscale: str, sink: bool | None) -> tuple[str, ...]:
    if not paged:
        return ("t.do_fp8_static_quant == false",)
    return f"t.qscale_type == {spellings()['qscale'][qscale]['check']}", f"t.has_sink == {flag(sink)}"


@functools.cache
def _shape_conditions(mode: str, pad: str, dtype: str, tile: Tile) -> tuple[str, ...]:
    """Conditions on sequence lengths (group mode always pads them), on head dims, and of the tile.

    A padded head dim must be a multiple of 16 bytes; an unpadded one must be the kernel's own.
    """
    vec, bn0 = 16 // spellings()["dtype"][dtype]["bytes"], tile.bn0
    requirements = []
    if mode == "batch":
        whole = f"a.seqlen_k != 0 && a.seqlen_k % {bn0} == 0"
        requirements.append(whole if pad == "psddv" else f"(a.seqlen_k == 0 || a.seqlen_k % {bn0} != 0)")
    _, _, pads_q, pads_v = pad_flags(pad)
    requirements.append(f"a.hdim_q % {vec} == 0" if pads_q else f"a.hdim_q == {tile.bk0max}")
    requirements.append(f"a.hdim_v % {vec} == 0" if pads_v else f"a.hdim_v == {tile.bn1}")
    return tuple(requirements)


@functools.cache
def _page_conditions(
    cpp: Features, bn0: int, page_size: int | None, kv_layout: str | None, kv_table: str | None, load: str | None
) -> tuple[str, ...]:
    """Conditions on pages. The load mode is compared with the selector of CK's header, called as it is declared."""
    page = _page_words(page_size, kv_layout, kv_table, load)
    return (
        f"t.kv_memory_layout == {page['kv_layout']}",
        f"t.kv_lookup_table == {page['kv_table']}",
        f"t.page_size % {PAGE_STEP} == 0" if page_size == ANY_PAGE else f"t.page_size == {page_size}",
        *((f"{_selector('a', bn0, 'kElementBytes', cpp)} == {page['load']}",) if load else ()),
    )


def _selector(arguments: str, bn0: int, element_bytes: str, cpp: Features) -> str:
    """The call of the header's selector with a launch's ``arguments``."""
    names = ("batch_stride_k", "batch_stride_v") if cpp.selector_takes_base else ("batch_stride_k",)
    values = [
        f"{arguments}.page_block_size",
        str(bn0),
        *(f"{arguments}.{name}" for name in ("num_total_pages", *names)),
    ]
    base = [f"{arguments}.k_ptr", f"{arguments}.v_ptr"] if cpp.selector_takes_base else []
    return f"fmha_batch_prefill_select_kv_load_mode({', '.join([*values, element_bytes, *base])})"


def dispatch_text(keys: Sequence[Key], cpp: Features) -> str:
    """The host dispatch over ``keys``, which must be in upstream's order of emission; V3's come first."""
    ordered = sorted(keys, key=lambda key: not is_v3(key.pipeline))
    arms = [
        (key, (f"T{index}", key.name, trait(key, cpp), " && ".join(conditions(key, cpp))))
        for index, key in enumerate(ordered)
    ]
    v3_traits = {key.arch_trait for key in keys if is_v3(key.pipeline)}
    return fill(
        "dispatch.hip.j2",
        dtypes=_by_dtype((key, arm) for key, arm in arms if not is_v3(key.pipeline) and not is_split(key.pipeline)),
        v3_dtypes=_by_dtype((key, arm) for key, arm in arms if is_v3(key.pipeline)),
        split_dtypes=_by_dtype((key, arm) for key, arm in arms if is_split(key.pipeline)),
        v3_device=" || ".join(map(device_check, sorted(v3_traits))),
        arms=[arm for _, arm in arms],
        own_headers=cpp.own_headers,
        selects=cpp.takes_load and any(key.load for key in keys),
        names_device=bool(v3_traits) or any("device_name" in arm[-1] for _, arm in arms),
        pads=cpp.own_headers,  # upstreams' dispatch looks in one head dim alone
    )


def _by_dtype(arms: Iterable[tuple[Key, Arm]]) -> list[tuple[str, int, list[tuple[int, int, list[Arm]]]]]:
    """Group arms as [(dtype, bytes of an element, [(hdim_q, hdim_v, arms)])], in the order of their first arm."""
    tree: dict[str, dict[int, list[Arm]]] = {}
    hdim_v: dict[tuple[str, int], int] = {}
    for key, arm in arms:
        tree.setdefault(key.dtype, {}).setdefault(key.hdim_q, []).append(arm)
        hdim_v[key.dtype, key.hdim_q] = key.hdim_v
    dtypes = spellings()["dtype"]
    return [
        (dtype, dtypes[dtype]["bytes"], [(hdim, hdim_v[dtype, hdim], group) for hdim, group in hdims.items()])
        for dtype, hdims in tree.items()
    ]


def harness_text(dialect: str, cpp: Features) -> str:
    """The C ABI of kernels/include/ckpm.h for one dialect's argument structures."""
    return fill("harness.hip.j2", dialect=dialect, d=cpp, cpp=spellings())


def symbol(values: Values) -> re.Pattern[str]:
    """The pattern of a kernel's symbol. Symbols of paged dialects have more parts."""
    traits = symbol_spellings.traits(values) + rf"Lb{int(values['dropout'])}E"
    if values.get("page_size") is not None:
        traits += symbol_spellings.paged_traits(values)
    kernel = r"SplitProblemI.*?" if is_split(values["pipeline"]) else "^(?!.*SplitProblemI).*?"
    return symbol_spellings.attention(values, kernel + symbol_spellings.shape(values), traits)


def _compiled_for(values: Values, arch: str, archs: Mapping[str, tuple[str, ...]]) -> bool:
    """True if at least one load mode compiles for the arch."""
    return on_own_trait(values, arch, archs) and variants(values, arch) > 0


def variants(values: Values, arch: str) -> int:
    """Number of load modes, times two for a kernel of splits, which brings the kernel that combines them."""
    if values.get("page_size") is None:
        return 1
    modes = (values["load"],) if values.get("load") else loads(values)
    elsewhere = arch != "gfx942" and values["tile"].when in _GFX942_TILES
    compiled = [mode for mode in modes if not elsewhere and (mode == "bload" or arch != "gfx90a")]
    return len(compiled) * (2 if is_split(values["pipeline"]) else 1)


FAMILY = KernelFamily(
    name=NAME,
    substitutions=substitutions,
    instance="instance.hip.j2",
    choices=choices,
    unit="unit.hip.j2",
    symbol=symbol,
    variants=variants,
    compiled_for=_compiled_for,
    host=Host(
        dialects=lambda: tuple(spellings()["dialects"]),
        dispatch=dispatch_text,
        harness=harness_text,
        arguments=LaunchArguments,
        functions=("fmha_batch_prefill_",),
        headers=(INCLUDE,),
        whole_units=True,
        table_problems=True,
    ),
)

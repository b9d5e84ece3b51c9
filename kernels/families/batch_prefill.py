"""Batch prefill: attention over a paged KV cache. Its keys in C++ words, its dispatch, its library.

The spellings are in kernels/families/spellings.yaml; the order of template arguments is CK's own (TileFmhaTraits,
TileFmhaBatchPrefillTraits, fmha_fwd_traits_, fmha_fwd_batch_prefill_traits_ in fmha_fwd.hpp of each age).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

from kernels.families import symbol_words
from kernels.families.family import INCLUDE, Family, Host, Values, deferred, on_own_trait
from kernels.families.spellings import spellings
from kernels.families.template_engine import environment
from kernels.families.words import Features, flag, pad_words, tile_words
from kernels.launch.harness import LaunchArguments
from matrix.keys import Key, Tile

NAME = "batch_prefill"


@functools.cache
def _type_words(dtype: str, pipeline: str, mask_impl: str, mask: str, bias: str, qscale: str) -> Mapping[str, str]:
    known = spellings()
    return {
        "element": known["dtype"][dtype]["type"],
        "pipeline": known["pipeline"][pipeline]["type"],
        "pipeline_enum": known["pipeline"][pipeline]["enum"],
        "mask": known["mask"][mask_impl][mask]["type"],
        "bias": known["bias"][bias]["enum"],
        "qscale": known["qscale"][qscale]["enum"],
    }


@functools.cache
def _layout_words(mode: str, vlayout: str, pad: str) -> Mapping[str, str]:
    return {"group_mode": flag(mode == "group"), "v_rowmajor": flag(vlayout == "row"), **pad_words(pad)}


@functools.cache
def _page_words(
    page_size: int | None, kv_layout: str | None, kv_table: str | None, load: str | None
) -> Mapping[str, str]:
    """Words that only paged dialects use; gload bodies are for gfx94x and gfx950, which have the instruction."""
    known = spellings()
    return {
        "page_size": str(page_size),
        "kv_layout": known["kv_layout"][kv_layout] if kv_layout else "",
        "kv_table": known["kv_table"][kv_table] if kv_table else "",
        "load": known["load"][load] if load else "",
        "guard": "defined(__gfx94__) || defined(__gfx950__)" if load == "gload" else "",
    }


def words(key: Key, cpp: Features, space: str) -> dict[str, str]:
    """The words of instance.hip.j2 for one key; ``space`` is the namespace of its aliases.

    Words that depend on a few axes are made once for each of their combinations: there are far fewer than keys.
    """
    return {
        **tile_words(key.tile),
        **_type_words(key.dtype, key.pipeline, key.mask_impl, key.mask, key.bias, key.qscale),
        **_layout_words(key.mode, key.vlayout, key.pad),
        **_page_words(key.page_size, key.kv_layout, key.kv_table, key.load),
        "space": space,
        "name": key.name,
        "logits": flag(key.logits),
        "lse": flag(key.lse),
        "dropout": flag(key.dropout),
        "sink": flag(key.sink),
        "trait": trait(key, cpp),
    }


def trait(key: Key, cpp: Features) -> str:
    """The type by which dispatch and instance find each other."""
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
    page = _page_words(key.page_size, key.kv_layout, key.kv_table, key.load)
    return (
        f"fmha_fwd_batch_prefill_traits_<{common}{types['qscale']}, {layout['pads']}, false, false, {flag(key.sink)}, "
        f"{page['page_size']}, {page['kv_layout']}, {page['kv_table']}, {page['load']}>"
    )


def conditions(key: Key, cpp: Features) -> tuple[str, ...]:
    """What a request must meet for this kernel, beyond dtype and head dim: joined by && in the dispatch.

    Source: fmha_batch_prefill.py of each age (FmhaFwdApiTrait checks).
    """
    return (
        *_layout_conditions(key.mode, key.vlayout),
        f"t.has_logits_soft_cap == {flag(key.logits)}",
        *_type_conditions(key.mask_impl, key.mask, key.bias),
        f"t.has_lse == {flag(key.lse)}",
        f"t.has_dropout == {flag(key.dropout)}",
        *_scale_conditions(cpp.paged, key.qscale, key.sink),
        *_shape_conditions(key.mode, key.pad, key.dtype, key.tile),
        *(
            _page_conditions(cpp, key.tile.bn0, key.page_size, key.kv_layout, key.kv_table, key.load)
            if cpp.paged
            else ()
        ),
    )


@functools.cache
def _layout_conditions(mode: str, vlayout: str) -> tuple[str, ...]:
    return f"t.is_group_mode == {flag(mode == 'group')}", f"t.is_v_rowmajor == {flag(vlayout == 'row')}"


@functools.cache
def _type_conditions(mask_impl: str, mask: str, bias: str) -> tuple[str, ...]:
    known = spellings()
    return known["mask"][mask_impl][mask]["check"], f"t.bias_type == {known['bias'][bias]['check']}"


@functools.cache
def _scale_conditions(paged: bool, qscale: str, sink: bool | None) -> tuple[str, ...]:
    if not paged:
        return ("t.do_fp8_static_quant == false",)
    return f"t.qscale_type == {spellings()['qscale'][qscale]['check']}", f"t.has_sink == {flag(sink)}"


@functools.cache
def _shape_conditions(mode: str, pad: str, dtype: str, tile: Tile) -> tuple[str, ...]:
    """Sequence lengths (group mode always pads them), head dims in whole 16-byte loads, the tile's own condition."""
    vec, bn0 = 16 // spellings()["dtype"][dtype]["bytes"], tile.bn0
    requirements = []
    if mode == "batch":
        whole = f"a.seqlen_k != 0 && a.seqlen_k % {bn0} == 0"
        requirements.append(whole if pad == "psddv" else f"(a.seqlen_k == 0 || a.seqlen_k % {bn0} != 0)")
    requirements += [f"a.hdim_q % {vec} == 0", f"a.hdim_v % {vec} == 0"]
    if when := spellings()["when"][tile.when]:
        requirements.append(when)
    return tuple(requirements)


@functools.cache
def _page_conditions(
    cpp: Features, bn0: int, page_size: int | None, kv_layout: str | None, kv_table: str | None, load: str | None
) -> tuple[str, ...]:
    """The load mode is compared with the header's own selector, called as that header declares it."""
    page = _page_words(page_size, kv_layout, kv_table, load)
    strides = "a.batch_stride_k, a.batch_stride_v" if cpp.selector_takes_base else "a.batch_stride_k"
    base = ", a.k_ptr, a.v_ptr" if cpp.selector_takes_base else ""
    arguments = f"a.page_block_size, {bn0}, a.num_total_pages, {strides}, kElementBytes{base}"
    return (
        f"t.kv_memory_layout == {page['kv_layout']}",
        f"t.kv_lookup_table == {page['kv_table']}",
        f"t.page_size == {page['page_size']}",
        f"fmha_batch_prefill_select_kv_load_mode({arguments}) == {page['load']}",
    )


def dispatch_text(keys: Sequence[Key], cpp: Features) -> str:
    """The host dispatch over ``keys``, which must be in upstream's order of emission."""
    arms: list[tuple[str, str, str, str]] = []
    tree: dict[str, dict[int, list[tuple[str, str, str, str]]]] = {}
    hdim_v: dict[tuple[str, int], int] = {}
    for index, key in enumerate(keys):
        arm = (f"T{index}", key.name, trait(key, cpp), " && ".join(conditions(key, cpp)))
        arms.append(arm)
        tree.setdefault(key.dtype, {}).setdefault(key.hdim_q, []).append(arm)
        hdim_v[key.dtype, key.hdim_q] = key.hdim_v
    known = spellings()["dtype"]
    dtypes = [
        (dtype, known[dtype]["bytes"], [(hdim, hdim_v[dtype, hdim], group) for hdim, group in hdims.items()])
        for dtype, hdims in tree.items()
    ]
    return environment().get_template("dispatch.hip.j2").render(dtypes=dtypes, arms=arms, d=cpp)


def harness_text(dialect: str, cpp: Features) -> str:
    """The C ABI of kernels/include/ckpm.h for one dialect's argument structures."""
    return environment().get_template("harness.hip.j2").render(dialect=dialect, d=cpp, cpp=spellings())


def symbol(values: Values) -> re.Pattern[str]:
    """What a kernel's symbol contains, in order. Paged dialects spell more."""
    traits = symbol_words.traits(values) + rf"Lb{int(values['dropout'])}E"
    if values.get("page_size") is not None:
        traits += symbol_words.paged_traits(values)
    return symbol_words.attention(values, symbol_words.shape(values), traits)


def _compiled_for(values: Values, arch: str, archs: Mapping[str, tuple[str, ...]]) -> bool:
    """gfx94x and gfx950 have the instruction of gload bodies."""
    return on_own_trait(values, arch, archs) and not (values.get("load") == "gload" and arch == "gfx90a")


FAMILY = Family(
    name=NAME,
    words=words,
    instance="instance.hip.j2",
    choices=lambda key, cpp: {"d": cpp, "guarded": key.load == "gload"},
    unit="unit.hip.j2",
    symbol=symbol,
    compiled_for=_compiled_for,
    host=Host(
        dialects=lambda: tuple(spellings()["dialects"]),
        dispatch=dispatch_text,
        harness=harness_text,
        arguments=LaunchArguments,
        launch=deferred("kernels.launch.launching", "run_problem"),
        functions=("fmha_batch_prefill_",),
        headers=(INCLUDE,),
        whole_units=True,
        table_problems=True,
    ),
)

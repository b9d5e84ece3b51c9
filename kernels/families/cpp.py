"""A key in C++ words: what the templates bind, and the conditions under which dispatch takes the kernel.

The spellings are in kernels/families/spellings.yaml; the order of template arguments is CK's own (TileFmhaTraits,
TileFmhaBatchPrefillTraits, fmha_fwd_traits_, fmha_fwd_batch_prefill_traits_ in fmha_fwd.hpp of each age).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kernels.families.spellings import spellings
from matrix.base.errors import UsageError
from matrix.keys import Key, Tile


@dataclass(frozen=True, slots=True)
class Features:
    """What the C++ of an upstream's age asks of the templates.

    ``selector_takes_base`` is a property of the tree and not of the dialect: since rocm-libraries pull request 9214,
    fmha_batch_prefill_select_kv_load_mode also takes the V stride and both base addresses.
    """

    paged: bool
    launch_takes_block_size: bool
    trait_names_trload: bool
    selector_takes_base: bool = True


def features(dialect: str, *, selector_takes_base: bool = True) -> Features:
    """What the templates do differently for a dialect. Raises UsageError for one of which only names are known."""
    known = spellings()["dialects"]
    if dialect not in known:
        raise UsageError(
            f"of dialect {dialect} only the kernels' names are known, so there is no C++ to render. "
            f"Dialects with C++: {', '.join(known)}."
        )
    return Features(**known[dialect], selector_takes_base=selector_takes_base)


_FLAG: Mapping[bool | None, str] = {True: "true", False: "false", None: "false"}


def _flag(value: bool | None) -> str:
    return _FLAG[value]


@functools.cache
def pad_flags(pad: str) -> tuple[bool, bool, bool, bool]:
    """``psskddv`` -> whether seqlen_q, seqlen_k, hdim_q, hdim_v are padded (kPadSeqLenQ, kPadSeqLenK, kPadHeadDimQ, V).

    ``npad`` is none of them. Raises ValueError for a word that is none.
    """
    match = re.fullmatch(r"p(s)?(sk)?(d)?(dv)?", "p" if pad == "npad" else pad)
    if match is None:
        raise ValueError(f"no padding word: {pad}")
    seqlen_q, seqlen_k, hdim_q, hdim_v = (group is not None for group in match.groups())
    return seqlen_q, seqlen_k, hdim_q, hdim_v


@functools.cache
def _tile_words(tile: Tile) -> Mapping[str, str]:
    return {
        "occupancy": str(tile.occupancy),
        "block": f"{tile.bm0}, {tile.bn0}, {tile.bk0}, {tile.bn1}, {tile.bk1}, {tile.bk0max}",
        "waves0": f"{tile.rm0}, {tile.rn0}, {tile.rk0}",
        "waves1": f"{tile.rm1}, {tile.rn1}, {tile.rk1}",
        "warp_tile0": f"{tile.wm0}, {tile.wn0}, {tile.wk0}",
        "warp_tile1": f"{tile.wm1}, {tile.wn1}, {tile.wk1}",
    }


@functools.cache
def _type_words(dtype: str, pipeline: str, mask_impl: str, mask: str, bias: str, qscale: str) -> Mapping[str, str]:
    words = spellings()
    return {
        "element": words["dtype"][dtype]["type"],
        "pipeline": words["pipeline"][pipeline]["type"],
        "pipeline_enum": words["pipeline"][pipeline]["enum"],
        "mask": words["mask"][mask_impl][mask]["type"],
        "bias": words["bias"][bias]["enum"],
        "qscale": words["qscale"][qscale]["enum"],
    }


@functools.cache
def _layout_words(mode: str, vlayout: str, pad: str) -> Mapping[str, str]:
    spad, skpad, dpad, dvpad = (_flag(flag) for flag in pad_flags(pad))
    return {
        "group_mode": _flag(mode == "group"),
        "v_rowmajor": _flag(vlayout == "row"),
        "pads": f"{spad}, {skpad}, {dpad}, {dvpad}",
        "spad": spad,
        "dvpad": dvpad,
    }


@functools.cache
def _page_words(
    page_size: int | None, kv_layout: str | None, kv_table: str | None, load: str | None
) -> Mapping[str, str]:
    """Words that only paged dialects use; gload bodies are for gfx94x and gfx950, which have the instruction."""
    words = spellings()
    return {
        "page_size": str(page_size),
        "kv_layout": words["kv_layout"][kv_layout] if kv_layout else "",
        "kv_table": words["kv_table"][kv_table] if kv_table else "",
        "load": words["load"][load] if load else "",
        "guard": "defined(__gfx94__) || defined(__gfx950__)" if load == "gload" else "",
    }


def instance(key: Key, cpp: Features, space: str) -> dict[str, str]:
    """The words of instance.hip.j2 for one key; ``space`` is the namespace of its aliases.

    Words that depend on a few axes are made once for each of their combinations: there are far fewer than keys.
    """
    return {
        **_tile_words(key.tile),
        **_type_words(key.dtype, key.pipeline, key.mask_impl, key.mask, key.bias, key.qscale),
        **_layout_words(key.mode, key.vlayout, key.pad),
        **_page_words(key.page_size, key.kv_layout, key.kv_table, key.load),
        "space": space,
        "name": key.name,
        "logits": _FLAG[key.logits],
        "lse": _FLAG[key.lse],
        "dropout": _FLAG[key.dropout],
        "sink": _FLAG[key.sink],
        "trait": dispatch_trait(key, cpp),
    }


def dispatch_trait(key: Key, cpp: Features) -> str:
    """The type by which dispatch and instance find each other."""
    types = _type_words(key.dtype, key.pipeline, key.mask_impl, key.mask, key.bias, key.qscale)
    layout = _layout_words(key.mode, key.vlayout, key.pad)
    common = (
        f"{key.hdim_q}, {types['element']}, {layout['group_mode']}, {_tile_words(key.tile)['block']}, "
        f"{layout['v_rowmajor']}, {types['pipeline_enum']}, {_FLAG[key.logits]}, {types['mask']}, {types['bias']}, "
        f"{_FLAG[key.lse]}, {_FLAG[key.dropout]}, "
    )
    if not cpp.paged:
        trload = ", false" if cpp.trait_names_trload else ""
        return f"fmha_fwd_traits_<{common}false, {layout['pads']}{trload}>"
    page = _page_words(key.page_size, key.kv_layout, key.kv_table, key.load)
    return (
        f"fmha_fwd_batch_prefill_traits_<{common}{types['qscale']}, {layout['pads']}, false, false, {_FLAG[key.sink]}, "
        f"{page['page_size']}, {page['kv_layout']}, {page['kv_table']}, {page['load']}>"
    )


def conditions(key: Key, cpp: Features) -> tuple[str, ...]:
    """What a request must meet for this kernel, beyond dtype and head dim: joined by && in the dispatch.

    Source: fmha_batch_prefill.py of each age (FmhaFwdApiTrait checks).
    """
    return (
        *_layout_conditions(key.mode, key.vlayout),
        f"t.has_logits_soft_cap == {_FLAG[key.logits]}",
        *_type_conditions(key.mask_impl, key.mask, key.bias),
        f"t.has_lse == {_FLAG[key.lse]}",
        f"t.has_dropout == {_FLAG[key.dropout]}",
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
    return f"t.is_group_mode == {_flag(mode == 'group')}", f"t.is_v_rowmajor == {_flag(vlayout == 'row')}"


@functools.cache
def _type_conditions(mask_impl: str, mask: str, bias: str) -> tuple[str, ...]:
    words = spellings()
    return words["mask"][mask_impl][mask]["check"], f"t.bias_type == {words['bias'][bias]['check']}"


@functools.cache
def _scale_conditions(paged: bool, qscale: str, sink: bool | None) -> tuple[str, ...]:
    if not paged:
        return ("t.do_fp8_static_quant == false",)
    return f"t.qscale_type == {spellings()['qscale'][qscale]['check']}", f"t.has_sink == {_flag(sink)}"


@functools.cache
def _shape_conditions(mode: str, pad: str, dtype: str, tile: Tile) -> tuple[str, ...]:
    """Sequence lengths (group mode always pads them), head dims in whole 16-byte loads, the tile's own condition."""
    vec, bn0 = 16 // spellings()["dtype"][dtype]["bytes"], tile.bn0
    found = []
    if mode == "batch":
        whole = f"a.seqlen_k != 0 && a.seqlen_k % {bn0} == 0"
        found.append(whole if pad == "psddv" else f"(a.seqlen_k == 0 || a.seqlen_k % {bn0} != 0)")
    found += [f"a.hdim_q % {vec} == 0", f"a.hdim_v % {vec} == 0"]
    if when := spellings()["when"][tile.when]:
        found.append(when)
    return tuple(found)


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

"""A key in C++ words: what the templates bind, and the conditions under which dispatch takes the kernel.

The spellings are in kernels/spellings.yaml; the order of template arguments is CK's own (TileFmhaTraits,
TileFmhaBatchPrefillTraits, fmha_fwd_traits_, fmha_fwd_batch_prefill_traits_ in fmha_fwd.hpp of each age).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from matrix.keys import Key

_SPELLINGS = Path(__file__).with_name("spellings.yaml")


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


@functools.cache
def spellings() -> Mapping[str, Any]:
    """The C++ words of every axis value, keyed by axis. YAML's ``no`` stays text here (BaseLoader)."""
    text = _SPELLINGS.read_text(encoding="utf-8")
    table: Mapping[str, Any] = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - the one that keeps `no` as text
    return table


def features(dialect: str, *, selector_takes_base: bool = True) -> Features:
    row = spellings()["dialects"][dialect]
    return Features(
        paged=row["paged"] == "true",
        launch_takes_block_size=row["launch_takes_block_size"] == "true",
        trait_names_trload=row["trait_names_trload"] == "true",
        selector_takes_base=selector_takes_base,
    )


def _flag(value: bool | None) -> str:
    return "true" if value else "false"


@functools.cache
def pad_flags(pad: str) -> tuple[bool, bool, bool, bool]:
    """``psskddv`` -> whether seqlen_q, seqlen_k, hdim_q, hdim_v are padded (CK: kPadSeqLenQ, K, HeadDimQ, HeadDimV)."""
    match = re.fullmatch(r"p(s)?(sk)?(d)?(dv)?", pad)
    if match is None:
        raise ValueError(f"no padding word: {pad}")
    seqlen_q, seqlen_k, hdim_q, hdim_v = (group is not None for group in match.groups())
    return seqlen_q, seqlen_k, hdim_q, hdim_v


def instance(key: Key, cpp: Features, space: str) -> dict[str, str]:
    """The context of instance.hip.j2 for one key; ``space`` is the namespace of its aliases."""
    words, tile = spellings(), key.tile
    spad, skpad, dpad, dvpad = (_flag(flag) for flag in pad_flags(key.pad))
    return {
        "space": space,
        "name": key.name,
        "element": words["dtype"][key.dtype]["type"],
        "mask": words["mask"][key.mask_impl][key.mask]["type"],
        "logits": _flag(key.logits),
        "bias": words["bias"][key.bias]["enum"],
        "lse": _flag(key.lse),
        "dropout": _flag(key.dropout),
        "qscale": words["qscale"][key.qscale]["enum"],
        "sink": _flag(key.sink),
        "page_size": str(key.page_size),
        "kv_layout": words["kv_layout"].get(key.kv_layout, ""),
        "kv_table": words["kv_table"].get(key.kv_table, ""),
        "load": words["load"].get(key.load, ""),
        "guard": "defined(__gfx94__) || defined(__gfx950__)" if key.load == "gload" else "",
        "pads": f"{spad}, {skpad}, {dpad}, {dvpad}",
        "spad": spad,
        "dvpad": dvpad,
        "v_rowmajor": _flag(key.vlayout == "row"),
        "group_mode": _flag(key.mode == "group"),
        "occupancy": str(tile.occupancy),
        "block": f"{tile.bm0}, {tile.bn0}, {tile.bk0}, {tile.bn1}, {tile.bk1}, {tile.bk0max}",
        "waves0": f"{tile.rm0}, {tile.rn0}, {tile.rk0}",
        "waves1": f"{tile.rm1}, {tile.rn1}, {tile.rk1}",
        "warp_tile0": f"{tile.wm0}, {tile.wn0}, {tile.wk0}",
        "warp_tile1": f"{tile.wm1}, {tile.wn1}, {tile.wk1}",
        "pipeline": words["pipeline"][key.pipeline]["type"],
        "trait": dispatch_trait(key, cpp),
    }


def dispatch_trait(key: Key, cpp: Features) -> str:
    """The type by which dispatch and instance find each other."""
    words, tile = spellings(), key.tile
    arguments = [
        str(key.hdim_q),
        words["dtype"][key.dtype]["type"],
        _flag(key.mode == "group"),
        *(str(n) for n in (tile.bm0, tile.bn0, tile.bk0, tile.bn1, tile.bk1, tile.bk0max)),
        _flag(key.vlayout == "row"),
        words["pipeline"][key.pipeline]["enum"],
        _flag(key.logits),
        words["mask"][key.mask_impl][key.mask]["type"],
        words["bias"][key.bias]["enum"],
        _flag(key.lse),
        _flag(key.dropout),
        words["qscale"][key.qscale]["enum"] if cpp.paged else "false",
        *(_flag(flag) for flag in pad_flags(key.pad)),
    ]
    if cpp.trait_names_trload:
        arguments.append("false")
    if not cpp.paged:
        return f"fmha_fwd_traits_<{', '.join(arguments)}>"
    arguments += [
        "false",
        _flag(key.sink),
        str(key.page_size),
        words["kv_layout"][key.kv_layout],
        words["kv_table"][key.kv_table],
        words["load"][key.load],
    ]
    return f"fmha_fwd_batch_prefill_traits_<{', '.join(arguments)}>"


def conditions(key: Key, cpp: Features) -> list[str]:
    """What a request must meet for this kernel, beyond dtype and head dim: joined by && in the dispatch.

    Source: fmha_batch_prefill.py of each age (FmhaFwdApiTrait checks). Group mode always pads seqlens. ``vec`` is the
    number of elements of a 16-byte load, which hdim must be a multiple of.
    """
    words = spellings()
    vec = 16 // int(words["dtype"][key.dtype]["bytes"])
    found = [
        f"t.is_group_mode == {_flag(key.mode == 'group')}",
        f"t.is_v_rowmajor == {_flag(key.vlayout == 'row')}",
        f"t.has_logits_soft_cap == {_flag(key.logits)}",
        words["mask"][key.mask_impl][key.mask]["check"],
        f"t.bias_type == {words['bias'][key.bias]['check']}",
        f"t.has_lse == {_flag(key.lse)}",
        f"t.has_dropout == {_flag(key.dropout)}",
    ]
    if cpp.paged:
        found += [f"t.qscale_type == {words['qscale'][key.qscale]['check']}", f"t.has_sink == {_flag(key.sink)}"]
    else:
        found.append("t.do_fp8_static_quant == false")
    if key.mode == "batch":
        whole = key.pad == "psddv"
        bn0 = key.tile.bn0
        found.append(
            f"a.seqlen_k != 0 && a.seqlen_k % {bn0} == 0" if whole else f"(a.seqlen_k == 0 || a.seqlen_k % {bn0} != 0)"
        )
    found += [f"a.hdim_q % {vec} == 0", f"a.hdim_v % {vec} == 0"]
    if when := words["when"][key.tile.when]:
        found.append(when)
    if cpp.paged:
        found += [
            f"t.kv_memory_layout == {words['kv_layout'][key.kv_layout]}",
            f"t.kv_lookup_table == {words['kv_table'][key.kv_table]}",
            f"t.page_size == {key.page_size}",
            f"{_load_selector(key, cpp)} == {words['load'][key.load]}",
        ]
    return found


def _load_selector(key: Key, cpp: Features) -> str:
    base = ", a.k_ptr, a.v_ptr" if cpp.selector_takes_base else ""
    strides = "a.batch_stride_k, a.batch_stride_v" if cpp.selector_takes_base else "a.batch_stride_k"
    return (
        f"fmha_batch_prefill_select_kv_load_mode(a.page_block_size, {key.tile.bn0}, a.num_total_pages, "
        f"{strides}, kElementBytes{base})"
    )

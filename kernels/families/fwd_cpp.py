"""Keys of fwd, fwd_pagedkv, fwd_splitkv and its combine stage in C++ words, as cpp.py has batch prefill's.

The order of template arguments is CK's own (fmha_fwd_traits_, fmha_fwd_pagedkv_traits_, fmha_fwd_splitkv_traits_,
fmha_fwd_splitkv_combine_traits_ in fmha_fwd.hpp). An instance names the arch it is for: the same traits are built once
for each arch trait, told apart by a tag type, and device code is guarded to its own arch.
"""

from __future__ import annotations

import functools

from kernels.families.cpp import pad_flags
from kernels.families.spellings import Words, spellings
from matrix.keys import Key

FWD = "fwd"
PAGED = "fwd_pagedkv"
SPLITKV = "fwd_splitkv"
COMBINE = "fwd_splitkv_combine"
_PIPELINES = {FWD: "fwd_pipeline", PAGED: "pagedkv_pipeline", SPLITKV: "splitkv_pipeline"}

# What CK's codegen loads at once along head dim, by the tile's kK0 block length (K0_MAX_SUBMAX_MAP).
_LOADED = {32: 32, 48: 48, 64: 64, 96: 128, 128: 128, 192: 192, 256: 256}


def flag(value: bool | None) -> str:
    return "true" if value else "false"


def arch_tag(arch_trait: str) -> str:
    return f"ck_tile::{arch_trait}_t"


def device_check(arch_trait: str) -> str:
    """The condition on ``device_name`` under which dispatch looks among an arch trait's kernels."""
    return f'device_name.compare(0, {len(arch_trait)}, "{arch_trait}") == 0'


def guard(key: Key) -> str:
    """Where device code is compiled. gfx950 has fwd kernels of its own, so those for gfx9 leave it out."""
    if (key.family, key.arch_trait) == (FWD, "gfx9"):
        return "defined(__gfx9__) && !defined(__gfx950__)"
    return f"defined(__{key.arch_trait}__)"


@functools.cache
def _pads(pad: str) -> tuple[str, str, str, str]:
    seqlen_q, seqlen_k, hdim_q, hdim_v = pad_flags(pad)
    return flag(seqlen_q), flag(seqlen_k), flag(hdim_q), flag(hdim_v)


def _pipeline(key: Key) -> Words:
    words: Words = spellings()[_PIPELINES[key.family]][key.pipeline]
    return words


def instance(key: Key, space: str) -> dict[str, str]:
    """The words of the family's instance template; ``space`` is the namespace of its aliases."""
    words, tile = spellings(), key.tile
    spad, skpad, dpad, dvpad = _pads(key.pad)
    found = {
        "space": space,
        "name": key.name,
        "guard": guard(key),
        "tag": arch_tag(key.arch_trait),
        "trait": trait(key),
        "hdim": str(key.hdim_q),
        "element": words["dtype"][key.dtype]["type"],
        "group_mode": flag(key.mode == "group"),
        "spad": spad,
        "dvpad": dvpad,
        "lse": flag(key.lse),
        "squant": flag(key.qscale == "pertensor"),
        "occupancy": str(tile.occupancy),
        "bn0": str(tile.bn0),
        "bn1": str(tile.bn1),
    }
    if key.family == COMBINE:
        return found
    return {
        **found,
        "block": f"{tile.bm0}, {tile.bn0}, {tile.bk0}, {tile.bn1}, {tile.bk1}, {tile.bk0max}",
        "waves0": f"{tile.rm0}, {tile.rn0}, {tile.rk0}",
        "waves1": f"{tile.rm1}, {tile.rn1}, {tile.rk1}",
        "warp_tile0": f"{tile.wm0}, {tile.wn0}, {tile.wk0}",
        "warp_tile1": f"{tile.wm1}, {tile.wn1}, {tile.wk1}",
        "pads": f"{spad}, {skpad}, {dpad}, {dvpad}",
        "pipeline": _pipeline(key)["type"],
        "mask": words["mask"][key.mask_impl][key.mask]["type"],
        "bias": words["bias"][key.bias]["enum"],
        "v_rowmajor": flag(key.vlayout == "row"),
        "logits": flag(key.logits),
        "dropout": flag(key.dropout),
        "skip": flag(key.skip),
        "trload": flag(key.trload),
        "paged_kv": flag(key.paged_kv),
    }


def trait(key: Key) -> str:
    """The type by which dispatch and instance find each other, besides the arch tag."""
    words, tile = spellings(), key.tile
    spad, skpad, dpad, dvpad = _pads(key.pad)
    squant = flag(key.qscale == "pertensor")
    start = f"{key.hdim_q}, {words['dtype'][key.dtype]['type']}, {flag(key.mode == 'group')}"
    if key.family == COMBINE:
        return f"fmha_fwd_splitkv_combine_traits_<{start}, {tile.bn1}, {flag(key.lse)}, {squant}, {spad}, {dvpad}>"
    common = (
        f"{start}, {tile.bm0}, {tile.bn0}, {tile.bk0}, {tile.bn1}, {tile.bk1}, {tile.bk0max}, "
        f"{flag(key.vlayout == 'row')}, {_pipeline(key)['enum']}, {flag(key.logits)}, "
        f"{words['mask'][key.mask_impl][key.mask]['type']}, {words['bias'][key.bias]['enum']}, {flag(key.lse)}"
    )
    pads = f"{spad}, {skpad}, {dpad}, {dvpad}"
    if key.family == SPLITKV:
        return f"fmha_fwd_splitkv_traits_<{common}, {squant}, {flag(key.paged_kv)}, {pads}>"
    if key.family == PAGED:
        return f"fmha_fwd_pagedkv_traits_<{common}, {flag(key.paged_kv)}, {squant}, {pads}, {flag(key.skip)}>"
    return f"fmha_fwd_traits_<{common}, {flag(key.dropout)}, {squant}, {pads}, {flag(key.trload)}, {flag(key.skip)}>"


def conditions(key: Key, largest_bm0: int) -> tuple[str, ...]:
    """What a request must meet for a kernel of any family but the combine stage, beyond device, dtype and head dims.

    ``largest_bm0`` is the largest kM0 among the kernels of the same device, dtype and head dims: in fwd a smaller tile
    serves no more queries than it has rows. Source: FmhaFwdApiTrait and FmhaFwdSplitKVApiTrait of fmha_fwd.py,
    fmha_pagedkv_prefill.py and fmha_fwd_splitkv.py.
    """
    words = spellings()
    found = [
        f"t.is_group_mode == {flag(key.mode == 'group')}",
        f"t.is_v_rowmajor == {flag(key.vlayout == 'row')}",
        f"t.has_logits_soft_cap == {flag(key.logits)}",
        words["mask"][key.mask_impl][key.mask]["check"],
        f"t.bias_type == {words['bias'][key.bias]['check']}",
        f"t.do_fp8_static_quant == {flag(key.qscale == 'pertensor')}",
    ]
    if key.family == FWD:
        found += [
            f"t.has_lse == {flag(key.lse)}",
            f"t.has_dropout == {flag(key.dropout)}",
            f"t.skip_min_seqlen_q == {flag(key.skip)}",
        ]
        if key.tile.bm0 != largest_bm0:
            found.append(f"a.seqlen_q <= {key.tile.bm0}")
    elif key.family == PAGED:
        found += [
            f"t.has_lse == {flag(key.lse)}",
            f"t.use_pagedkv == {flag(key.paged_kv)}",
            f"t.skip_min_seqlen_q == {flag(key.skip)}",
        ]
    else:
        found.append(f"(a.block_table_ptr != nullptr) == {flag(key.paged_kv)}")
    if when := words["when"][key.tile.when]:
        found.append(when)
    return (*found, *_lengths(key), *_head_dims(key))


def _lengths(key: Key) -> tuple[str, ...]:
    """Sequence lengths: group mode pads them always; a kernel that pads takes any (qr) or what is left (qr_async)."""
    if key.mode == "group" or key.pipeline == "qr_async_trload":
        return ()
    spad, skpad, _, _ = pad_flags(key.pad)
    whole = f"a.seqlen_k % {key.tile.bn0} == 0"
    if key.pipeline == "qr_async":
        if skpad:
            return (f"(a.cu_seqlen_k_ptr != nullptr || a.seqlen_k == 0 || a.seqlen_k % {key.tile.bn0} != 0)",)
        return "a.cu_seqlen_k_ptr == nullptr", "a.seqlen_k != 0", whole
    found = () if spad else (f"a.seqlen_q % {key.tile.bm0} == 0",)
    if skpad:
        return found
    if key.family != FWD:
        return (*found, "a.seqlen_k_ptr == nullptr", whole)
    return (*found, "a.cu_seqlen_k_ptr == nullptr", "a.seqlen_k != 0", whole)


def _head_dims(key: Key) -> tuple[str, ...]:
    """qr_async loads 16 bytes at once; the others load whole tiles unless they pad."""
    if key.pipeline == "qr_async":
        unit = 16 // spellings()["dtype"][key.dtype]["bytes"]
        return f"a.hdim_q % {unit} == 0", f"a.hdim_v % {unit} == 0"
    _, _, dpad, dvpad = pad_flags(key.pad)
    unit = _LOADED[key.tile.bk0max]
    return tuple(f"a.{name} % {unit} == 0" for name, padded in (("hdim_q", dpad), ("hdim_v", dvpad)) if not padded)


def merges(hdim_q: int, bias: str, mask: str) -> bool:
    """Whether such a key of fwd_splitkv also has kernels that merge the heads of one KV head into Q's rows."""
    return hdim_q == 128 and bias == mask == "no"


def combine_place(key: Key) -> tuple[object, ...]:
    """What a kernel of fwd_splitkv and the combine kernels that serve it have in common."""
    spad, _, _, dvpad = pad_flags(key.pad)
    return key.arch_trait, key.dtype, key.hdim_q, key.mode, key.qscale, spad, dvpad

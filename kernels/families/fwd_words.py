"""C++ spellings and dispatch conditions that fwd, fwd_pagedkv and fwd_splitkv share.

An instance names its arch: the same traits are built once for each arch trait, with a tag type that differs. Device
code is compiled for its own arch alone.
"""

from __future__ import annotations

from ckpm.kernels.families.spellings import Words, spellings
from ckpm.kernels.families.words import arch_tag, element, flag, guard, pad_flags, pad_words, tile_words
from ckpm.matrix.keys import Key

# Elements that CK's codegen loads at once along head dim, by the tile's kK0 block length (K0_MAX_SUBMAX_MAP).
_LOADED = {32: 32, 48: 48, 64: 64, 96: 128, 128: 128, 192: 192, 256: 256}


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


def attention(key: Key, space: str, trait: str, pipeline: Words) -> dict[str, str]:
    """Substitutions of an attention kernel's instance; ``pipeline`` holds the spellings of its pipeline."""
    known = spellings()
    return {
        **common(key, space, trait),
        **tile_words(key.tile),
        "pads": pad_words(key.pad)["pads"],
        "pipeline": pipeline["type"],
        "mask": known["mask"][key.mask_impl][key.mask]["type"],
        "bias": known["bias"][key.bias]["enum"],
        "v_rowmajor": flag(key.vlayout == "row"),
        "logits": flag(key.logits),
        "dropout": flag(key.dropout),
        "skip": flag(key.skip),
        "trload": flag(key.trload),
        "paged_kv": flag(key.paged_kv),
    }


def trait_start(key: Key) -> str:
    """The first template arguments of all traits of these families."""
    return f"{key.hdim_q}, {element(key)}, {flag(key.mode == 'group')}"


def attention_start(key: Key, pipeline: Words) -> str:
    """The first template arguments of the traits of attention kernels, up to LSE."""
    known = spellings()
    return (
        f"{trait_start(key)}, {tile_words(key.tile)['block']}, {flag(key.vlayout == 'row')}, {pipeline['enum']}, "
        f"{flag(key.logits)}, {known['mask'][key.mask_impl][key.mask]['type']}, {known['bias'][key.bias]['enum']}, "
        f"{flag(key.lse)}"
    )


def attention_conditions(key: Key, own: tuple[str, ...], whole: tuple[str, ...]) -> tuple[str, ...]:
    """The conditions of a request for an attention kernel besides device, dtype and head dims.

    ``own`` are the conditions of the family's features, ``whole`` further ones if K's length isn't padded. Source:
    FmhaFwdApiTrait and FmhaFwdSplitKVApiTrait of fmha_fwd.py, fmha_pagedkv_prefill.py and fmha_fwd_splitkv.py.
    """
    known = spellings()
    conditions = (
        f"t.is_group_mode == {flag(key.mode == 'group')}",
        f"t.is_v_rowmajor == {flag(key.vlayout == 'row')}",
        f"t.has_logits_soft_cap == {flag(key.logits)}",
        known["mask"][key.mask_impl][key.mask]["check"],
        f"t.bias_type == {known['bias'][key.bias]['check']}",
        f"t.do_fp8_static_quant == {squant(key)}",
        *own,
    )
    when = known["when"][key.tile.when]
    return (*conditions, *((when,) if when else ()), *_lengths(key, whole), *_head_dims(key))


def _lengths(key: Key, whole: tuple[str, ...]) -> tuple[str, ...]:
    """Sequence lengths: group mode pads them always; a kernel that pads takes any (qr) or what is left (qr_async)."""
    if key.mode == "group" or key.pipeline == "qr_async_trload":
        return ()
    spad, skpad, _, _ = pad_flags(key.pad)
    tiles = f"a.seqlen_k % {key.tile.bn0} == 0"
    if key.pipeline == "qr_async":
        if skpad:
            return (f"(a.cu_seqlen_k_ptr != nullptr || a.seqlen_k == 0 || a.seqlen_k % {key.tile.bn0} != 0)",)
        return *whole, tiles
    query = () if spad else (f"a.seqlen_q % {key.tile.bm0} == 0",)
    return query if skpad else (*query, *whole, tiles)


def _head_dims(key: Key) -> tuple[str, ...]:
    """qr_async loads 16 bytes at once; the others load whole tiles unless they pad."""
    if key.pipeline == "qr_async":
        unit = 16 // spellings()["dtype"][key.dtype]["bytes"]
        return f"a.hdim_q % {unit} == 0", f"a.hdim_v % {unit} == 0"
    _, _, dpad, dvpad = pad_flags(key.pad)
    unit = _LOADED[key.tile.bk0max]
    return tuple(f"a.{name} % {unit} == 0" for name, padded in (("hdim_q", dpad), ("hdim_v", dvpad)) if not padded)

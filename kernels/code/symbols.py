"""Which mangled symbol of a code object is which kernel, told by the template arguments that the symbol spells.

Symbols follow the Itanium C++ ABI: ``Li64E`` is the int 64, ``Lb1E`` true, ``LNS_22BlockAttentionBiasEnumE2E`` (or a
substitution such as ``LSA_2E``) an enumerator's value. Enumerators' values are CK's (block_attention_*_enum.hpp).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernels.errors import CodeObjectError
from kernels.families.cpp import pad_flags
from kernels.families.fwd_cpp import merges

_ENUM = r"L(?:N[\w]*?E|S\w*_)"  # an enumeration's type, before its value
_BIAS = {"no": 0, "bias": 1, "alibi": 2}
_QSCALE = {"no": 0, "pertensor": 1, "kv_blockscale": 3}
_LAYOUT = {"vectorized": 0, "linear": 1}
_TABLE = {"vllm": 0, "sglang": 1}
_ROPE = {"no": 0, "inter": 1, "half": 2}
_LOAD = {"bload": 0, "gload": 1}
# GenericAttentionMask<IsMasking, IsLocal>; SimplifiedGenericAttentionMask<IsMasking>
_MASK = {
    ("simplified", "no"): r"SimplifiedGenericAttentionMaskILb0EE",
    ("simplified", "mask"): r"SimplifiedGenericAttentionMaskILb1EE",
    ("generic", "no"): r"GenericAttentionMaskILb0ELb[01]EE",
    ("generic", "causal"): r"GenericAttentionMaskILb1ELb0EE",
    ("generic", "generic"): r"GenericAttentionMaskILb1ELb1EE",
}


_FWD_PIPELINE = {
    "qr": "BlockFmhaPipelineQRKSVS",
    "qr_async": "BlockFmhaPipelineQRKSVSAsync",
    "qr_async_trload": "BlockFmhaPipelineQRKSVSAsyncTrload",
}


def pattern(values: Mapping[str, Any], family: str = "batch_prefill") -> re.Pattern[str]:
    """What the symbol of the kernel with these axis values contains, in order. Paged dialects spell more."""
    if family == "fwd_splitkv_combine":
        return _combine_pattern(values)
    if family == "fwd_appendkv":
        return _appendkv_pattern(values)
    if family == "fwd_v3":
        return _v3_pattern(values)
    tile = values["tile"]
    block = "".join(f"Li{n}E" for n in (tile.bm0, tile.bn0, tile.bk0, tile.bn1, tile.bk1, tile.bk0max))
    shape = rf"sequenceIJ{block}EEE.*?Lb{int(values['vlayout'] == 'row')}EEELb{int(values['mode'] == 'group')}E"
    pads = "".join(f"Lb{int(flag)}E" for flag in pad_flags(values["pad"]))
    traits = (
        rf"TraitsI{pads}Lb{int(values['logits'])}E{_ENUM}{_BIAS[values['bias']]}E"
        rf"Lb0ELb{int(values['lse'])}E"
    )
    if family == "fwd_splitkv":
        shape = rf"FmhaFwdSplitKVKernelI.*?{shape}"
        # the key's variants differ in what follows: whether splits are uneven, whether heads are merged
        traits += rf"Lb{int(values['qscale'] == 'pertensor')}ELb{int(values['paged_kv'])}E"
    elif family == "fwd_pagedkv":
        shape = rf"FmhaFwdPagedKVKernelI.*?{shape}"
        traits += rf"Lb{int(values['paged_kv'])}ELb{int(values['qscale'] == 'pertensor')}E"
        traits += rf"Li{_number(tile.occupancy)}ELb{int(values['skip'])}E"
    else:
        traits += rf"Lb{int(values['dropout'])}E"
    if values.get("page_size") is not None:
        traits += (
            rf"{_ENUM}{_QSCALE[values['qscale']]}ELi\w+?ELb0ELb{int(values['sink'])}ELi{values['page_size']}E"
            rf"{_ENUM}{_LAYOUT[values['kv_layout']]}E{_ENUM}{_TABLE[values['kv_table']]}E{_ENUM}{_LOAD[values['load']]}E"
        )
    if family == "fwd":
        traits += rf"Lb{int(values['qscale'] == 'pertensor')}ELi{_number(tile.occupancy)}ELb{int(values['skip'])}E"
        shape = rf"FmhaFwdKernelI.*?{_FWD_PIPELINE[values['pipeline']]}I.*?{shape}"
    return re.compile(rf"{shape}.*?{_MASK[values['mask_impl'], values['mask']]}.*?{traits}")


def _combine_pattern(values: Mapping[str, Any]) -> re.Pattern[str]:
    spad, _, _, dvpad = pad_flags(values["pad"])
    problem = rf"Li{values['hdim_q']}ELb{int(values['mode'] == 'group')}ELi{values['tile'].bn1}E"
    # the key's variants differ in the bound of the number of splits
    traits = rf"Lb{int(spad)}ELb{int(dvpad)}ELb{int(values['lse'])}ELb{int(values['qscale'] == 'pertensor')}ELi[3-7]E"
    return re.compile(rf"FmhaFwdSplitKVCombineKernelI.*?ProblemI\w+?{problem}\w+?CombineTraitsI{traits}")


def _appendkv_pattern(values: Mapping[str, Any]) -> re.Pattern[str]:
    tile = values["tile"]
    block = "".join(f"Li{n}E" for n in (tile.bs, tile.bsk, tile.bd, tile.bdv))
    problem = rf"{block}Lb{int(values['vlayout'] == 'row')}E{_ENUM}{_ROPE[values['rope']]}ELb{int(values['paged_kv'])}E"
    pads = "".join(f"Lb{int(flag)}E" for flag in pad_flags(values["pad"]))
    # element types come first, the same for all kernels of a unit
    return re.compile(rf"FmhaFwdAppendKVKernelI.*?ProblemI\w+?{problem}\w+?TraitsI{pads}Li{_number(tile.occupancy)}E")


def _v3_pattern(values: Mapping[str, Any]) -> re.Pattern[str]:
    """A unit's kernels are of one dtype and tile: only the mask tells them apart."""
    mask = _MASK[values["mask_impl"], values["mask"]]
    return re.compile(rf"FmhaFwdV3KernelI.*?BlockFmhaFwdV3PipelineProblemI.*?{mask}.*?TileFmhaFwdV3TraitsI")


def _number(value: int) -> str:
    return str(value).replace("-", "n")


def variants(values: Mapping[str, Any], family: str) -> int:
    """How many kernels a key is compiled to: one but with split-KV (templates/splitkv_ and combine_instance.hip.j2)."""
    if family == "fwd_splitkv_combine":
        return 5
    if family != "fwd_splitkv":
        return 1
    merged: bool = merges(values["hdim_q"], values["bias"], values["mask"])
    return (2 if values["mode"] == "batch" else 1) * (2 if merged else 1)


def match(keys: Mapping[str, Mapping[str, Any]], symbols: Sequence[str], where: str) -> dict[str, str]:
    """Kernel name -> symbol, for batch prefill's kernels of one unit (one dtype).

    Raises:
        CodeObjectError: a kernel has no symbol or several, or a symbol is left over.
    """
    return {name: found for name, (found,) in match_all(keys, symbols, where, "batch_prefill").items()}


def match_all(
    keys: Mapping[str, Mapping[str, Any]], symbols: Sequence[str], where: str, family: str
) -> dict[str, list[str]]:
    """Kernel name -> the symbols of its variants, for kernels of one unit (one family and dtype).

    Raises:
        CodeObjectError: a kernel has too few symbols or too many, or a symbol is left over.
    """
    found: dict[str, list[str]] = {}
    for name, values in keys.items():
        wanted, count = pattern(values, family), variants(values, family)
        found[name] = [symbol for symbol in symbols if wanted.search(symbol)]
        if len(found[name]) != count:
            raise CodeObjectError(
                f"{where}: {len(found[name])} of {len(symbols)} kernel symbols are {name}; "
                f"{'one was' if count == 1 else f'{count} were'} planned. "
                "Remove the object and build again; if it persists, the compiled code is not what was rendered."
            )
    if left := set(symbols) - {symbol for group in found.values() for symbol in group}:
        raise CodeObjectError(f"{where}: {len(left)} kernels that nobody planned, e.g. {min(left)}.")
    return found

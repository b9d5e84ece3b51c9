"""Parts of mangled symbols that the families share: template arguments as a kernel's symbol spells them.

Symbols follow the Itanium C++ ABI: ``Li64E`` is the int 64, ``Lb1E`` true, ``LNS_22BlockAttentionBiasEnumE2E`` (or a
substitution such as ``LSA_2E``) an enumerator's value. Enumerators' values are CK's (block_attention_*_enum.hpp).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ckpm.kernels.families.spellings import pad_flags

ENUM = r"L(?:N(?:(?!E\d)\w)*E|S[0-9A-Z]*_)"  # an enumeration's type, before its value
_BIAS = {"no": 0, "bias": 1, "alibi": 2}
_QSCALE = {"no": 0, "pertensor": 1, "blockscale": 2, "kv_blockscale": 3, "mx": 4}
_LAYOUT = {"vectorized": 0, "linear": 1}
_TABLE = {"vllm": 0, "sglang": 1}
_LOAD = {"bload": 0, "gload": 1}
# GenericAttentionMask<IsMasking, IsLocal>; SimplifiedGenericAttentionMask<IsMasking>
_MASK = {
    ("simplified", "no"): r"SimplifiedGenericAttentionMaskILb0EE",
    ("simplified", "mask"): r"SimplifiedGenericAttentionMaskILb1EE",
    ("generic", "no"): r"GenericAttentionMaskILb0ELb[01]EE",
    ("generic", "causal"): r"GenericAttentionMaskILb1ELb0EE",
    ("generic", "generic"): r"GenericAttentionMaskILb1ELb1EE",
}


def number(value: int) -> str:
    return str(value).replace("-", "n")


def boolean(value: object) -> str:
    return f"Lb{int(bool(value))}E"


def pads(word: str) -> str:
    return "".join(map(boolean, pad_flags(word)))


def mask(values: Mapping[str, Any]) -> str:
    return _MASK[values["mask_impl"], values["mask"]]


def squant(values: Mapping[str, Any]) -> str:
    """``true`` if scales are static, one for each tensor."""
    return boolean(values["qscale"] == "pertensor")


def shape(values: Mapping[str, Any]) -> str:
    """The pattern of TileFmhaShape, followed by the flag of group mode."""
    tile = values["tile"]
    block = "".join(f"Li{n}E" for n in (tile.bm0, tile.bn0, tile.bk0, tile.bn1, tile.bk1, tile.bk0max))
    return rf"sequenceIJ{block}EEE.*?{boolean(values['vlayout'] == 'row')}EE{boolean(values['mode'] == 'group')}"


def traits(values: Mapping[str, Any]) -> str:
    """The pattern of the first traits of all attention kernels, up to LSE."""
    return (
        rf"TraitsI{pads(values['pad'])}{boolean(values['logits'])}{ENUM}{_BIAS[values['bias']]}E"
        rf"Lb0E{boolean(values['lse'])}"
    )


def scale(values: Mapping[str, Any]) -> str:
    """The pattern of an enumerator of scales."""
    return f"{ENUM}{_QSCALE[values['qscale']]}E"


def sink(values: Mapping[str, Any]) -> str:
    """The flag of a sink; nothing in dialects without sinks."""
    return "" if values.get("sink") is None else boolean(values["sink"])


def paged_traits(values: Mapping[str, Any]) -> str:
    """The pattern of the traits of batch prefill that follow in dialects with pages as an axis."""
    mode = _LOAD[values["load"]] if values.get("load") else "[01]"  # a key without a load mode matches both
    load = f"{ENUM}{mode}E" + "|E" * (values.get("load") == "bload")  # April 2026's traits end before it
    return (
        rf"{scale(values)}Li\w+?ELb0E{boolean(values['sink'])}Li{values['page_size']}E"
        rf"{ENUM}{_LAYOUT[values['kv_layout']]}E{ENUM}{_TABLE[values['kv_table']]}E(?:{load})"
    )


def attention(values: Mapping[str, Any], shape_: str, traits_: str) -> re.Pattern[str]:
    """The pattern of a symbol: shape, mask and traits, in this order."""
    return re.compile(rf"{shape_}.*?{mask(values)}.*?{traits_}")

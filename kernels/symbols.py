"""Which mangled symbol of a code object is which kernel, told by the template arguments that the symbol spells.

Symbols follow the Itanium C++ ABI: ``Li64E`` is the int 64, ``Lb1E`` true, ``LNS_22BlockAttentionBiasEnumE2E`` (or a
substitution such as ``LSA_2E``) an enumerator's value. Enumerators' values are CK's (block_attention_*_enum.hpp).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernels.cpp import pad_flags
from kernels.errors import CodeObjectError

_ENUM = r"L(?:N[\w]*?E|S\w*_)"  # an enumeration's type, before its value
_BIAS = {"no": 0, "bias": 1, "alibi": 2}
_QSCALE = {"no": 0, "pertensor": 1, "kv_blockscale": 3}
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


_FWD_PIPELINE = {
    "qr": "BlockFmhaPipelineQRKSVS",
    "qr_async": "BlockFmhaPipelineQRKSVSAsync",
    "qr_async_trload": "BlockFmhaPipelineQRKSVSAsyncTrload",
}


def pattern(values: Mapping[str, Any], family: str = "batch_prefill") -> re.Pattern[str]:
    """What the symbol of the kernel with these axis values contains, in order. Paged dialects spell more."""
    tile = values["tile"]
    block = "".join(f"Li{n}E" for n in (tile.bm0, tile.bn0, tile.bk0, tile.bn1, tile.bk1, tile.bk0max))
    shape = rf"sequenceIJ{block}EEE.*?Lb{int(values['vlayout'] == 'row')}EEELb{int(values['mode'] == 'group')}E"
    pads = "".join(f"Lb{int(flag)}E" for flag in pad_flags(values["pad"]))
    traits = (
        rf"TraitsI{pads}Lb{int(values['logits'])}E{_ENUM}{_BIAS[values['bias']]}E"
        rf"Lb0ELb{int(values['lse'])}ELb{int(values['dropout'])}E"
    )
    if values.get("page_size") is not None:
        traits += (
            rf"{_ENUM}{_QSCALE[values['qscale']]}ELi\w+?ELb0ELb{int(values['sink'])}ELi{values['page_size']}E"
            rf"{_ENUM}{_LAYOUT[values['kv_layout']]}E{_ENUM}{_TABLE[values['kv_table']]}E{_ENUM}{_LOAD[values['load']]}E"
        )
    if family == "fwd":
        occupancy = str(tile.occupancy).replace("-", "n")
        traits += rf"Lb{int(values['qscale'] == 'pertensor')}ELi{occupancy}ELb{int(values['skip'])}E"
        shape = rf"FmhaFwdKernelI.*?{_FWD_PIPELINE[values['pipeline']]}I.*?{shape}"
    return re.compile(rf"{shape}.*?{_MASK[values['mask_impl'], values['mask']]}.*?{traits}")


def match(
    keys: Mapping[str, Mapping[str, Any]], symbols: Sequence[str], where: str, family: str = "batch_prefill"
) -> dict[str, str]:
    """Kernel name -> symbol, for kernels of one unit (one family and dtype).

    Raises:
        CodeObjectError: a kernel has no symbol or several, or a symbol is left over.
    """
    found: dict[str, str] = {}
    for name, values in keys.items():
        wanted = pattern(values, family)
        fitting = [symbol for symbol in symbols if wanted.search(symbol)]
        if len(fitting) != 1:
            raise CodeObjectError(
                f"{where}: {len(fitting)} of {len(symbols)} kernel symbols are {name}; one was planned. "
                "Remove the object and build again; if it persists, the compiled code is not what was rendered."
            )
        found[name] = fitting[0]
    if left := set(symbols) - set(found.values()):
        raise CodeObjectError(f"{where}: {len(left)} kernels that nobody planned, e.g. {min(left)}.")
    return found

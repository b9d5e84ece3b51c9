"""Keys of fwd_appendkv in C++ words, as kernels/families/fwd_cpp.py has them for fwd.

The order of template arguments is CK's own (fmha_fwd_appendkv_traits_ in fmha_fwd.hpp).
"""

from __future__ import annotations

from kernels.families.cpp import pad_flags
from kernels.families.fwd_cpp import arch_tag, flag, guard
from kernels.families.spellings import spellings
from matrix.keys import Key

APPENDKV = "fwd_appendkv"


def instance(key: Key, space: str) -> dict[str, str]:
    """The words of the family's instance template; ``space`` is the namespace of its aliases."""
    return {
        "space": space,
        "name": key.name,
        "guard": guard(key),
        "tag": arch_tag(key.arch_trait),
        "trait": trait(key),
        "element": _element(key),
        "block": _block(key),
        "pads": _pads(key),
        "occupancy": str(key.tile.occupancy),
        "v_rowmajor": flag(key.vlayout == "row"),
        "rope": spellings()["rope"][key.rope]["enum"],
        "paged_kv": flag(key.paged_kv),
    }


def trait(key: Key) -> str:
    """The type by which dispatch and instance find each other, besides the arch tag."""
    rope = spellings()["rope"][key.rope]["enum"]
    return (
        f"fmha_fwd_appendkv_traits_<{key.hdim_q}, {_element(key)}, {_block(key)}, {flag(key.vlayout == 'row')}, "
        f"{_pads(key)}, {rope}, {flag(key.paged_kv)}>"
    )


def conditions(key: Key) -> tuple[str, ...]:
    """What a request must meet for the kernel, beyond device, dtype and head dims.

    The length of the cache is known to the device alone, so a kernel pads seqlen_k always. Source:
    FmhaFwdAppendKVApiTrait of fmha_fwd_appendkv.py.
    """
    tile = key.tile
    spad, _, dpad, dvpad = pad_flags(key.pad)
    whole = (("a.seqlen_q", tile.bs, spad), ("a.hdim_q", tile.bd, dpad), ("a.hdim_v", tile.bdv, dvpad))
    return (
        f"t.is_v_rowmajor == {flag(key.vlayout == 'row')}",
        *(f"{length} % {unit} == 0" for length, unit, padded in whole if not padded),
        f"t.rope_type == {spellings()['rope'][key.rope]['check']}",
        f"(a.block_table_ptr != nullptr) == {flag(key.paged_kv)}",
    )


def _element(key: Key) -> str:
    word: str = spellings()["dtype"][key.dtype]["type"]
    return word


def _block(key: Key) -> str:
    return f"{key.tile.bs}, {key.tile.bsk}, {key.tile.bd}, {key.tile.bdv}"


def _pads(key: Key) -> str:
    return ", ".join(map(flag, pad_flags(key.pad)))

"""fwd_appendkv: new keys and values written to a KV cache, Q and K rotated. Its C++, its dispatch, its library.

The order of template arguments is CK's own (fmha_fwd_appendkv_traits_ in fmha_fwd.hpp).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from ckpm.kernels.abi import AppendKvArguments
from ckpm.kernels.families import symbol_spellings
from ckpm.kernels.families.family import Host, KernelFamily, Scenario, Values
from ckpm.kernels.families.fwd_spellings import by_device, nest
from ckpm.kernels.families.kernel_problems import not_laid_out
from ckpm.kernels.families.spellings import (
    Features,
    arch_tag,
    element,
    fill,
    flag,
    guard,
    pad_flags,
    pad_words,
    spellings,
)
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.sessions import FAMILY_SUITE

NAME = "fwd_appendkv"
_ROPE = {"no": 0, "inter": 1, "half": 2}  # CK's RotaryEmbeddingEnum


def substitutions(key: Key, features: Features, space: str) -> dict[str, str]:
    return {
        "space": space,
        "name": key.name,
        "guard": guard(key),
        "tag": arch_tag(key.arch_trait),
        "trait": trait(key),
        "element": element(key),
        "block": _block(key),
        "pads": pad_words(key.pad)["pads"],
        "occupancy": str(key.tile.occupancy),
        "v_rowmajor": flag(key.vlayout == "row"),
        "rope": spellings()["rope"][key.rope]["enum"],
        "paged_kv": flag(key.paged_kv),
    }


def trait(key: Key) -> str:
    """The C++ type that connects dispatch and instance, besides the arch tag."""
    rope = spellings()["rope"][key.rope]["enum"]
    return (
        f"fmha_fwd_appendkv_traits_<{key.hdim_q}, {element(key)}, {_block(key)}, {flag(key.vlayout == 'row')}, "
        f"{pad_words(key.pad)['pads']}, {rope}, {flag(key.paged_kv)}>"
    )


def _block(key: Key) -> str:
    return f"{key.tile.bs}, {key.tile.bsk}, {key.tile.bd}, {key.tile.bdv}"


def conditions(key: Key) -> tuple[str, ...]:
    """The conditions of a request for the kernel besides device, dtype and head dims.

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


def dispatch_text(keys: Sequence[Key], features: Features) -> str:
    """The host dispatch over ``keys``, which must be in upstream's order of emission for each arch trait."""
    ordered = by_device(keys)
    arms = [(key, (trait(key), arch_tag(key.arch_trait), " && ".join(conditions(key)))) for key in ordered]
    names = [key.name for key in ordered]
    return fill("appendkv_dispatch.hip.j2", archs=nest(arms), names=names)


def harness_text(dialect: str, features: Features) -> str:
    """The C ABI of kernels/include_fwd/ckpm_appendkv.h."""
    return fill(
        "appendkv_harness.hip.j2", dialect=dialect, family=NAME, function="fmha_fwd_appendkv", abi="ckpm_appendkv"
    )


def symbol(values: Values) -> re.Pattern[str]:
    """The pattern of a kernel's symbol. Element types come first, the same for all kernels of a unit."""
    tile, boolean = values["tile"], symbol_spellings.boolean
    block = "".join(f"Li{n}E" for n in (tile.bs, tile.bsk, tile.bd, tile.bdv))
    rope = rf"{symbol_spellings.ENUM}{_ROPE[values['rope']]}E"
    problem = rf"{block}{boolean(values['vlayout'] == 'row')}{rope}{boolean(values['paged_kv'])}"
    traits = rf"{symbol_spellings.pads(values['pad'])}Li{symbol_spellings.number(tile.occupancy)}E"
    return re.compile(rf"FmhaFwdAppendKVKernelI.*?ProblemI\w+?{problem}\w+?TraitsI{traits}")


def scenarios(key: Key, keys: Sequence[Key]) -> tuple[Scenario, ...]:
    """Launches of three sequences with new rows across tiles and pages, and cosines for Q's dims in blocks of 16."""
    spad, _, dpad, dvpad = pad_flags(key.pad)
    tile = key.tile
    lengths = (tile.bs + 6, tile.bs) if spad else (tile.bs,)
    dims_q = (key.hdim_q - 8, key.hdim_q) if dpad else (key.hdim_q,)
    dims_v = (key.hdim_v - 8, key.hdim_v) if dvpad else (key.hdim_v,)
    requests = tuple(
        SuiteCase(
            name=f"{FAMILY_SUITE}/{key.name}",
            suite=FAMILY_SUITE,
            tier="full",
            group=NAME,
            family=NAME,
            mode="batch",
            dtype=key.dtype,
            seqlens_q=(seqlen_q,) * 3,
            seqlens_k=(100, 0, 63),
            seqlen_knew=tile.bsk + 6,
            nhead_q=4,
            nhead_k=2,
            hdim_q=dim_q,
            hdim_v=dim_v,
            rope=key.rope or "no",
            rotary_dim=dim_q // 16 * 16,
            page_size=64 if key.paged_kv else 0,
            mask="top_left",
            window_right=0,
        )
        for seqlen_q, dim_q, dim_v in itertools.product(lengths, dims_q, dims_v)
    )
    return (Scenario(label="append", candidates=requests),)


FAMILY = KernelFamily(
    name=NAME,
    substitutions=substitutions,
    instance="appendkv_instance.hip.j2",
    symbol=symbol,
    host=Host(
        dispatch=dispatch_text, harness=harness_text, arguments=AppendKvArguments, functions=("fmha_fwd_appendkv_",)
    ),
    scenarios=scenarios,
    not_laid_out=not_laid_out,
)

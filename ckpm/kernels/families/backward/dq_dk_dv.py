"""bwd_dq_dk_dv: the gradients of attention. Its keys as C++; the dispatch and library of all three stages.

The order of template arguments is CK's own (fmha_bwd_dq_dk_dv_traits_ in fmha_bwd.hpp).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from ckpm.base.errors import UsageError
from ckpm.kernels.abi import BwdArguments
from ckpm.kernels.families import symbol_spellings
from ckpm.kernels.families.backward import convert_dq, dot_do_o
from ckpm.kernels.families.backward import shared_spellings as shared
from ckpm.kernels.families.backward.shared_spellings import gradient_scenarios, not_laid_out
from ckpm.kernels.families.family import INCLUDE, INCLUDE_BWD, Host, KernelFamily, Values
from ckpm.kernels.families.fwd_spellings import by_device, dialects, nest
from ckpm.kernels.families.spellings import Features, arch_tag, fill, flag, spellings
from ckpm.matrix.keys import Key

NAME = shared.DQ_DK_DV
# BlockDropoutBwd<IsDropout, IsWG32, IsStoreRandval>; without dropout the second is of no consequence
_DROPOUT = {"no": "Lb0ELb1ELb0E", "wg16": "Lb1ELb0ELb0E", "wg16_storerandval": "Lb1ELb0ELb1E"}
_BIAS = {"no": 0, "bias": 1, "alibi": 2}  # CK's BlockAttentionBiasEnum

Chain = tuple[str, str, str]  # the traits of the three stages; the last is void if dQ needs no conversion


def substitutions(key: Key, features: Features, space: str) -> dict[str, str]:
    spelling, tile = spellings(), key.tile
    lengths = (tile.bm0, tile.bn0, tile.bk0, tile.bk1, tile.bk2, tile.bk3, tile.bk4, tile.bhdq, tile.bhdv)
    return {
        **shared.common(key, space, trait(key)),
        "block": ", ".join(map(str, lengths)),
        "waves0": f"{tile.rm0}, {tile.rn0}, {tile.rk0}",
        "waves1": f"{tile.rm1}, {tile.rn1}, {tile.rk1}",
        "waves2": f"{tile.rm2}, {tile.rn2}, {tile.rk2}",
        "warp_tile0": f"{tile.wm0}, {tile.wn0}, {tile.wk0}",
        "warp_tile1": f"{tile.wm1}, {tile.wn1}, {tile.wk1}",
        "warp_tile2": f"{tile.wm0}, {tile.wn0}, ck_tile::min({tile.wk0}, {tile.bk4})",
        "max_seq_q": str(tile.max_seq_q),
        "dpad": str(key.dpad),
        "dvpad": str(key.dvpad),
        "bias": spelling["bias"][key.bias]["enum"],
        "dbias": flag(key.dbias),
        "mask": spelling["mask"][key.mask_impl][key.mask]["type"],
        "dropout": spelling["dropout_impl"][key.dropout_impl]["type"],
        "deterministic": flag(key.deterministic),
        "trload": flag(key.trload),
    }


def trait(key: Key) -> str:
    """The C++ type that connects dispatch and instance, besides the arch tag."""
    spelling = spellings()
    return (
        f"fmha_bwd_dq_dk_dv_traits_<{shared.trait_start(key)}, {spelling['mask'][key.mask_impl][key.mask]['type']}, "
        f"{spelling['dropout_impl'][key.dropout_impl]['type']}, {spelling['bias'][key.bias]['enum']}, "
        f"{flag(key.dbias)}, {key.dpad}, {key.dvpad}, {flag(key.deterministic)}, {flag(key.trload)}, "
        f"{key.tile.max_seq_q}, {key.tile.bn0}>"
    )


def conditions(key: Key, features: Features, spad: bool) -> tuple[str, ...]:
    """The conditions of a request for a kernel besides device, dtype and head dims.

    With ``spad`` the launch's other stages pad rows of Q; without it they take only whole blocks. Source: scheck,
    dcheck, dvcheck, max_seq_q_cond and extra_cond of FmhaBwdApiTrait in codegen/ops/fmha_bwd.py.
    """
    spelling, request = spellings(), "t" if features.bwd_workspace else "a"
    longest = "max_" if features.bwd_asks_longest and key.mode == "group" else ""
    own = (
        f"t.is_group_mode == {flag(key.mode == 'group')}",
        spelling["mask"][key.mask_impl][key.mask]["check"],
        f"t.bias_type == {spelling['bias'][key.bias]['check']}",
        f"t.has_dbias == {flag(key.dbias)}",
        spelling["dropout_impl"][key.dropout_impl]["check"],
        *(() if spad else (f"{request}.seqlen_q % {shared.ROWS} == 0",)),
        f"{request}.hdim_q % {key.dpad or key.tile.bhdq} == 0",
        f"{request}.hdim_v % {key.dvpad or key.tile.bhdv} == 0",
        f"t.is_deterministic == {flag(key.deterministic)}",
    )
    when = spelling["bwd_when"][key.tile.when] % {
        "length": f"{request}.{longest}seqlen",
        "max_seq_q": key.tile.max_seq_q,
    }
    return (*own, when) if when else own


def dispatch_text(keys: Sequence[Key], features: Features) -> str:
    """The host dispatch over keys of the three stages, each in upstream's order of emission for each arch trait."""
    ordered = by_device(keys)
    arms = []
    chains = _Chains(ordered, features)
    for key, spad in _in_order([key for key in ordered if key.family == NAME]):
        if chain := chains.of(key, spad):
            arms.append((key, (*chain, arch_tag(key.arch_trait), " && ".join(conditions(key, features, spad)))))
    names = [key.name for key in ordered]
    return fill("bwd_dispatch.hip.j2", archs=nest(arms), names=names, d=features)


class _Chains:
    """The stages of each kernel's launch. A kernel without any is refused."""

    def __init__(self, keys: Sequence[Key], features: Features) -> None:
        self.features = features
        self.first = {dot_do_o.chain_key(key): key for key in keys if key.family == dot_do_o.NAME}
        self.last = {convert_dq.chain_key(key): key for key in keys if key.family == convert_dq.NAME}
        for key in keys:
            if key.family == NAME and not any(self.of(key, spad) for spad in shared.spads(key)):
                raise UsageError(
                    f"{key.name}: no kernels of bwd_dot_do_o and bwd_convert_dq that serve it are selected. "
                    "Widen --filter or --where."
                )

    def of(self, key: Key, spad: bool) -> Chain | None:
        """Return the stages of a kernel, None if a stage isn't selected."""
        first = self.first.get(dot_do_o.chain_key_of(key, spad))
        chain = convert_dq.chain_key_of(key, spad, counts_tiles=not self.features.bwd_workspace)
        last = None if chain is None else self.last.get(chain)
        if first is None or (chain is not None and last is None):
            return None
        return dot_do_o.trait(first), trait(key), "void" if last is None else convert_dq.trait(last, self.features)


def _in_order(keys: Sequence[Key]) -> Iterator[tuple[Key, bool]]:
    """Sort kernels as dispatch tries them: tiles for short seqlen_q, each feature set in whole blocks, then padded."""
    by_head_dim: dict[tuple[object, ...], list[Key]] = {}
    for key in keys:
        by_head_dim.setdefault((key.arch_trait, key.dtype, key.hdim_q), []).append(key)
    for of_dim in by_head_dim.values():
        shortest = sorted(of_dim, key=lambda key: key.tile.max_seq_q or 1_000_000)
        for _, group in itertools.groupby(shortest, key=_features):
            alike = list(group)
            yield from ((key, spad) for spad in shared.spads(alike[0]) for key in alike)


def _features(key: Key) -> tuple[object, ...]:
    """The axes of the loops around the loop over padded rows in upstream's codegen."""
    return (
        *(key.arch_trait, key.dtype, key.trload, key.hdim_q, key.tile.word, key.mode, key.mask_impl, key.mask),
        *(key.bias, key.dbias, key.dropout_impl),
    )


def harness_text(dialect: str, features: Features) -> str:
    """The C ABI of kernels/include_bwd/ckpm_bwd.h."""
    text = {"function": "fmha_bwd<2>", "abi": "ckpm_bwd", "stages": 3, "d": features}
    return fill("bwd_harness.hip.j2", dialect=dialect, family=NAME, **text)


def symbol(values: Values) -> re.Pattern[str]:
    """The pattern of a kernel's symbol. Element types come first, the same for all kernels of a unit."""
    tile, boolean = values["tile"], symbol_spellings.boolean
    lengths = (tile.bm0, tile.bn0, tile.bk0, tile.bk1, tile.bk2, tile.bk3, tile.bk4, tile.bhdq, tile.bhdv)
    block = "".join(f"Li{length}E" for length in lengths)
    shape = rf"BwdShapeINS_8sequenceIJ{block}EEE\w+?Li{tile.max_seq_q}EEE"
    problem = (
        rf"{boolean(values['mode'] == 'group')}{boolean(values['deterministic'])}\w+?{symbol_spellings.mask(values)}"
    )
    dropout = rf"\w+?DropoutBwdI{_DROPOUT[values['dropout_impl']]}EE{boolean(values['trload'])}"
    traits = (
        rf"\w+?BwdTraitsILi{values['dpad']}ELi{values['dvpad']}E{symbol_spellings.ENUM}{_BIAS[values['bias']]}E"
        rf"{boolean(values['dbias'])}Li{symbol_spellings.number(tile.occupancy)}E"
    )
    return re.compile(rf"FmhaBwdDQDKDVKernelI\w+?{shape}{problem}{dropout}{traits}")


FAMILY = KernelFamily(
    name=NAME,
    substitutions=substitutions,
    instance="bwd_dq_dk_dv_instance.hip.j2",
    choices=shared.choices,
    unit="bwd_unit.hip.j2",
    symbol=symbol,
    host=Host(
        dispatch=dispatch_text,
        dialects=dialects,
        harness=harness_text,
        arguments=BwdArguments,
        functions=("fmha_bwd_dot_do_o_oneshot_", "fmha_bwd_dq_dk_dv_oneshot_", "fmha_bwd_convert_dq_oneshot_"),
        api="fmha_bwd",
        headers=(INCLUDE, INCLUDE_BWD),
        several=True,
        may_lack=frozenset((convert_dq.NAME,)),  # after tiles for few queries
        compiled_hdims=frozenset((32, 64)),
        # each wave stores the same rows of LSE and D to the same places in LDS (Duplicate dimension of
        # MakeLSEDDramTileDistribution in block_fmha_bwd_pipeline_default_policy.hpp)
        races=False,
    ),
    scenarios=gradient_scenarios,
    not_laid_out=not_laid_out,
)

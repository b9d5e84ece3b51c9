"""The backward families in C++ words: texts without an upstream at hand, their launches."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ckpm.attention.launch.arguments import backward_fields, workspaces, zeroed_workspaces
from ckpm.attention.launch.fwd_launching import pose
from ckpm.base.errors import ProblemError, UsageError
from ckpm.kernels.families.backward import convert_dq, dot_do_o, dq_dk_dv, shared_spellings
from ckpm.kernels.families.libraries import host, library_of, whole
from ckpm.kernels.families.render import dispatch_text, plan_units, unit_text
from ckpm.kernels.families.spellings import features
from ckpm.kernels.families.table import FAMILIES
from ckpm.matrix.dialects import dialect
from ckpm.matrix.keys import Key
from ckpm.matrix.names import parse
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.selection import Selection, select
from ckpm.suites.backward_cases import laid_out

DIALECT = "ck-2025-11"
MEMBERS = ("bwd_dot_do_o", "bwd_dq_dk_dv", "bwd_convert_dq")
FEATURES = features(DIALECT)
PLAIN = "key.family != 'bwd_dq_dk_dv' or key.bias == 'no' and key.mask == 'no' and not key.dropout"


def keys_of(arch: str, *where: str, tier: str = "full") -> list[Key]:
    return select(dialect(DIALECT), Selection(archs=(arch,), families=MEMBERS, where=where, tier=tier))


KEYS = keys_of("gfx950", "key.dtype == 'bf16' and key.hdim_q == 64", PLAIN)
MAIN = [key for key in KEYS if key.family == "bwd_dq_dk_dv"]


def test_library_is_asked_for_by_its_main_family() -> None:
    assert {FAMILIES[name].library or name for name in MEMBERS} == {"bwd_dq_dk_dv"}
    assert whole(("bwd_dq_dk_dv",)) == MEMBERS
    assert whole(("bwd_dot_do_o",)) == ("bwd_dot_do_o",)
    assert library_of(MEMBERS, DIALECT) == "bwd_dq_dk_dv"
    with pytest.raises(UsageError, match="can't be rendered into one library"):
        library_of(("bwd_dot_do_o",), DIALECT)


def test_traits_tell_all_kernels_of_stage_apart() -> None:
    everything = keys_of("gfx950")
    stages = {name: [key for key in everything if key.family == name] for name in MEMBERS}
    for traits in (
        [dot_do_o.trait(key) for key in stages[dot_do_o.NAME]],
        [dq_dk_dv.trait(key) for key in stages[dq_dk_dv.NAME]],
        [convert_dq.trait(key, FEATURES) for key in stages[convert_dq.NAME]],
    ):
        assert len(set(traits)) == len(traits) > 50


def taken(text: str) -> list[tuple[str, str, str]]:
    """The traits of the three stages that each branch of a dispatch takes."""
    stages = r"(fmha_bwd_dot_do_o_traits_<.*?>), (fmha_bwd_dq_dk_dv_traits_<.*>), (void|fmha_bwd_convert_dq_.*>)"
    return re.findall(rf"return fmha_bwd_<{stages}, ck_tile::gfx950_t>\(s, a\);", text)


def test_dispatch_tries_short_queries_and_whole_blocks_first() -> None:
    text = dispatch_text(KEYS, FEATURES)
    assert re.findall(r'^    "(fmha_bwd_\w+)",$', text, re.MULTILINE) == [key.name for key in KEYS]
    arms = taken(text)
    by_trait = {dq_dk_dv.trait(key): key for key in MAIN}
    order = [by_trait[main] for _, main, _ in arms]
    short = [key for key in order if key.tile.max_seq_q]
    assert order[: len(short)] == short
    # a kernel for any seqlen_q in batch mode has two branches, the other modes and tiles one
    assert {key.name: order.count(key) for key in MAIN} == {
        key.name: 2 if key.mode == "batch" and not key.tile.max_seq_q else 1 for key in MAIN
    }
    before = [first for first, main, _ in arms if main == dq_dk_dv.trait(MAIN[0])]
    assert [first.rpartition(">")[0].split(", ")[-2:] for first in before] == [["false", "false"], ["true", "false"]]
    assert {last for (_, _, last), key in zip(arms, order, strict=True) if key.tile.max_seq_q} == {"void"}


def test_each_stage_pads_as_one_that_it_serves() -> None:
    for first, main, last in taken(dispatch_text(KEYS, FEATURES)):
        *_, spad, dvpad = first[first.index("<") + 1 : -1].split(", ")
        key = next(key for key in MAIN if dq_dk_dv.trait(key) == main)
        assert dvpad == str(bool(key.dvpad)).lower()
        if last != "void":
            *_, spad_too, dpad, deterministic, splits = last[last.index("<") + 1 : -1].split(", ")
            assert (spad_too, dpad) == (spad, str(bool(key.dpad)).lower())
            assert (deterministic, int(splits)) == (
                str(key.deterministic).lower(),
                key.tile.bn0 if key.deterministic else 0,
            )


def test_conditions_are_what_kernel_needs() -> None:
    (key,) = [k for k in keys_of("gfx950", "key.family == 'bwd_dq_dk_dv'", "key.hdim_q == 128 and key.bias == 'bias'")
              if (k.pad, k.mask, k.dropout_impl, k.dbias, k.deterministic, k.mode, k.dtype, k.tile.when)
              == ("pd8dv8", "mask", "wg16", True, False, "batch", "bf16", "short_k")]  # fmt: skip
    assert set(dq_dk_dv.conditions(key, FEATURES, spad=False)) == {
        "t.is_group_mode == false",
        "t.mask_type != mask_enum::no_mask",
        "t.bias_type == bias_enum::elementwise_bias",
        "t.has_dbias == true",
        "t.has_dropout == true && t.is_store_randval == false",
        "a.seqlen_q % 64 == 0",
        "a.hdim_q % 8 == 0",
        "a.hdim_v % 8 == 0",
        "t.is_deterministic == false",
        "a.seqlen_k <= 256",
    }
    short = next(key for key in MAIN if key.tile.max_seq_q == 32 and key.pad == "npad")
    assert shared_spellings.spads(short) == (True,)
    assert {"a.seqlen_q <= 32", "a.hdim_q % 64 == 0"} <= set(dq_dk_dv.conditions(short, FEATURES, spad=True))


def test_kernel_whose_stages_are_not_selected_is_refused() -> None:
    alone = [key for key in KEYS if key.family != "bwd_convert_dq" or key.deterministic]
    with pytest.raises(UsageError, match="no kernels of bwd_dot_do_o and bwd_convert_dq that serve it are selected"):
        dispatch_text(alone, FEATURES)
    # with one of the two pads of rows there is one of the two branches
    padded = [key for key in KEYS if key.family == "bwd_dq_dk_dv" or key.pad.startswith("ps")]
    assert len(taken(dispatch_text(padded, FEATURES))) == len(MAIN)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_symbols_tell_kernels_of_unit_apart(arch: str) -> None:
    keys = keys_of(arch, "key.hdim_q == 64")
    for unit in plan_units(keys):
        family = dialect(DIALECT).family(unit.keys[0].family)
        patterns = {FAMILIES[family.name].symbol(parse(family, key.name)).pattern for key in unit.keys}
        assert len(patterns) == len(unit.keys), unit.name


# as the compiler spells them, up to the kernel's arguments
SYMBOLS = {
    "fmha_bwd_dot_do_o_d64_bf16_b64_batch_o2_ps_gfx950":
        "_ZN7ck_tile6kentryINS_8gfx950_tELi2ENS_22FmhaBwdOGradDotOKernelINS_21BlockFmhaBwdOGradDotOINS_36BlockFmhaBwd"
        "OGradDotOPipelineProblemIDF16bDF16bfLi64ELi64ELb0ENS_26TileFmhaBwdOGradDotOTraitsILb1ELb0ELi2EEEEE",
    "fmha_bwd_convert_dq_d64_bf16_b64x0_batch_o2_ps_ndeterministic_gfx950":
        "_ZN7ck_tile6kentryINS_8gfx950_tELi2ENS_25FmhaBwdConvertQGradKernelINS_24BlockFmhaBwdConvertQGradINS_39Block"
        "FmhaBwdConvertQGradPipelineProblemIfDF16bLi256ELi64ELi0ELi64ELb0ELb0ENS_29TileFmhaBwdConvertQGradTraitsILb1E"
        "Lb0ELi2EEEEE",
    "fmha_bwd_d64_bf16_batch_b32x128x64x32x64x32x32x64x64_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x16_o1_maxq0_pd1dv1"
    "_nbias_ndbias_nmask_ndropout_ndeterministic_ntrload_gfx950":
        "_ZN7ck_tile6kentryINS_8gfx950_tELi1ENS_19FmhaBwdDQDKDVKernelINS_26BlockFmhaBwdDQDKDVPipelineINS_27BlockFmha"
        "BwdPipelineProblemIDF16bDF16bDF16bDF16bfffDF16bhDF16bDF16bDF16bDF16bDF16bDF16bNS_16TileFmhaBwdShapeINS_8"
        "sequenceIJLi32ELi128ELi64ELi32ELi64ELi32ELi32ELi64ELi64EEEENS6_IJLi1ELi4ELi1EEEENS6_IJLi16ELi16ELi32EEEENS6_"
        "IJLi4ELi1ELi1EEEENS6_IJLi16ELi16ELi16EEEES8_S9_SA_SB_S8_S9_Li0EEELb0ELb0ENS_30SimplifiedGenericAttentionMask"
        "ILb0EEENS_15BlockDropoutBwdILb0ELb1ELb0EEELb0ENS_17TileFmhaBwdTraitsILi1ELi1ELNS_22BlockAttentionBiasEnumE0E"
        "Lb0ELi1EEEEEvEE",
}  # fmt: skip


def test_symbol_is_that_of_its_kernel_alone() -> None:
    for name, symbol in SYMBOLS.items():
        names = [
            key.name
            for key in KEYS
            if FAMILIES[key.family].symbol(parse(dialect(DIALECT).family(key.family), key.name)).search(symbol)
        ]
        assert names == [name]


def test_kernels_for_gfx9_have_no_code_for_gfx950() -> None:
    (unit, *_) = plan_units(keys_of("gfx942", "key.hdim_q == 64", tier="smoke"))
    assert "defined(__gfx9__) && !defined(__gfx950__)" in unit_text(unit, FEATURES)


def test_harness_has_three_stages() -> None:
    text = host("bwd_dq_dk_dv").harness(DIALECT, FEATURES)
    assert "selected[3] = {nullptr, nullptr, nullptr};" in text
    assert "stage == 0 || stage == 1 || stage == 2 ? selected[stage] : nullptr" in text
    assert "selected[0] = selected[1] = selected[2] = nullptr;" in text


def request(**changes: Any) -> SuiteCase:
    fields: dict[str, Any] = {
        "name": "kernels/x", "suite": "kernels", "tier": "full", "group": "x", "mode": "batch", "nhead_q": 4,
        "nhead_k": 2, "hdim_q": 64, "hdim_v": 32, "seqlens_q": (70, 70), "seqlens_k": (90, 90),
    }  # fmt: skip
    return pose(SuiteCase(**{**fields, **changes}), "bwd_dq_dk_dv", "gfx950")


def tensors(p: SuiteCase) -> dict[str, NDArray[Any]]:
    tokens, keys = sum(p.seqlens_q), sum(p.seqlens_k)
    shapes = {
        "q": (tokens, 4, 64),
        "k": (keys, 2, 64),
        "v": (keys, 2, 32),
        "o": (tokens, 4, 32),
        "dout": (tokens, 4, 32),
    }
    arrays: dict[str, NDArray[Any]] = {name: np.zeros(shape, np.uint16) for name, shape in shapes.items()}
    arrays["lse"] = np.arange(4 * tokens, dtype=np.float32).reshape(4, tokens)
    return arrays | {"bias": np.zeros((4, tokens, max(p.seqlens_k)), np.uint16)}


def test_gradients_of_k_and_v_are_of_each_head_of_q() -> None:
    values = backward_fields(request())
    assert (values["stride_k"], values["stride_dk"], values["stride_dv"]) == (2 * 64, 4 * 64, 4 * 32)
    assert (values["batch_stride_dk"], values["batch_stride_dq_acc"]) == (90 * 4 * 64, 70 * 4 * 64)
    assert (values["nhead_stride_lsed"], values["batch_stride_lsed"]) == (70, 4 * 70)
    assert "split_stride_dq_acc" not in values
    group = backward_fields(request(mode="group", seqlens_q=(3, 9), seqlens_k=(4, 2), deterministic=True))
    assert {value for name, value in group.items() if name.startswith("batch_stride")} == {0}
    assert (group["nhead_stride_lsed"], group["split_stride_dq_acc"]) == (12, 12 * 4 * 64)
    with pytest.raises(ProblemError, match="in batch mode all sequences have one length"):
        request(seqlens_k=(3, 4))


def test_arrays_that_kernels_add_to_begin_with_zeros() -> None:
    case = request(bias="bias", dbias=True, deterministic=True)
    arrays = laid_out(case, tensors(case))
    assert workspaces(case)["dq_acc"] == 6 * 140 * 4 * 64 * 4  # 90 keys are 6 times 16
    assert zeroed_workspaces(case) == ("dq_acc",)
    assert arrays["dbias"].shape == (2, 4, 70, 90)
    assert not arrays["dbias"].any()
    assert np.array_equal(arrays["lse"][1, 2], np.arange(2 * 140 + 70, 3 * 140))  # batch 1, head 2
    short = {**tensors(case), "dout": np.zeros((139, 4, 32), np.uint16)}
    with pytest.raises(ProblemError, match=r"dout is uint16\[139, 4, 32\], not uint16\[140, 4, 32\]"):
        laid_out(case, short)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_every_smoke_kernel_has_launches_that_dispatch_it(arch: str) -> None:
    keys = keys_of(arch, tier="smoke")
    for key in keys:
        make_scenarios = FAMILIES[key.family].scenarios
        assert make_scenarios is not None
        wanted = make_scenarios(key, keys)
        assert wanted, key.name
        assert all(scenario.candidates for scenario in wanted), key.name
    axes = ("mode", "mask", "bias", "dbias", "dropout_impl", "deterministic", "dtype", "hdim_q")
    covered = {(name, getattr(key, name)) for key in keys if key.family == "bwd_dq_dk_dv" for name in axes}
    assert covered == {
        ("mode", "batch"), ("mode", "group"), ("mask", "no"), ("mask", "mask"), ("bias", "no"), ("bias", "bias"),
        ("bias", "alibi"), ("dbias", True), ("dbias", False), ("dropout_impl", "no"), ("dropout_impl", "wg16"),
        ("dropout_impl", "wg16_storerandval"), ("deterministic", True), ("deterministic", False), ("dtype", "fp16"),
        ("dtype", "bf16"), ("hdim_q", 64), ("hdim_q", 128),
    }  # fmt: skip

"""fwd in C++ words: texts without an upstream at hand, and what can't be rendered."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ckpm import commands as cli
from ckpm.attention.launch.fwd_launching import pose
from ckpm.base.errors import CodeObjectError, ProblemError
from ckpm.kernels.families import fwd, fwd_pagedkv
from ckpm.kernels.families.render import dispatch_text, plan_units, unit_text
from ckpm.kernels.families.spellings import arch_tag, features
from ckpm.kernels.families.table import FAMILIES
from ckpm.kernels.library.write_manifest import match_symbols
from ckpm.matrix.dialects import dialect
from ckpm.matrix.names import parse
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.selection import Selection, select

DIALECT = "ck-2025-11"
FEATURES = features(DIALECT)
KEYS = select(dialect(DIALECT), Selection(archs=("gfx942", "gfx950"), families=("fwd",), where=("key.hdim_q == 128",)))


def test_traits_and_tags_tell_all_kernels_apart() -> None:
    """Two kernels of one trait and arch would be one definition twice."""
    assert {key.arch_trait for key in KEYS} == {"gfx9", "gfx950"}
    assert len({(fwd.trait(key, FEATURES), arch_tag(key.arch_trait)) for key in KEYS}) == len(KEYS)


def test_dispatch_takes_each_kernel_once_specific_device_first() -> None:
    text = dispatch_text(KEYS, FEATURES)
    listed = re.findall(r'    "(fmha_fwd_\w+)",\n', text)
    assert sorted(listed) == sorted(key.name for key in KEYS)
    returned = re.findall(r"return fmha_fwd_<(T\d+), ck_tile::(\w+)_t>\(s, a\);", text)
    assert [alias for alias, _ in returned] == [f"T{index}" for index in range(len(KEYS))]
    assert [arch for _, arch in returned] == [name[name.rindex("_") + 1 :] for name in listed]
    assert re.findall(r'device_name.compare\(0, \d, "(\w+)"\) == 0', text) == ["gfx950", "gfx9"]


def test_paged_form_takes_whole_tiles_before_what_pads_them() -> None:
    """Without a length for each sequence and with whole tiles of keys nothing has to be padded."""
    chosen = Selection(
        archs=("gfx950",), families=("fwd_pagedkv",), where=("key.dtype == 'bf16' and key.mode == 'batch'",)
    )
    keys = [key for key in select(dialect(DIALECT), chosen) if (key.bias, key.mask, key.logits) == ("no", "no", False)]
    assert [key.pad for key in keys] == ["ps", "pssk"]
    whole, padded = (set(fwd_pagedkv.conditions(key, FEATURES)) for key in keys)
    assert whole - padded == {"a.seqlen_k_ptr == nullptr", "a.seqlen_k % 128 == 0"}
    assert padded <= whole
    text = dispatch_text(keys, FEATURES)
    assert "num_cus" not in text
    assert re.findall(r"return fmha_fwd_pagedkv_<(T\d), ck_tile::gfx9_t>", text) == ["T0", "T1"]


def test_smaller_tile_serves_no_more_queries_than_its_rows() -> None:
    """The largest of the kernels beside it takes all that is left, also when that is the only one selected."""
    small = next(key for key in KEYS if key.tile.bm0 == 16)
    assert "a.seqlen_q <= 16" in fwd.conditions(small, FEATURES, 128)
    assert "a.seqlen_q" not in dispatch_text([small], FEATURES)


@pytest.mark.parametrize("version", [DIALECT, "rocm-libraries-2026", "rocm-libraries-2026-09"])
@pytest.mark.parametrize("name", ["fwd", "fwd_pagedkv", "fwd_splitkv"])
def test_symbols_tell_kernels_of_unit_apart(name: str, version: str) -> None:
    family = dialect(version).family(name)
    for arch in ("gfx942", "gfx950"):
        keys = select(dialect(version), Selection(archs=(arch,), families=(name,), where=("key.hdim_q == 128",)))
        for unit in plan_units(keys):
            patterns = {FAMILIES[name].symbol(parse(family, key.name)).pattern for key in unit.keys}
            assert len(patterns) == len(unit.keys), unit.name


def test_variants_of_split_kv_are_told_apart() -> None:
    """A symbol of each variant (as the compiler spells them) is found, and counted."""
    block = "b64x128x32x128x32x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16_qr_vr_pssk"
    names = {
        "fwd_splitkv": f"fmha_fwd_splitkv_d128_bf16_batch_{block}_nlogits_nbias_nmask_lse_nsquant_npagedkv_gfx9",
        "fwd_splitkv_combine": "fmha_fwd_splitkv_combine_d128_bf16_batch_b32_unused_ps_lse_nsquant_gfx9",
    }
    start = (
        "_ZN7ck_tile6kentryINS_6gfx9_tELi2ENS_20FmhaFwdSplitKVKernelINS_33BlockFmhaFwdSplitKVPipelineQRKSVSINS_34Block"
        "FmhaFwdSplitKVPipelineProblemIDF16bDF16bDF16bffDF16bfDF16bffNS_13TileFmhaShapeINS_8sequenceIJLi64ELi128ELi32E"
        "Li128ELi32ELi128EEEENS6_IJLi4ELi1ELi1EEEENS6_IJLi16ELi16ELi16EEEES8_S9_Lb1EEELb0ENS_17ComposedAttentionILj0ELb1"
        "EEENS_30SimplifiedGenericAttentionMaskILb0EEENS_24TileFmhaFwdSplitKVTraitsILb1ELb1ELb0ELb0ELb0ELNS_22Block"
        "AttentionBiasEnumE0ELb0ELb1ELb0ELb0E"
    )
    combine = (
        "_ZN7ck_tile6kentryINS_6gfx9_tELi1ENS_27FmhaFwdSplitKVCombineKernelINS_34BlockFmhaFwdSplitKVCombinePipelineINS_38"
        "BlockFmhaSplitKVCombinePipelineProblemIffDF16bLi128ELb0ELi32ENS_31TileFmhaFwdSplitKVCombineTraitsILb1ELb0ELb1ELb0"
    )
    symbols = {
        "fwd_splitkv": [f"{start}Lb{a}ELb{b}ELin1EEEEE" for a in (0, 1) for b in (0, 1)],
        "fwd_splitkv_combine": [f"{combine}ELi{log}ELin1EEEEE" for log in range(3, 8)],
    }
    for family, name in names.items():
        values = {name: parse(dialect(DIALECT).family(family), name)}
        assert match_symbols(values, symbols[family], Path("unit"), "gfx950", family) == {name: symbols[family]}
        with pytest.raises(CodeObjectError, match=f"kernel symbols are {name}; {len(symbols[family])} were planned"):
            match_symbols(values, symbols[family][1:], Path("unit"), "gfx950", family)


def test_device_code_is_guarded_to_its_arch() -> None:
    for key in KEYS[:1] + KEYS[-1:]:
        text = unit_text(plan_units([key])[0], FEATURES)
        guard = "defined(__gfx950__)" if key.arch_trait == "gfx950" else "defined(__gfx9__) && !defined(__gfx950__)"
        assert f"#if !defined(__HIP_DEVICE_COMPILE__) || ({guard})\n" in text


def test_problems_that_are_not_laid_out_are_refused() -> None:
    sound: dict[str, Any] = {"name": "p", "suite": "batch-prefill", "tier": "full", "group": "g", "mode": "batch"}
    with pytest.raises(ProblemError, match=r"^p: sinks and column-major V "):
        pose(SuiteCase(**sound, sink_size=1), "fwd", "gfx950")
    with pytest.raises(ProblemError, match="in batch mode all sequences have one length"):
        pose(SuiteCase(**sound, seqlens_q=(1, 2), seqlens_k=(1, 1)), "fwd", "gfx950")
    with pytest.raises(ProblemError, match="fwd reads a vllm table that names each page once"):
        pose(SuiteCase(**sound, page_size=128), "fwd", "gfx950")


@pytest.mark.parametrize(
    "options",
    [["bwd_dq_dk_dv", "--dialect", "ck-2025-06"], ["fwd,batch_prefill"], ["all"], ["fwd", "--dialect", "ck-2025-06"]],
)
def test_families_without_common_library_are_refused(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "sources"
    code = cli.main(["build", "--render", str(folder), "--arch", "gfx950", "--tier", "full", "--family", *options])
    assert code == 2
    assert "can't be rendered into one library. What can be: --family batch_prefill (" in capsys.readouterr().err
    assert not folder.exists()


@pytest.mark.parametrize(
    ("where", "printed"),
    [
        (
            "key.lse and key.family == 'fwd_splitkv'",
            "no kernel of fwd_splitkv_combine is selected, which a library of fwd_splitkv needs. ",
        ),
        ("key.pad in ('pssk', 'pdv')", "no combine kernel that serves it is selected. Widen --filter or --where."),
    ],
)
def test_split_needs_its_combine_kernel(
    where: str, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--arch", "gfx950", "--family", "fwd_splitkv,fwd_splitkv_combine", "--where", where]
    assert cli.main(["build", "--render", str(tmp_path / "sources"), *options]) == 2
    assert printed in capsys.readouterr().err

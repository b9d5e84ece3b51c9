"""fwd in C++ words: symbols, and what can't be rendered. tests/build/test_parity_fwd.py has dispatch and instances."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ckpm import commands as cli
from ckpm.attention.launch.fwd_launching import pose
from ckpm.base.errors import CodeObjectError, ProblemError
from ckpm.kernels.families import fwd
from ckpm.kernels.families.libraries import host
from ckpm.kernels.families.render import dispatch_text, plan_units
from ckpm.kernels.families.spellings import features
from ckpm.kernels.families.table import FAMILIES
from ckpm.kernels.library.write_manifest import match_symbols
from ckpm.matrix.dialects import APIS, dialect
from ckpm.matrix.names import parse
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.selection import Selection, select

DIALECT = "ck-2025-11"
FEATURES = features(DIALECT)
KEYS = select(dialect(DIALECT), Selection(archs=("gfx942", "gfx950"), families=("fwd",), where=("key.hdim_q == 128",)))


def test_smaller_tile_serves_no_more_queries_than_its_rows() -> None:
    """The largest of the kernels beside it takes all that is left, also when that is the only one selected."""
    small = next(key for key in KEYS if key.tile.bm0 == 16)
    assert "a.seqlen_q <= 16" in fwd.conditions(small, FEATURES, 128)
    assert "a.seqlen_q" not in dispatch_text([small], FEATURES)


@pytest.mark.parametrize("version", [DIALECT, "rocm-libraries-2026", "rocm-libraries-2026-09"])
@pytest.mark.parametrize("name", ["fwd", "fwd_pagedkv", "fwd_splitkv", "fwd_appendkv", *APIS["bwd"]])
def test_symbols_tell_kernels_of_unit_apart(name: str, version: str) -> None:
    family = dialect(version).family(name)
    for arch in ("gfx942", "gfx950"):
        keys = select(dialect(version), Selection(archs=(arch,), families=(name,), where=("key.hdim_q == 128",)))
        for unit in plan_units(keys):
            patterns = {FAMILIES[name].symbol(parse(family, key.name)).pattern for key in unit.keys}
            assert len(patterns) == len(unit.keys), unit.name


def test_no_tile_of_new_rows_is_longer_than_shortest_page() -> None:
    """A kernel writes the rows of one tile to two pages at most: the harness refuses pages shorter than its rows."""
    keys = select(dialect(DIALECT), Selection(archs=("gfx942", "gfx950"), families=("fwd_appendkv",)))
    assert {key.tile.bsk for key in keys} == {64}
    assert "tile = p.seqlen_knew < 64 ? p.seqlen_knew : 64;" in host("fwd_appendkv").harness(DIALECT, FEATURES)


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

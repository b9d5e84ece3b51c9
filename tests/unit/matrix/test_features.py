"""Features of pull requests: laid over their base in any combination, named by `why`; custom tune configurations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ckpm.base.errors import TableError, UnknownWordError
from ckpm.commands import main
from ckpm.matrix.configurations.tuned import take_tuned
from ckpm.matrix.dialects import APIS, FAMILIES, dialect, features, with_features
from ckpm.matrix.enumeration import enumerate_names
from ckpm.matrix.explain import why
from ckpm.matrix.published import emission_sha256
from ckpm.matrix.selection import Selection

BASE, SEPTEMBER = "rocm-libraries-2026", "rocm-libraries-2026-09"
TUNE = Path(__file__).parents[2] / "data" / "tune.json"
# the codegen of rocm-libraries@014d097d with this file: receipt, number of names, sha256 of their order
TUNED = [
    (0, 768, "96e89b2c0dd00d95194b80f31e300cc1a7e09e23946da311c1fde2d46d70778c"),
    (2, 48, "ba05fb7ec17ab99235ed82b0e0282041df19116a3f78b450a3198b2b1ed7caca"),
    (200, 256, "705fe5cf77e7046048bc4cfda004b853acb584232c3073366a3d76b73650bfcc"),
]
# API, arch, mask set, features beside September's, receipt, and the number of names that upstream's rules of September
# give, as their text was read (matrix/golden's provenance): the lists that matrix/golden does not have.
COUNTS = """
batch_prefill gfx90a generic - 0 10640
batch_prefill gfx90a generic - 2 7680
batch_prefill gfx950 simplified - 100 0
batch_prefill gfx950 simplified - 700 0
bwd gfx942 simplified - 2 1140
bwd gfx942 simplified - 801 22
bwd gfx950 simplified - 0 8436
bwd gfx950 simplified - 300 2872
bwd gfx950 simplified - 700 5684
bwd gfx950 generic - 2 2324
bwd gfx1100 simplified - 700 3728
fwd gfx950 simplified trload_without_seq_padding 0 7648
fwd gfx950 simplified trload_without_seq_padding 100 4816
fwd gfx950 simplified trload_without_seq_padding 700 720
fwd gfx950 generic trload_without_seq_padding 0 11456
fwd gfx942 simplified head_dim_512 800 1920
fwd gfx950 simplified head_dim_512 2 700
"""
FEW_UNITS = (
    "fmha_batch_prefill_d256_bf16_group_ps1024_bload_b128x32x16x256x16x256_r4x1x1_r4x1x1_w32x32x16_w32x32x16_o2_qr_async_"
    "vr_psskddv_nlogits_nbias_nmask_nlse_ndropout_nqscale_nsink_linear_sglang"
)


def names(dialect_name: str, family: str) -> set[tuple[int, str]]:
    return {
        (receipt, name)
        for arch in ("gfx942", "gfx950")
        for receipt in (0, 700)
        for name in enumerate_names(dialect(dialect_name).family(family), arch=arch, receipt=receipt)
    }


@pytest.mark.parametrize("feature", features())
def test_feature_changes_families_of_its_tables_alone(feature: str) -> None:
    for family in FAMILIES:
        changed = names(with_features([feature]), family) != names(BASE, family)
        assert changed <= (family in features()[feature].tables)
    assert any(
        names(with_features([feature]), family) != names(BASE, family) for family in features()[feature].tables
    ) == (bool(features()[feature].tables))


@pytest.mark.parametrize("row", COUNTS.split("\n")[1:-1])
def test_names_of_september_are_as_many_as_upstream_s(row: str) -> None:
    api, arch, mask_impl, added, receipt, count = row.split()
    whole = dialect(SEPTEMBER if added == "-" else f"{SEPTEMBER}+{added}")
    listed = [
        enumerate_names(whole.family(family), arch=arch, receipt=int(receipt), mask_impl=mask_impl)
        for family in APIS[api]
    ]
    assert sum(map(len, listed)) == int(count)


def test_gate_by_list_leaves_gfx950_the_names_of_may() -> None:
    """Its table of gfx950 is a copy of gfx9's tiles without the tile for few compute units."""
    for receipt in (0, 2):
        by_list, may = (
            list(enumerate_names(dialect(name).family("batch_prefill"), arch="gfx950", receipt=receipt))
            for name in (f"{SEPTEMBER}+gfx942_by_list", BASE)
        )
        assert by_list == may


def test_with_features_order_is_table_s_and_stored_name_wins() -> None:
    own = dialect(SEPTEMBER).features
    assert with_features(reversed(own)) == SEPTEMBER
    assert with_features([]) == BASE
    assert with_features({"head_dim_512", "few_compute_units"}) == f"{BASE}+few_compute_units+head_dim_512"


def test_unknown_or_foreign_feature_is_refused() -> None:
    with pytest.raises(UnknownWordError, match="unknown feature 'head_dim_51'; did you mean 'head_dim_512'"):
        dialect(f"{BASE}+head_dim_51")
    with pytest.raises(TableError, match="and this dialect has other ancestors"):
        dialect("ck-2025-11+head_dim_512")
    with pytest.raises(TableError, match="has the feature head_dim_512 twice"):
        dialect(f"{BASE}+head_dim_512+head_dim_512")


@pytest.mark.parametrize("variant", ["gfx942_by_guard", "gfx942_by_list"])
def test_variant_of_feature_replaces_the_dialect_s_own(variant: str) -> None:
    own = dialect(SEPTEMBER).features
    assert dialect(f"{SEPTEMBER}+{variant}").features == (
        *(feature for feature in own if feature != "gfx942_by_dispatch"),
        variant,
    )
    assert with_features({*own} - {"gfx942_by_dispatch"}) == SEPTEMBER  # no checkout shows the gate as merged


def test_why_names_pull_request_of_kernel() -> None:
    selection = Selection(archs=("gfx950",))
    (text,) = why(dialect(SEPTEMBER), selection, FEW_UNITS).features
    assert text.startswith("few_compute_units (rocm-libraries pull request 8492): ")
    reasons = why(dialect(BASE), selection, FEW_UNITS).reasons
    (reason,) = [reason for reason in reasons if reason.kind == "feature"]
    assert reason.source == "rocm-libraries pull request 8492"
    assert reason.text.endswith(f"--dialect {BASE}+few_compute_units")


@pytest.mark.parametrize(("receipt", "count", "order"), TUNED)
def test_tune_example_lists_published_names(receipt: int, count: int, order: str) -> None:
    family = take_tuned(dialect(SEPTEMBER), TUNE).family("fwd")
    listed = list(enumerate_names(family, arch="gfx942", receipt=receipt))
    assert (len(listed), emission_sha256(listed)) == (count, order)


def test_tune_target_decides_whatever_arch_is_listed() -> None:
    family = take_tuned(dialect(SEPTEMBER), TUNE).family("fwd")
    assert list(enumerate_names(family, arch="gfx950")) == list(enumerate_names(family, arch="gfx942"))


def configuration(tmp_path: Path, change: dict[str, Any]) -> Path:
    file = tmp_path / "tune.json"
    file.write_text(json.dumps({**json.loads(TUNE.read_text()), **change}))
    return file


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ({"mode": ["group"]}, lambda name: "_group_" in name),
        ({"mask": ["s_mask"], "lse": ["t"]}, lambda name: "_mask_lse_" in name),
        ({"mask": ["mask_bottom_right"]}, lambda name: False),
        ({"mode": []}, lambda name: True),
        ({"skpad": ["f"]}, lambda name: "_psddv_" in name or "_npad_" in name),
        ({"sink": ["f"], "dropout": ["f"]}, lambda name: "_ndropout_" in name and "_nsink_" in name),
    ],
)
def test_tune_filters_keep_words_of_codegen(tmp_path: Path, filters: dict[str, list[str]], kept: Any) -> None:
    every = enumerate_names(take_tuned(dialect(SEPTEMBER), TUNE).family("fwd"), arch="gfx942")
    family = take_tuned(dialect(SEPTEMBER), configuration(tmp_path, {"filters": filters})).family("fwd")
    assert list(enumerate_names(family, arch="gfx942")) == [name for name in every if kept(name)]


def test_tune_relaxed_rule_and_dtypes(tmp_path: Path) -> None:
    tiles = json.loads(TUNE.read_text())["tiles"]
    narrow = {**tiles["bf16"]["128,128"][0], "F_bn0": 64, "cpp_constraint": "a.seqlen_q < 512"}
    change = {"tiles": {"bf16": {"128,128": [narrow]}, "fp16": tiles["bf16"]}, "unknown": 1}
    family = take_tuned(dialect(SEPTEMBER), configuration(tmp_path, change)).family("fwd")
    assert (
        list(enumerate_names(family, arch="gfx942")) == []
    )  # dtypes has bf16 alone, whose tile breaks check_hdim_tile
    change["relax_rules"] = {"disable_check_hdim_tile": True}
    family = take_tuned(dialect(SEPTEMBER), configuration(tmp_path, change)).family("fwd")
    assert {tile.when for tiles in family.tiles.values() for tile in tiles} == {"a.seqlen_q < 512"}
    assert list(enumerate_names(family, arch="gfx942"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": "gfx943"}, "gfx943"),
        ({"tiles": {"bf16": {"128": []}}}, r"'128' is not HDIM,HDIMV, such as 128,128"),
        ({"tiles": {"bf17": {}}}, r"unknown 'bf17'"),
        ({"tiles": {"bf16": {"128,128": [{"F_bm0": 128}]}}}, r"\[0\]: F_bn0 must be a whole number, not None"),
        ({"filters": {"maks": ["s_no"]}}, r"filters\.maks: unknown 'maks'"),
        ({"tiles": 5}, r"tiles: "),
    ],
)
def test_tune_mistake_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises((TableError, UnknownWordError), match=message):
        take_tuned(dialect(SEPTEMBER), configuration(tmp_path, change))


def test_tune_tiles_out_of_order_are_refused(tmp_path: Path) -> None:
    rows = json.loads(TUNE.read_text())["tiles"]["bf16"]["128,128"]
    rows[1]["F_bm0"] = 64
    file = configuration(tmp_path, {"tiles": {"bf16": {"128,128": rows}}})
    with pytest.raises(TableError, match=r"tune\.json:1: tiles.*ascending order of F_bm0"):
        take_tuned(dialect(SEPTEMBER), file)


def test_count_with_tune_counts_its_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", "--dialect", SEPTEMBER, "--family", "fwd", "--arch", "gfx942", "--tune", str(TUNE)]) == 0
    assert capsys.readouterr().out.split()[-2:] == ["768", "768"]


@pytest.mark.parametrize(("compute_units", "taken"), [(80, True), (127, True), (128, False), (304, False)])
def test_why_with_compute_units_says_if_dispatch_takes_the_tile(
    compute_units: int, taken: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--dialect", SEPTEMBER, "--arch", "gfx942", "--tier", "full", "--compute-units", str(compute_units)]
    assert main(["why", *options, FEW_UNITS]) == 0
    complaint = f"dispatch takes its tile below 128 compute units, not with {compute_units}"
    assert (complaint not in capsys.readouterr().out) == taken

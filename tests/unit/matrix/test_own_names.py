"""Our own dialects have the stored names in the stored order; changing one entry of a table is noticed."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from ckpm.matrix.dialects import own_upstreams, upstreams
from ckpm.matrix.enumeration import enumerate_names
from ckpm.matrix.published import StoredList, compare_names, emission_sha256, stored_lists
from tests.unit.enumerated import names_of, stored_names
from tests.unit.matrix import own_lists
from tests.unit.matrix.matrix_samples import edit_dialect

LISTS = stored_lists(own_lists.OWN)


@pytest.mark.parametrize("stored", LISTS, ids=lambda s: f"{s.dialect}-{s.arch}-{s.mask_impl}")
def test_names_and_their_order_are_stored(stored: StoredList) -> None:
    names = names_of(stored.dialect, stored.api, stored.arch, stored.receipt, stored.mask_impl)
    remedy = f"if that is meant: python -m tests.unit.matrix.own_lists {stored.dialect} REASON"
    assert compare_names(sorted(names), stored_names(stored)).lines() == (), remedy
    assert emission_sha256(names) == stored.sha256_emission_order, f"the names have another order; {remedy}"


def test_every_own_upstream_has_stored_lists_with_reason() -> None:
    dialects = {upstreams()[name].dialect for name in own_upstreams()}
    assert dialects - {stored.dialect for stored in stored_lists()} == {stored.dialect for stored in LISTS}
    provenance = json.loads((own_lists.OWN / "manifest.json").read_text())["provenance"]
    assert {dialect for dialect, reasons in provenance.items() if all(reasons)} == {stored.dialect for stored in LISTS}


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("ckpm-extended", "[192, 128], [256, 256], [512, 512]", "[256, 256], [192, 128], [512, 512]"),
        ("ckpm-extended", "fp16kvfp8, bf16kvfp8], hdim_q", "bf16kvfp8, fp16kvfp8], hdim_q"),
        ("ckpm-extended", "[1, 16, 32, 64, 128, 256, 1024, 2048, 0]", "[1, 16, 32, 64, 128, 256, 1024, 2048]"),
        ("ckpm-extended", "page_size: {0: x16}", "page_size: {0: any}"),
        ("ckpm-extended", "b64x128x32x512x16x576_r4x1x1", "b64x128x32x512x32x576_r4x1x1"),
        ("ckpm-extended", "64x64: [b256x64x64x64x64x64_r8x1x1_r8x1x1_w32x32x32_w32x32x32]", "64x64: []"),
        ("ckpm-extended", "  split:\n    for: {arch_trait: [gfx9]}", "  split:\n    for: {arch_trait: [gfx950]}"),
        ("ckpm-extended", "  v3_has_one_load_for_each_page_size,", " "),
        ("ckpm-extended", "large_heads_read_linear_pages,", ""),
        ("ckpm-extended", "kv_blockscale_within_page,", ""),
        ("ckpm-serving", "{page_size: [1, 16, 64, 1024, 0]}", "{page_size: [16, 1, 64, 1024, 0]}"),
        ("ckpm-serving", "{page_size: [1, 16, 64, 1024, 0]}", "{page_size: [1, 16, 1024, 0]}"),
        ("ckpm-serving", "serving_has_no_sink_tokens,", ""),
        ("ckpm-serving", "serving_splits_masked_keys,", ""),
        ("prefill-v3", "gfx950: [gfx950, gfx9]", "gfx950: [gfx9, gfx950]"),
        ("prefill-v3", "    masks: generic  # for either mask set\n", ""),
        ("prefill-v3", "page_size: [1, 16, 1024]", "page_size: [1, 16, 64]"),
        ("prefill-v3", "v3_has_no_window,", ""),
    ],
)
def test_changed_entry_of_table_differs_from_stored(tmp_path: Path, name: str, old: str, new: str) -> None:
    family = edit_dialect(tmp_path, f"{name}/batch_prefill", old, new).family("batch_prefill")
    (stored,) = (s for s in LISTS if (s.dialect, s.arch, s.mask_impl) == (name, "gfx950", "simplified"))
    assert emission_sha256(enumerate_names(family, arch="gfx950")) != stored.sha256_emission_order


def test_store_prints_difference_and_keeps_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = json.loads((own_lists.OWN / "manifest.json").read_text())["entries"]
    (entry,) = (entry for entry in entries if entry["file"] == "ckpm-serving/gfx942/batch_prefill.simplified.txt")
    with zipfile.ZipFile(tmp_path / "lists.zip", "w") as archive:
        archive.writestr(entry["file"], "fmha_old\n")
    old = {"count": 1, "sha256": emission_sha256(["fmha_old"]), "sha256_emission_order": None}
    document = {"format": "", "provenance": {"ckpm-serving": ["first"]}, "entries": [entry | old]}
    (tmp_path / "manifest.json").write_text(json.dumps(document))
    monkeypatch.setattr(own_lists, "OWN", tmp_path)
    own_lists.store("ckpm-serving", "second")
    assert "1 missing (fmha_old); 756 extra (" in capsys.readouterr().out
    document |= {"provenance": {"ckpm-serving": ["first", "second"]}, "entries": [entry]}
    assert json.loads((tmp_path / "manifest.json").read_text()) == document
    (agreed,) = (stored for stored in LISTS if stored.member == entry["file"])
    stored_lists.cache_clear()
    assert stored_lists(tmp_path)[0].names() == stored_names(agreed)

"""Our own dialects have the stored names in the stored order."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from ckpm.matrix.dialects import own_upstreams, upstreams
from ckpm.matrix.published import StoredList, compare_names, emission_sha256, stored_lists
from tests.unit.enumerated import names_of, stored_names
from tests.unit.matrix import own_lists

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

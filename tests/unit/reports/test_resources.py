"""The table of resources, and manifests that are none."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit import manifests
from tests.unit.shared import Run

FIGURES = {**manifests.FIGURES, "vgpr_spills": 3}
MANIFEST = manifests.document({"fmha_batch_prefill_d128_bf16": {"archs": {"gfx950": FIGURES}}})


def test_kernel_is_row_that_reports_what_is_wrong(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps(MANIFEST))
    code, out, err = run("report", "--manifest", file)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].strip() == "aiter on gfx950: 1 kernels"
    assert out.splitlines()[-1].split() == ["d128_bf16", "200", "0", "100", "3", "0", "1024", "0", "2", "SPILLS"]


def test_resources_of_damaged_manifest_names_file(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "manifest.json"
    file.write_text("{}")
    code, out, err = run("report", "--manifest", file)
    assert (code, out) == (3, "")
    assert err.startswith(f"error: {file}: archs: is missing, expected a list")
    assert err.endswith("Name a library's manifest.json, or build again.\n")


def test_folder_and_nothing_are_not_manifest(tmp_path: Path, run: Run) -> None:
    assert [run("report", "--manifest", file)[0] for file in (tmp_path, tmp_path / "none")] == [3, 6]

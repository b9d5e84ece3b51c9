"""The table of resources, and manifests that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ckpm.commands import main
from tests.unit import manifests

FIGURES = {**manifests.FIGURES, "vgpr_spills": 3}
MANIFEST = manifests.document({"fmha_batch_prefill_d128_bf16": {"archs": {"gfx950": FIGURES}}})


def resources(file: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["report", "--manifest", str(file)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_kernel_is_row_that_reports_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps(MANIFEST))
    code, out, err = resources(file, capsys)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].strip() == "aiter on gfx950: 1 kernels"
    assert out.splitlines()[-1].split() == ["d128_bf16", "200", "0", "100", "3", "0", "1024", "0", "2", "SPILLS"]


def manifest_with(**change: object) -> dict[str, Any]:
    return {"kernels": {"k": {"archs": {"gfx950": {**FIGURES, **change}}}}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "can't be read as a manifest: Expecting value"),
        ("[" * 100_000, "can't be read as a manifest: it is nested too deeply"),
        ("[]", "the file: is '[]', expected an object"),
        (json.dumps({}), "archs: is missing, expected a list"),
        (json.dumps({**MANIFEST, "archs": ["gfx1"]}), "archs[0]: 'gfx1' is none of gfx90a, gfx942, gfx950"),
        (json.dumps({**MANIFEST, "archs": [[]]}), "archs[0]: '[]' is none of gfx90a, gfx942, gfx950"),
        (json.dumps({**MANIFEST, "kernels": {"k": {}}}), "kernels.k.archs: is missing, expected an object"),
        (
            json.dumps(MANIFEST | manifest_with(vgpr="x")),
            "kernels.k.archs.gfx950.vgpr: is 'x', expected a whole number",
        ),
        (
            json.dumps(MANIFEST | manifest_with(sgpr=None)),
            "kernels.k.archs.gfx950.sgpr: is missing, expected a whole number",
        ),
    ],
)
def test_what_is_not_manifest_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    file = tmp_path / "manifest.json"
    file.write_text(text)
    code, out, err = resources(file, capsys)
    assert (code, out) == (3, "")
    assert err.startswith(f"error: {file}: {message}")
    assert err.endswith("Name a library's manifest.json, or build again.\n")


def test_folder_and_nothing_are_not_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert resources(tmp_path, capsys)[0] == 3
    assert resources(tmp_path / "none", capsys)[0] == 6

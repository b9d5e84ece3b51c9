"""The index that C++ programs read: every kernel of the manifest with its fields, in words without spaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpm.attention.cpp.index import INDEX, write_index
from ckpm.commands import main
from tests.unit import manifests

NAME = (
    "fmha_batch_prefill_d128_bf16_group_b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16_qr_async_vr_psskddv"
    "_nlogits_nbias_mask_lse_ndropout_nsquant"
)
OTHER = NAME.replace("_nlogits_", "_logits_")


def index_of(folder: Path, *names: str) -> list[str]:
    manifests.write_library(folder, manifests.document({name: {} for name in names}))
    return write_index(folder).read_text().splitlines()


def test_each_kernel_has_line_with_fields_of_its_name(tmp_path: Path) -> None:
    lines = index_of(tmp_path, NAME, OTHER)
    assert lines[:5] == [
        "ckpm-kernels 1",
        "library libckpm.so",
        "made-with batch_prefill",
        "upstream aiter",
        "archs gfx950",
    ]
    kinds, names, properties = zip(*(line.split(" ", 2) for line in lines[5:]), strict=True)
    assert (kinds, names) == (("kernel", "kernel"), (NAME, OTHER))
    first, other = (dict(word.split("=") for word in line.split(" ")) for line in properties)
    expected = {
        "family": "batch_prefill", "dtype": "bf16", "hdim_q": "128", "hdim_v": "128", "mode": "group",
        "tile.bm0": "64", "tile.bn0": "128", "tile.rm0": "4", "tile.wk1": "16", "tile.occupancy": "-1",
        "pipeline": "qr_async", "vlayout": "row", "pad": "psskddv", "logits": "false", "bias": "no", "mask": "mask",
        "lse": "true", "dropout": "false", "qscale": "no",
    }  # fmt: skip
    assert expected.items() <= first.items()
    assert {name for name in first if first[name] != other[name]} == {"logits"}
    assert "name" not in first


def test_command_reports_where_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index_of(tmp_path, NAME)
    (tmp_path / INDEX).unlink()
    assert main(["cpp", "index", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / INDEX}\n"
    assert main(["cpp", "index", str(tmp_path), "--output", str(tmp_path / "elsewhere.txt")]) == 0
    assert (tmp_path / "elsewhere.txt").read_bytes() == (tmp_path / INDEX).read_bytes()

"""fwd_v3 in the matrix: four kernels named as upstream's instance files are, beside the codegen's families."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpm.base.errors import TableError
from ckpm.matrix.dialects import FAMILIES, HAND_WRITTEN, TABLES, dialect, read_dialect
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.explain import find_key
from tests.unit.enumerated import keys_of
from tests.unit.shared import Run

DIALECT = "ck-2025-11"
NAMES = [f"fmha_fwd_v3_d128_{dtype}_{mask}" for dtype in ("fp16", "bf16") for mask in ("nmask", "mask")]


@pytest.mark.parametrize("mask_impl", ["simplified", "generic"])
@pytest.mark.parametrize("receipt", [0, 200, 801])
def test_kernels_are_four_whatever_is_asked_for(receipt: int, mask_impl: str) -> None:
    keys = keys_of(DIALECT, "fwd_v3", "gfx950", receipt, mask_impl)
    assert [key.name for key in keys] == NAMES
    assert {(key.mask, key.mask_impl) for key in keys} == {("no", "generic"), ("causal", "generic")}


@pytest.mark.parametrize("name", NAMES)
def test_name_parses_back_to_its_key(name: str) -> None:
    family, key = find_key(dialect(DIALECT), name, "simplified")
    assert key in enumerate_keys(family, arch="gfx950")
    assert (key.tile.bm0, key.tile.rm0, key.tile.word[:5]) == (256, 8, "b256x")


def test_all_families_are_codegen_s() -> None:
    assert set(HAND_WRITTEN).isdisjoint(FAMILIES)
    assert set(dialect(DIALECT).families) == set(FAMILIES)


def test_head_dims_with_several_tiles_need_names_that_spell_them(tmp_path: Path) -> None:
    text = (TABLES / f"dialects/{DIALECT}/fwd_v3.yaml").read_text()
    (tmp_path / "own").mkdir()
    (tmp_path / "own/dialect.yaml").write_text("dialect: own\nsummary: one\n")
    word = "b256x32x128x128x32x128_r8x1x1_r8x1x1_w32x32x16_w32x32x16"
    (tmp_path / "own/fwd_v3.yaml").write_text(text.replace(f"[{word}]", f"[{word}, {word.replace('b256', 'b512')}]"))
    with pytest.raises(TableError, match="where head dims have several"):
        read_dialect(tmp_path / "own").family("fwd_v3")


@pytest.mark.parametrize("command", ["list", "build"])
def test_gfx942_has_none_and_message_reports_why(command: str, tmp_path: Path, run: Run) -> None:
    render = ("--render", str(tmp_path)) if command == "build" else ()
    code, _, err = run(command, *render, "--family", "fwd_v3", "--arch", "gfx942")
    assert (code == 0) == (command == "list")
    assert "no fwd_v3 kernel for gfx942: its pipeline transposes V" in err

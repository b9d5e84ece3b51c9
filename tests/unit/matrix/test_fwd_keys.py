"""Keys, names and receipts of the forward family, and what is known of April 2026."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpm.base.errors import NameSyntaxError, SetupError, TableError
from ckpm.commands import main
from ckpm.matrix.dialects import dialect
from ckpm.matrix.explain import find
from ckpm.matrix.keys import Key
from ckpm.matrix.names import parse
from tests.unit.enumerated import keys_of, names_of
from tests.unit.matrix.matrix_samples import edit_dialect

NEWEST, APRIL = "rocm-libraries-2026", "rocm-libraries-2026-04"


def keys(name: str, arch: str, receipt: int = 0, masks: str = "simplified") -> list[Key]:
    return keys_of(name, "fwd", arch, receipt, masks)


def test_of_april_2026_only_gfx9_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty list that ends with 0 would say that the arch had no kernels then."""
    for command in ("list", "count"):
        assert main([command, "--dialect", APRIL, "--arch", "gfx1201", "--family", "all"]) == SetupError.exit_code
        answer = capsys.readouterr()
        assert answer.out == ""
        assert answer.err.startswith(f"error: dialect {APRIL} has nothing for gfx1201: only gfx9's kernels of April")


def test_of_april_2026_gfx942_has_batch_prefill_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--dialect", APRIL, "--arch", "gfx942", "--family", "all", "--mask", "generic"]) == 0
    answer = capsys.readouterr()
    assert answer.out.splitlines() == names_of(APRIL, "batch_prefill", "gfx950", mask_impl="generic")
    assert answer.err.count("kernel for gfx942: upstream published this family's kernels of April 2026 for gfx950") == 8


def test_fields_that_name_does_not_spell() -> None:
    family = dialect(NEWEST).families["fwd"]
    wide, narrow = (
        next(key for key in keys(NEWEST, "gfx950") if (key.hdim_q, key.hdim_v) == hdims)
        for hdims in ((192, 192), (192, 128))
    )
    assert [parse(family, key.name)["hdim_v"] for key in (wide, narrow)] == [192, 128]
    assert (wide.tile.occupancy, narrow.tile.occupancy) == (1, -1)
    assert (wide.arch_trait, wide.trload, wide.qscale) == ("gfx950", False, "no")


def test_wrong_name_is_explained_by_family_it_begins_like() -> None:
    name = keys(NEWEST, "gfx950")[0].name
    with pytest.raises(NameSyntaxError, match=r"is not a fwd name of this dialect: after .* expected trload"):
        find(dialect(NEWEST), name.replace("_ntrload", "_xtrload"), "simplified")
    with pytest.raises(NameSyntaxError, match="is not a batch_prefill name of this dialect"):
        find(dialect(NEWEST), "fmha_batch_prefill_d128_fp61", "simplified")


def test_unknown_mask_set_of_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        TableError, match=r"fwd\.yaml:\d+: pipelines\.fp8_v3\.masks: must be one of simplified, generic"
    ):
        edit_dialect(tmp_path, f"{NEWEST}/fwd", "    masks: generic\n", "    masks: causal\n").families["fwd"]

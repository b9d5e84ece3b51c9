"""The forward family is upstream's in every dialect, in upstream's order; so is April 2026's batch prefill.

Expected numbers and hashes are those of lists that upstream's own codegen wrote or published, never of our output.
"""

from pathlib import Path

import pytest

from ckpm.base.errors import NameSyntaxError, SetupError, TableError
from ckpm.commands import main
from ckpm.matrix.dialects import dialect
from ckpm.matrix.explain import find, receipts_with, why
from ckpm.matrix.keys import Key
from ckpm.matrix.names import parse
from ckpm.matrix.published import emission_sha256
from ckpm.matrix.selection import Selection
from tests.unit.enumerated import keys_of, names_of
from tests.unit.matrix.matrix_samples import edit_dialect

RECEIPTS = (0, 1, 2, 3, 4, 100, 200, 600, 700, 800, 801, 888)
NEWEST, APRIL = "rocm-libraries-2026", "rocm-libraries-2026-04"


def keys(name: str, arch: str, receipt: int = 0, masks: str = "simplified", family: str = "fwd") -> list[Key]:
    return keys_of(name, family, arch, receipt, masks)


def names(name: str, arch: str, receipt: int = 0, masks: str = "simplified", family: str = "fwd") -> list[str]:
    return names_of(name, family, arch, receipt, masks)


@pytest.mark.parametrize(
    ("name", "arch", "counts"),
    [
        (NEWEST, "gfx950", [7760, 10576, 540, 3872, 2160, 4928, 2544, 7472, 748, 1728, 24, 248]),
        (NEWEST, "gfx1100", [5376, 8064, 336, 2688, 1344, 2688, 2688, 5376, 496, 0, 0, 0]),
        (NEWEST, "gfx1201", [4562, 6738, 272, 2176, 1088, 2194, 2188, 4382, 400, 0, 0, 60]),
        ("ck-2025-11", "gfx950", [3004, 4028, 1104, 1104, 528, 1848, 940, 2788, 3004, 864, 12, 108]),
        ("ck-2025-11", "gfx1201", [1884, 1884, 624, 624, 272, 1112, 556, 1668, 1884, 0, 0, 108]),
        ("ck-2025-11", "gfx1100", [0] * 12),
        # this version has no 700 to 888
        ("ck-2025-06", "gfx90a", [5016, 6936, 960, 960, 416, 1664, 832, 2496, 5016, 5016, 5016, 5016]),
    ],
)
def test_counts_of_every_receipt(name: str, arch: str, counts: list[int]) -> None:
    assert [len(names(name, arch, receipt)) for receipt in RECEIPTS] == counts


LISTS = {
    ("ck-2025-11", "gfx950", 1, "generic"): "198a3fb78090631ac422c21b3ad4bef1e18f71366dc51c306a51ffc8d0c6e1b4",
    ("ck-2025-11", "gfx942", 800, "simplified"): "f9600f01e2c6b37897110836a5c7f5812e006f715226c67fc521a668ce95ef41",
    ("ck-2025-11", "gfx1201", 0, "simplified"): "571bbe191fb7f93990adea8884714e56733e62637eeca9987caa8e520434c4a7",
    ("ck-2025-06", "gfx942", 1, "simplified"): "5bdfded3c1c686c78930a004dc3958eebe2e37f0679be6a36ca4cd5cbab7ab11",
}


@pytest.mark.parametrize(("name", "arch", "receipt", "masks"), LISTS)
def test_lists_in_order_of_emission(name: str, arch: str, receipt: int, masks: str) -> None:
    assert emission_sha256(names(name, arch, receipt, masks)) == LISTS[name, arch, receipt, masks]


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
    assert answer.out.splitlines() == list(names(APRIL, "gfx950", masks="generic", family="batch_prefill"))
    assert answer.err.count("kernel for gfx942: upstream published this family's kernels of April 2026 for gfx950") == 8


def test_v3_has_generic_masks_whichever_are_asked_for() -> None:
    simplified, generic = (
        [key for key in keys(NEWEST, "gfx950", masks=masks) if key.pipeline == "qr_async_trload_v3"]
        for masks in ("simplified", "generic")
    )
    assert len(simplified) == 32
    assert simplified == generic
    assert {(key.mask_impl, key.mask) for key in simplified} == {("generic", "no"), ("generic", "causal")}
    explained = why(dialect(NEWEST), Selection(archs=("gfx950",), families=("fwd",)), simplified[0].name)
    assert explained.reasons == ()


def test_minimal_set_of_fp32_is_empty_with_generic_masks() -> None:
    assert len(keys(NEWEST, "gfx950", 801)) == 24
    assert keys(NEWEST, "gfx950", 801, "generic") == []


def test_kernels_of_receipt_1_alone() -> None:
    more = {key.name: key for key in keys(NEWEST, "gfx942", 1)}
    less = {key.name for key in keys(NEWEST, "gfx942")}
    extra = [key for name, key in more.items() if name not in less]
    assert less < set(more)
    assert {(key.pipeline, key.pad) for key in extra} == {("qr", "psskddv")}
    assert receipts_with(dialect(NEWEST).families["fwd"], extra[0]) == (1,)


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

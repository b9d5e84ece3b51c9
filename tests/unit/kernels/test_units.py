"""Units: complete, bounded, named by content, and stable where an axis value changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpm.kernels.families.render import plan_units
from ckpm.matrix.dialects import dialect
from ckpm.matrix.keys import Key
from ckpm.matrix.selection import Selection, select

ALL = {
    name: select(dialect(name), Selection(archs=("gfx950",)))
    for name in ("ck-2025-06", "ck-2025-11", "rocm-libraries-2026")
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("size", [1, 3, 8, 16])
def test_every_key_is_in_one_unit_of_bounded_size(name: str, size: int) -> None:
    units = plan_units(ALL[name], size)
    names = [key.name for unit in units for key in unit.keys]
    assert sorted(names) == sorted(key.name for key in ALL[name])
    assert max(len(unit.keys) for unit in units) <= size
    assert len({unit.name for unit in units}) == len(units)


@given(st.sets(st.sampled_from(ALL["ck-2025-11"]), min_size=1), st.integers(1, 20))
def test_unit_never_mixes_dtypes_or_tiles(keys: set[Key], size: int) -> None:
    for unit in plan_units(sorted(keys, key=lambda key: key.name), size):
        assert len({(key.dtype, key.tile, key.hdim_q) for key in unit.keys}) == 1


@pytest.mark.parametrize("name", ["rocm-libraries-2026", "ckpm-serving"])
def test_units_are_filled_well_enough_to_pay(name: str) -> None:
    keys = select(dialect(name), Selection(archs=("gfx950",), tier="full"))
    assert len(keys) / len(plan_units(keys)) > 6  # of at most 8


@pytest.mark.parametrize(
    ("field", "value"), [("bias", "alibi"), ("mask", "mask"), ("dtype", "bf16"), ("mode", "batch"), ("hdim_q", 256)]
)
@pytest.mark.parametrize("name", ALL)
def test_removed_axis_value_leaves_other_units_unchanged(name: str, field: str, value: object) -> None:
    before = plan_units(ALL[name])
    after = {unit.name for unit in plan_units([key for key in ALL[name] if getattr(key, field) != value])}
    untouched = [unit for unit in before if all(getattr(key, field) != value for key in unit.keys)]
    changed = after - {unit.name for unit in before}
    holding = len(before) - len(untouched)
    assert len(changed) <= holding
    if name == "rocm-libraries-2026":  # its blocks are large enough that no unit has to be shared
        assert {unit.name for unit in untouched} <= after


def test_name_follows_from_kernels_alone() -> None:
    keys = ALL["ck-2025-11"][:5]
    assert plan_units(keys)[0].name == plan_units(list(keys))[0].name
    assert plan_units(keys)[0].name != plan_units(keys[:4])[0].name

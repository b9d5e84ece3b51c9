"""Known defects: kernels that an upstream lists and can't compile are left out of builds, and only there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.base.errors import UsageError
from ckpm.kernels.library.request import BuildRequest, prepare
from ckpm.matrix import defects as module
from ckpm.matrix.defects import defect_of, defects, split
from ckpm.matrix.dialects import TABLES, dialect, dialect_names
from ckpm.matrix.families import MASK_IMPLS
from ckpm.matrix.selection import Selection, select
from tests.unit.shared import replace_text, table_complaint


@pytest.mark.parametrize("name", dialect_names())
def test_every_defect_of_dialect_holds_for_some_of_its_kernels(name: str) -> None:
    for defect in (defect for defect in defects() if defect.dialect == name):
        keys = [
            key
            for mask_impl in MASK_IMPLS
            for key in select(
                dialect(name), Selection(archs=("gfx950",), families=(defect.family,), mask_impl=mask_impl)
            )
        ]
        assert 0 < sum(defect.holds(key) for key in keys) < len(keys)


def test_column_major_v_is_half_of_mid_2025() -> None:
    keys = select(dialect("ck-2025-06"), Selection(archs=("gfx950",)))
    sound, left_out = split(keys, "ck-2025-06")
    assert [(defect.name, len(group)) for defect, group in left_out.items()] == [
        ("column-major-v-does-not-compile", 384)
    ]
    assert {key.vlayout for key in sound} == {"row"}
    assert defect_of(sound[0], "ck-2025-06") is None
    assert all(defect_of(key, "ck-2025-11") is None for key in keys)  # another version


def test_build_leaves_out_and_records_failing_kernels(
    stub_toolchain: Callable[..., object], request_for: Callable[..., BuildRequest]
) -> None:
    request = request_for(stub_toolchain(), where=("key.lse and not key.dropout",))
    request = dataclasses.replace(
        request,
        tree=dataclasses.replace(request.tree, dialect="ck-2025-06"),
        selection=dataclasses.replace(request.selection, receipt=0),
    )
    plan, keys = prepare(request)
    left_out = plan.facts["left_out"]["column-major-v-does-not-compile"]
    assert len(left_out["kernels"]) == len(keys) == 96
    assert all("_vc_" in name for name in left_out["kernels"])
    assert not any("_vc_" in name for step in plan.steps for name in step.kernels)
    only = dataclasses.replace(request.selection, where=("key.vlayout == 'col'",))
    with pytest.raises(UsageError, match="none of the 384 selected kernels of batch_prefill compiles with this CK"):
        prepare(dataclasses.replace(request, selection=only))


def test_family_without_kernel_that_compiles_is_reported(
    stub_toolchain: Callable[..., object], request_for: Callable[..., BuildRequest]
) -> None:
    """Split-KV of generic masks: its combine stage alone makes no library."""
    families = ("fwd_splitkv", "fwd_splitkv_combine")
    request = request_for(stub_toolchain(), families=families, mask_impl="generic", filters=("*_d128_bf16_*",))
    with pytest.raises(UsageError, match=r"kernels of fwd_splitkv compiles with this CK. split-kv-of-generic"):
        prepare(request)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("dialect: ck-2025-06", "dialect: ck-2025-07", "dialect: unknown 'ck-2025-07'; known: ck-2025-06, "),
        ("family: batch_prefill", "family: batch-prefill", "family: unknown 'batch-prefill'; known: fwd, "),
        ("key.vlayout", "key.vlayuot", "where: \"key.vlayuot == 'col'\": unknown field 'key.vlayuot'"),
    ],
)
def test_defect_of_no_kernels_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    monkeypatch.setattr(module, "TABLES", tmp_path)
    text = replace_text((TABLES / "defects.yaml").read_text(), old, new)
    complaint = table_complaint(tmp_path / "defects.yaml", text, lambda _: module.defects.__wrapped__())
    assert f": defects.column-major-v-does-not-compile.{message}" in complaint

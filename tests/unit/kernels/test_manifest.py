"""A manifest is read as it was written, a damaged one is named with its field, and a library is held against it."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpm.base.errors import LibraryError, NameSyntaxError, RecordError
from ckpm.base.records import Source
from ckpm.kernels.library.manifest import Manifest, check_library
from ckpm.matrix.dialects import dialect
from ckpm.matrix.selection import Selection, select
from tests.unit import manifests

KEYS = select(dialect("ck-2025-11"), Selection(archs=("gfx950",), tier="smoke"))
NAMES = [key.name for key in KEYS]


def test_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "manifest.json"
    manifest = manifests.record(*NAMES, left_out={"odd": {"reason": "r", "kernels": ["k"]}})
    manifest.write(file)
    assert Manifest.read(file) == manifest
    assert json.loads(file.read_text()) == manifests.document(
        {name: {} for name in NAMES}, left_out={"odd": {"reason": "r", "kernels": ["k"]}}
    )


def test_other_code_of_kernel_is_read_as_written(tmp_path: Path) -> None:
    figures = {**manifests.FIGURES, "symbol": "wide", "vgpr": 180}
    stored = manifests.document({NAMES[0]: {"others": {"gfx950": [figures]}}, NAMES[1]: {}})
    (tmp_path / "manifest.json").write_text(json.dumps(stored))
    manifest = Manifest.read(tmp_path / "manifest.json")
    assert [(resources.symbol, resources.vgpr) for resources in manifest.kernels[NAMES[0]].resources_on("gfx950")] == [
        ("k", 200),
        ("wide", 180),
    ]
    assert [resources.symbol for resources in manifest.kernels[NAMES[1]].resources_on("gfx950")] == ["k"]
    assert manifest.kernels[NAMES[0]].resources_on("gfx942") == ()
    manifest.write(tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == stored


def test_manifest_of_earlier_version_is_read(tmp_path: Path) -> None:
    """They had no known defects yet, no conversion to bf16, and fewer figures."""
    stored = manifests.document({"k": {"archs": {"gfx950": {**manifests.FIGURES}}}})
    del stored["left_out"], stored["bf16"]
    del stored["kernels"]["k"]["batch_invariant"]
    for name in ("text_bytes", "symbol", "text_sha256"):
        del stored["kernels"]["k"]["archs"]["gfx950"][name]
    (tmp_path / "manifest.json").write_text(json.dumps(stored))
    manifest = Manifest.read(tmp_path / "manifest.json")
    kernel = manifest.kernels["k"]
    assert (manifest.left_out, manifest.bf16) == ({}, "")
    assert (kernel.archs["gfx950"].vgpr, kernel.batch_invariant) == (200, False)


def test_keys_of_manifest_are_selected_keys() -> None:
    manifest = manifests.record(*NAMES)
    assert manifest.keys() == tuple(KEYS)
    assert [key.name for key in manifest.keys(NAMES[::-1])] == NAMES[::-1]
    with pytest.raises(NameSyntaxError, match="no family of ck-2025-11 names kernels so"):
        manifests.record("gemm_d128").keys()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d.pop("upstream"), "upstream: is missing, expected text"),
        (lambda d: d.update(unit_size=-1), "unit_size: must not be negative, is -1"),
        (lambda d: d.update(mask_impl="simple"), "mask_impl: 'simple' is none of simplified, generic"),
        (
            lambda d: d["kernels"]["k"]["archs"]["gfx950"].update(lds_bytes="much"),
            "kernels.k.archs.gfx950.lds_bytes: is 'much', expected a whole number",
        ),
    ],
)
def test_mistake_in_manifest_is_named(tmp_path: Path, damage: Callable[[Any], Any], message: str) -> None:
    stored = copy.deepcopy(manifests.document({"k": {}}))
    damage(stored)
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps(stored))
    with pytest.raises(RecordError) as caught:
        Manifest.read(file)
    assert str(caught.value).startswith(f"{file}: {message}. ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(value=JSON, path=st.sampled_from([("archs",), ("kernels",), ("kernels", "k"), ("kernels", "k", "archs"), ()]))
def test_any_json_is_read_or_refused_with_its_path(value: object, path: tuple[str, ...]) -> None:
    """Reading raises nothing but a RecordError, which begins with the file."""
    stored: Any = copy.deepcopy(manifests.document({"k": {}}))
    inner = stored
    for name in path[:-1]:
        inner = inner[name]
    if path:
        inner[path[-1]] = value
    else:
        stored = value
    source = Source(location="m.json", what="a manifest", remedy="", error=RecordError)
    complaint = "m.json: none"
    try:
        Manifest.of(source.parse(json.dumps(stored)))
    except RecordError as error:
        complaint = str(error)
    assert complaint.startswith("m.json: ")


def test_library_must_be_one_that_is_listed(tmp_path: Path) -> None:
    library = manifests.write_library(tmp_path, manifests.document({}))
    listed = hashlib.sha256(manifests.LIBRARY_BYTES).hexdigest()
    assert check_library(library, manifests.record()) == listed
    with pytest.raises(LibraryError, match="the manifest's not said"):
        check_library(library, manifests.record(artifacts={}))
    library.write_bytes(manifests.LIBRARY_BYTES + b"\0")
    changed = hashlib.sha256(manifests.LIBRARY_BYTES + b"\0").hexdigest()
    with pytest.raises(LibraryError, match=f"its sha256 is {changed}, the manifest's {listed}") as caught:
        check_library(library, manifests.record())
    assert caught.value.exit_code == 6

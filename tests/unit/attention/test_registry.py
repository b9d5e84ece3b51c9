"""Kernels by declaration and from libraries, each once, none unknown, exported and read back."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ckpm.attention.kernel_sets import kernel_set
from ckpm.attention.launch.device import Device
from ckpm.attention.registry import FORMAT, Instance, Registry
from ckpm.base.errors import LibraryError, RecordError, TrustError
from ckpm.matrix.dialects import dialect, upstreams
from ckpm.matrix.enumeration import enumerate_keys
from tests.unit import manifests
from tests.unit.attention.fakes import ARCH, PREFILL, FakeDevice, built, make_dispatcher, prefill


def test_kernel_set_has_kernels_with_its_values() -> None:
    """Against the whole family, filtered here by hand."""
    every = enumerate_keys(dialect(upstreams()["aiter"].dialect).family("fwd"), arch=ARCH)
    chosen = kernel_set(
        "fwd", ARCH, dtype="bf16", hdim_q=128, mask="*", bias=("no", "alibi"), tile={"bm0": 128}, warp={"wk0": 16}
    )
    wanted = [
        key.name
        for key in every
        if (key.dtype, key.hdim_q, key.tile.bm0, key.tile.wk0) == ("bf16", 128, 128, 16) and key.bias != "bias"
    ]
    assert [kernel.name for kernel in chosen] == wanted
    assert len(wanted) > 50
    assert {kernel.key.mask for kernel in chosen} == {"no", "mask"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dtyp": "bf16"}, "a kernel has no field 'dtyp'; did you mean 'dtype'?"),
        ({"tile": {"rm0": 4}}, "a kernel has no field 'rm0'; did you mean 'bm0'?"),
        ({"dtype": "bf17"}, "has no kernel with dtype 'bf17' beside what comes before it; those have bf16, fp16"),
        ({"mask_impl": "simple"}, "unknown mask set 'simple'; did you mean 'simplified'?"),
        ({"tile": 64}, "tile is 64: it must be a mapping"),
    ],
)
def test_set_with_unknown_field_or_value_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(LibraryError) as raised:
        kernel_set("fwd", ARCH, **fields)
    assert message in str(raised.value)


def test_kernel_is_registered_once() -> None:
    declared = kernel_set("fwd", ARCH, dtype="bf16", hdim_q=128, mode="batch", tile={"bm0": 128})
    registry = Registry(declared)
    with pytest.raises(LibraryError, match="is declared already"):
        registry.add(declared[-1:])
    version = registry.version
    compiled = [replace(kernel, library=Path("/somewhere/libckpm.so")) for kernel in declared[:2]]
    registry.add(compiled)  # what was declared is now built
    assert (len(registry), registry.version) == (len(declared), version + 1)
    assert [kernel.library is not None for kernel in registry.instances()].count(True) == 2
    with pytest.raises(LibraryError, match="registered from /somewhere/"):
        registry.add([replace(compiled[0], library=Path("/elsewhere"))])
    with pytest.raises(LibraryError, match="registered from"):
        registry.add(declared[:1])


def test_nothing_of_refused_batch_is_added() -> None:
    declared = kernel_set("fwd", ARCH, dtype="bf16", hdim_q=128, mode="batch", tile={"bm0": 128})
    registry = Registry(declared[:1])
    with pytest.raises(LibraryError):
        registry.add([declared[1], declared[0]])
    assert len(registry) == 1


def test_libraries_may_have_same_second_stage() -> None:
    stages = built("fwd_splitkv_combine", dtype="bf16", hdim_q=128)
    other = [replace(kernel, library=Path("/other/libckpm.so")) for kernel in stages]
    assert len(Registry((*stages, *other))) == 2 * len(stages)


def test_priority_comes_before_order() -> None:
    kernels = kernel_set("fwd", ARCH, dtype="bf16", hdim_q=128, mode="batch", tile={"bm0": 128})[:3]
    registry = Registry(kernels)
    registry.set_priority([kernels[2].name], 5)
    assert [kernel.name for kernel in registry.instances()] == [kernels[index].name for index in (2, 0, 1)]
    with pytest.raises(LibraryError, match="no kernel nothing is registered"):
        registry.set_priority(["nothing"], 1)
    with pytest.raises(LibraryError, match="it must be a whole number"):
        registry.set_priority([kernels[2].name], "high")  # type: ignore[arg-type]
    assert registry.find(kernels[1].name, ARCH).key == kernels[1].key
    with pytest.raises(LibraryError, match="for gfx942"):
        registry.find(kernels[1].name, "gfx942")


def library(folder: Path, names: list[str]) -> Path:
    """A library of nothing with a manifest that lists kernels of aiter; the first of them without code."""
    listed: dict[str, Any] = {name: {} if index else {"archs": {}} for index, name in enumerate(names)}
    return manifests.write_library(folder, manifests.document(listed))


def test_library_brings_kernels_that_it_has_code_of(tmp_path: Path) -> None:
    names = [
        kernel.name for kernel in kernel_set("fwd", ARCH, dtype="bf16", hdim_q=128, mode="batch", tile={"bm0": 128})[:3]
    ]
    file = library(tmp_path, names)
    registry = Registry()
    added = registry.add_library(file, priority=2)
    assert [(kernel.name, kernel.library, kernel.priority) for kernel in added] == [
        (name, file, 2) for name in names[1:]
    ]
    assert registry.instances(ARCH, "fwd") == added
    assert registry.instances("gfx942") == registry.instances(ARCH, "fwd_splitkv") == ()
    with pytest.raises(LibraryError):
        registry.add_library(file)
    file.write_bytes(b"other code")
    with pytest.raises(LibraryError):
        Registry().add_library(file)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(RecordError):
        Registry().add_library(file)


@pytest.mark.parametrize("name", ["fmha_fwd_d7_of_older_tables", "fmha_fwwd_d128"])
def test_library_of_other_tables_is_named_with_its_remedy(name: str, tmp_path: Path) -> None:
    file = library(tmp_path, [kernel_set("fwd", ARCH, dtype="bf16", hdim_q=128)[0].name, name])
    with pytest.raises(LibraryError) as raised:
        Registry().add_library(file)
    assert str(raised.value).startswith(f"{file}: built from other tables: ")
    assert "Build it again: ckpm build --arch gfx950" in str(raised.value)
    assert str(raised.value).endswith(f", or delete the folder {tmp_path}.")


def test_exported_registry_is_read_back(tmp_path: Path) -> None:
    names = [kernel.name for kernel in kernel_set("batch_prefill", ARCH, dtype="fp16")]
    registry = Registry(kernel_set("fwd", ARCH, dtype="bf16", priority=3))
    registry.add_library(library(tmp_path, names))
    registry.write(tmp_path / "r.json")
    back = Registry.read(tmp_path / "r.json")
    assert back.instances() == registry.instances()
    assert len(back) > 100


def test_export_of_checkout_with_feature_is_read_back(tmp_path: Path) -> None:
    name = "rocm-libraries-2026+few_compute_units"
    key = enumerate_keys(dialect(name).family("batch_prefill"), arch=ARCH)[0]
    registry = Registry([Instance(key=key, arch=ARCH, upstream="checkout", dialect=name)])
    registry.write(tmp_path / "r.json")
    assert Registry.read(tmp_path / "r.json").instances() == registry.instances()


class Loader(FakeDevice):
    """A device that opens libraries."""

    load = Device.load


@pytest.mark.parametrize("exported", [False, True])
def test_library_replaced_before_its_first_launch_is_refused(exported: bool, tmp_path: Path) -> None:
    registry, folder = Registry(), tmp_path / "batch_prefill"
    names = [kernel.name for kernel in prefill().instances()]
    file = registry.add_library(manifests.write_library(folder, manifests.document({n: {} for n in names})))[0].library
    if exported:
        registry.write(tmp_path / "r.json")
        registry = Registry.read(tmp_path / "r.json")
    dispatcher, device = make_dispatcher(registry, Loader())
    assert file is not None
    file.write_bytes(b"the library of a later build")
    with pytest.raises(LibraryError, match=r"libckpm\.so: it was replaced after it was registered"):
        dispatcher.plan(PREFILL)
    assert not device.launched


def write_registry(folder: Path) -> Path:
    """Export a registry of one library with two kernels; its file."""
    names = [kernel.name for kernel in kernel_set("batch_prefill", ARCH, dtype="fp16", hdim_q=128)]
    registry = Registry()
    registry.add_library(library(folder, names[:3]))
    registry.write(folder / "r.json")
    return folder / "r.json"


def change_bytes(folder: Path) -> None:
    (folder / "libckpm.so").write_bytes(b"other code")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (change_bytes, LibraryError, "it is not the library of the manifest.json beside it"),
        (lambda folder: (folder / "manifest.json").unlink(), RecordError, "manifest.json"),
        (lambda folder: (folder / "libckpm.so").unlink(), LibraryError, "no such library"),
        (lambda folder: (folder / "libckpm.so").chmod(0o777), TrustError, "other users can write to it"),
    ],
)
def test_read_registry_trusts_no_library_unseen(
    change: Any, error: type[Exception], message: str, tmp_path: Path
) -> None:
    """Code of a library that is not its manifest's never runs."""
    file = write_registry(tmp_path)
    assert len(Registry.read(file)) == 2
    change(tmp_path)
    with pytest.raises(error, match=message):
        Registry.read(file)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda d: d.update(format=FORMAT + 1), RecordError, f"of format {FORMAT + 1}, this program reads"),
        (lambda d: d["kernels"].append(d["kernels"][0]), LibraryError, "is registered from"),
        (lambda d: d["kernels"][0].update(name="fmha_fwd_d7"), LibraryError, "no kernel of ck-2025-11"),
        (lambda d: d["kernels"][0].update(dialect="ck-2025"), RecordError, "unknown dialect 'ck-2025'; did you mean"),
        (lambda d: d["kernels"][0].update(library=""), RecordError, "kernels[0].library: is empty"),
        (lambda d: d["kernels"][0].update(upstream="ckpm"), LibraryError, "of ckpm. Export the registry again"),
        (lambda d: d["kernels"][0].update(library="/none/libckpm.so"), LibraryError, "/none/libckpm.so: no such"),
    ],
)
def test_damaged_registry_is_named(change: Any, error: type[Exception], message: str, tmp_path: Path) -> None:
    file = write_registry(tmp_path)
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))
    with pytest.raises(error) as raised:
        Registry.read(file)
    assert message in str(raised.value)


def test_registry_add_in_threads_loses_no_kernel() -> None:
    kernels = kernel_set("fwd", ARCH, dtype=("bf16", "fp16"), hdim_q=128)
    parts = [kernels[start::8] for start in range(8)]
    registry = Registry()
    barrier = threading.Barrier(8)

    def add(part: Any) -> None:
        barrier.wait()
        for kernel in part:
            registry.add([kernel])
            assert kernel in registry.instances()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, parts))
    assert (len(registry), registry.version) == (len(kernels), len(kernels) + 1)

"""A load by inline assembly, whose register is moved and reused before the wait: the lint names it, late loads show it.

The kernel is the one of docs/upstream/asm-loads.md, compiled here by the embedded clang. Where loads land at once, as
on an emulator without checks and now and then on a GPU, it is right.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from ckpm.kernels.library.manifest import Manifest
from ckpm.suites.suites import LocatedLibrary, unwaited_loads
from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.faults import DeviceFaultError
from ckpm_emulator.inspection.inspect import inspect
from emulator_assembly import launch
from emulator_child import on_device
from programs.clang import compile_source
from tests.unit import manifests

SOURCE = Path(__file__).parents[2] / "docs" / "upstream" / "asm_load.c"
LOADS, LANES, FLOATS = 8, 64, 4  # of the kernel; its output holds as much again of other values


@functools.cache
def code(arch: str, *, in_one: bool) -> bytes:
    return compile_source(SOURCE, arch, "-O3", *(("-DONE_ASM",) if in_one else ()))


def outcome(device: EmulatedGpu, code_object: bytes, *, late: bool) -> str:
    """The outcome of a launch: the input is copied, other data is copied, or the kind of its fault."""
    device.configure(late_loads=late, poison=late, uninitialised=late)
    values = np.arange(LOADS * LANES * FLOATS, dtype=np.float32)
    source, out = device.upload(values), device.upload(np.zeros(2 * values.size, np.float32))
    try:
        launch(device, code_object, source, out)
    except DeviceFaultError as error:
        device.clear_fault()
        return error.fault.kind
    return "copied" if np.array_equal(device.read(out, np.float32)[: values.size], values) else "wrong"


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("in_one", [False, True])
def test_lint_names_moved_overwritten_and_spilled_registers(tmp_path: Path, arch: str, in_one: bool) -> None:
    file = tmp_path / "kernel.hsaco"
    file.write_bytes(code(arch, in_one=in_one))
    (kernel,) = inspect(file, arch, cache=tmp_path / "cache")
    if in_one:
        assert kernel.hazards == ()
        return
    text = "\n".join(kernel.hazards)
    assert "v_mov_b64" in text
    assert "scratch_store" in text
    assert "is overwritten" in text
    assert "waits for global_load_dwordx4" in text


@pytest.mark.parametrize(("in_one", "named"), [(False, {"kernel"}), (True, set())])
def test_suite_knows_kernels_that_have_one(tmp_path: Path, in_one: bool, named: set[str]) -> None:
    resources = {**manifests.FIGURES, "symbol": "test_kernel"}
    listed = manifests.document({"kernel": {"archs": {"gfx950": resources}}})
    library = manifests.write_library(tmp_path, listed)
    library.write_bytes(code("gfx950", in_one=in_one))
    located = LocatedLibrary(library=library, manifest=Manifest.read(tmp_path / "manifest.json"), file_facts={})
    assert unwaited_loads(located, "gfx950") == named


@on_device("gfx942")
def test_late_loads_show_it(device: EmulatedGpu) -> None:
    assert outcome(device, code("gfx942", in_one=False), late=False) == "copied"
    assert outcome(device, code("gfx942", in_one=False), late=True) == "hazard"
    assert outcome(device, code("gfx942", in_one=True), late=True) == "copied"

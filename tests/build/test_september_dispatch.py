"""September's dispatch: traits name the occupancy, and the tile for few compute units is taken below 128 of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpm.attention.launch.c_abi import Library
from ckpm.kernels.abi import LaunchArguments
from ckpm.kernels.families import spellings
from ckpm.kernels.families.batch_prefill import variants
from ckpm.kernels.families.render import render
from ckpm.matrix.dialects import dialect
from ckpm.matrix.keys import Key
from ckpm.matrix.selection import Selection, select
from tests.build.newest import EIGHT, INTERFACE, Compiler, fake, units_of
from tests.build.newest_requests import Model, requests

SEPTEMBER = "rocm-libraries-2026-09"
OCCUPANCY = "-DINTERFACE_2026_OCCUPANCY"


def keys_of(name: str, arch: str = "gfx950") -> list[Key]:
    where = (
        "key.dtype == 'bf16' and key.hdim_q == 256 and key.lse and not (key.logits or key.dropout or key.sink)",
        "key.bias == 'no' and key.kv_layout == 'linear' and key.kv_table == 'sglang'",
    )
    return select(dialect(name), Selection(archs=(arch,), where=where))


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    return Compiler(tmp_path_factory.mktemp("september"))


GATES = ("gfx942_by_dispatch", "gfx942_by_guard", "gfx942_by_list")


@pytest.fixture(scope="module")
def libraries(compiler: Compiler) -> dict[str, Library]:
    """A library for each gate of the tile. Units differ in device code alone, so the first one's serve all."""
    objects = [compiler.compile(INTERFACE / "fake_runtime.hip")]
    libraries = {}
    for gate in GATES:
        name = f"{SEPTEMBER}+{gate}" if gate != GATES[0] else SEPTEMBER
        keys = keys_of(name, "gfx942")
        files = render(keys, units_of(keys), name, spellings.features(name), compiler.folder / gate)
        if gate == GATES[0]:
            objects += [compiler.compile(file, OCCUPANCY) for file in files["units"]]
        host = [compiler.compile(file, OCCUPANCY) for file in (*files["dispatch"], *files["harness"])]
        libraries[gate] = compiler.link(f"lib{gate}", [*objects, *host])
    return libraries


@pytest.mark.parametrize("gate", GATES)
def test_dispatch_below_128_compute_units_takes_their_tile(gate: str, libraries: dict[str, Library]) -> None:
    keys = keys_of(SEPTEMBER, "gfx942")
    model, chosen = Model(keys, EIGHT), set()
    for number, (problem, _) in enumerate(requests(keys, 20, seed=9)):
        compute_units = (80, 104, 127, 128, 304)[number % 5]
        device = ("gfx942:sramecc+:xnack-", "gfx90a:sramecc+", "gfx950")[number % 3]
        fake(libraries[gate], cus=compute_units, name=device)
        expected = model.choose(problem, compute_units, gate != GATES[0] or device.startswith("gfx942"))
        assert libraries[gate].launch(LaunchArguments(**problem)).kernel == expected, (problem, compute_units, device)
        chosen.add(expected)
    unreachable = {key.name for key in keys if key.page_size == 1 and key.load == "bload"}
    assert chosen - {None} == {key.name for key in keys} - unreachable


def is_narrow(key: Key) -> bool:
    return (key.tile.bm0, key.tile.bn0, key.tile.occupancy) == (128, 32, 2)


@pytest.mark.parametrize(
    ("added", "listed"), [("", True), ("+gfx942_by_guard", True), ("+gfx942_by_list", False)], ids=GATES
)
def test_gate_by_list_alone_takes_names_from_gfx950(added: str, listed: bool) -> None:
    for arch in ("gfx90a", "gfx942", "gfx950"):
        assert any(map(is_narrow, keys_of(SEPTEMBER + added, arch))) == (listed or arch != "gfx950")
    others = [key.name for key in keys_of(SEPTEMBER + added) if not is_narrow(key)]
    assert others == [key.name for key in keys_of("rocm-libraries-2026")]


@pytest.mark.parametrize("added", ["", "+gfx942_by_guard"])
def test_gated_tile_has_device_code_on_gfx942_alone(added: str, compiler: Compiler) -> None:
    keys = [key for key in keys_of(SEPTEMBER + added) if is_narrow(key) and key.page_size == 16]
    assert {key.load for key in keys} == {"bload", "gload"}
    files = render(keys, units_of(keys), SEPTEMBER + added, spellings.features(SEPTEMBER), compiler.folder / "device")
    for arch in ("gfx90a", "gfx942", "gfx950"):
        for file in files["units"]:
            assert ('note_selected("' in compiler.preprocess(file, arch)) == (arch == "gfx942")
        for key in keys:
            values = {"page_size": 16, "load": key.load, "tile": key.tile, "pipeline": key.pipeline}
            assert variants(values, arch) == (arch == "gfx942")


def test_may_s_text_misses_occupancy_of_september_s_headers(compiler: Compiler, tmp_path: Path) -> None:
    may = "rocm-libraries-2026"
    keys = keys_of(may)
    files = render(keys, units_of(keys), may, spellings.features(may), tmp_path)
    with pytest.raises(AssertionError, match="too few template arguments"):
        compiler.compile(files["dispatch"][0], OCCUPANCY)

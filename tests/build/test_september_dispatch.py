"""September's dispatch: traits name the occupancy, and the tile for few compute units is taken below 128 of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpm.attention.launch.c_abi import Library
from ckpm.kernels.abi import LaunchArguments
from ckpm.kernels.families import spellings
from ckpm.kernels.families.render import render
from ckpm.matrix.dialects import dialect
from ckpm.matrix.keys import Key
from ckpm.matrix.selection import Selection, select
from tests.build.newest import EIGHT, INTERFACE, Compiler, fake, units_of
from tests.build.newest_requests import Model, requests

SEPTEMBER = "rocm-libraries-2026-09"
OCCUPANCY = "-DINTERFACE_2026_OCCUPANCY"


def keys_of(name: str) -> list[Key]:
    where = (
        "key.dtype == 'bf16' and key.hdim_q == 256 and key.lse and not (key.logits or key.dropout or key.sink)",
        "key.bias == 'no' and key.kv_layout == 'linear' and key.kv_table == 'sglang'",
    )
    return select(dialect(name), Selection(archs=("gfx950",), where=where))


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    return Compiler(tmp_path_factory.mktemp("september"))


@pytest.fixture(scope="module")
def library(compiler: Compiler) -> Library:
    keys = keys_of(SEPTEMBER)
    files = render(keys, units_of(keys), SEPTEMBER, spellings.features(SEPTEMBER), compiler.folder)
    objects = [compiler.compile(file, OCCUPANCY) for group in files.values() for file in group]
    return compiler.link("libseptember", [*objects, compiler.compile(INTERFACE / "fake_runtime.hip", OCCUPANCY)])


def test_dispatch_below_128_compute_units_takes_their_tile(library: Library) -> None:
    keys = keys_of(SEPTEMBER)
    model, chosen = Model(keys, EIGHT), set()
    for number, (problem, _) in enumerate(requests(keys, 20, seed=9)):
        compute_units = (80, 104, 127, 128, 304)[number % 5]
        fake(library, cus=compute_units)
        expected = model.choose(problem, compute_units)
        assert library.launch(LaunchArguments(**problem)).kernel == expected, (problem, compute_units)
        chosen.add(expected)
    unreachable = {key.name for key in keys if key.page_size == 1 and key.load == "bload"}
    assert chosen - {None} == {key.name for key in keys} - unreachable


def test_may_s_text_misses_occupancy_of_september_s_headers(compiler: Compiler, tmp_path: Path) -> None:
    may = "rocm-libraries-2026"
    keys = keys_of(may)
    files = render(keys, units_of(keys), may, spellings.features(may), tmp_path)
    with pytest.raises(AssertionError, match="too few template arguments"):
        compiler.compile(files["dispatch"][0], OCCUPANCY)

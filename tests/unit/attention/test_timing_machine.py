"""The timing model's figures: each has a source and a value for both archs; published ones have a stream each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ckpm.base.errors import InconclusiveError, UsageError
from ckpm.timing.machine import cannot_see, numbers, values
from ckpm.timing.modelling import Modelled, ModelRequest
from ckpm.timing.streams import ADD, EXPONENTIAL, LOAD, READ, dot, gemm, large


def test_published_figures_of_gfx950() -> None:
    """Compare the numbers with ROCm/gfx950-gluon-tutorials and LLVM."""
    figures = values(numbers("gfx950"))
    expected = {
        "vector_cycles": 4, "transcendental_cycles": 8, "permlane_swap_cycles": 20, "matrix_read_cycles": 8,
        "matrix_result_cycles": 4 * (12 - 8), "packed_after_matrix": 44 - 32, "lds_read_bytes": 64 * 4, "lds_queue": 8,
        "lds_pair_bytes": 128, "memory_in_flight": 44 << 10, "memory_latency": 1000,
    }  # fmt: skip
    assert {name: figures[name] for name in expected} == expected


def test_doubts_are_marked() -> None:
    doubtful = {name for name, number in numbers("gfx950").items() if number.doubtful}
    assert {"memory_latency", "branch_cycles", "barrier_cycles", "matrix_read_cycles"} <= doubtful
    assert doubtful.isdisjoint({"vector_cycles", "matrix_result_cycles", "lds_read_bytes"})
    assert cannot_see()


def test_numbers_of_unknown_arch_are_refused() -> None:
    with pytest.raises(InconclusiveError, match=r"no numbers of gfx90a: add them to machine\.yaml"):
        numbers("gfx90a")


def test_gemms_pass_has_documents_loads_and_mfmas() -> None:
    """docs/tcp_bound_tile_model.md 3: 128x128 has 32 MFMAs a wave and 32 KB a pass, of 1 KB a load on four waves."""
    body = gemm(128, 128, 3).body
    assert (body.count("v_mfma"), body.count(LOAD), body.count(READ)) == (32, 8, 16)
    assert body.count("s_waitcnt vmcnt(30)") == 4  # five buffers: four passes of 8 loads, less a slice's two


def test_dot_fills_window_of_each_mfma() -> None:
    body = dot(2, 7, 4, 1)
    first, second = body.split(large())[1:]
    assert first == ADD * 6
    assert second.startswith(ADD + EXPONENTIAL * 2)
    assert body.count(EXPONENTIAL) == 4


def test_more_copies_than_compute_unit_holds_are_refused() -> None:
    """A compute unit of gfx950 has 4 SIMDs of 8 slots (CDNA 3 ISA, 2.2): room for 8 workgroups of 4 waves."""
    device = SimpleNamespace(
        arch="gfx950", compute_units=256, recorded_workgroup=lambda: {"launched": 64, "instructions": [9] * 4}
    )
    resources = SimpleNamespace(archs={"gfx950": SimpleNamespace(occupancy_waves=2)})
    modelled = Modelled(
        device=cast("Any", device), library=cast("Any", None), keys=(), numbers={}, file_facts={},
        manifest=cast("Any", SimpleNamespace(kernels={"one": resources})),
    )  # fmt: skip
    problem = cast("Any", SimpleNamespace(name="p"))
    with pytest.raises(UsageError, match=r"^--resident 9: a compute unit of gfx950 has room .* of 8 workgroups of p"):
        modelled.replay(problem, "one", ModelRequest(resident=9))

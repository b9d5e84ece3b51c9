"""A library that lacks a load mode's kernels is refused launches that it seems to serve: no verdict on a kernel."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ckpm.attention.launch import launching
from ckpm.attention.launch.c_abi import Launch
from ckpm.attention.launch.launching import LaunchOutcome
from ckpm.base.errors import InconclusiveError
from ckpm.kernels.abi import Status
from ckpm.matrix.dialects import dialect
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.performance import performance_problems
from ckpm.matrix.problems.serving import serving_kernels
from ckpm.matrix.problems.tables import find
from ckpm.matrix.selection import Selection, select
from ckpm.suites import checks
from ckpm.suites.checks import CaseBench, run_case
from ckpm.timing import measure

PROBLEM = find("batch-prefill/paged_rows.vectorized-causal")


def smoke(*loads: str) -> tuple[Key, ...]:
    keys = select(dialect("rocm-libraries-2026"), Selection(archs=("gfx950",), tier="smoke"))
    return tuple(key for key in keys if key.load in loads)


def refuse_launches(status: Status) -> Any:
    def launch(device: Any, library: Any, prepared: Any, named: Any = None) -> LaunchOutcome:
        answer = Launch(status=status, message="no kernel", kernels=(), milliseconds=0.0)
        return LaunchOutcome(prepared=prepared, launch=answer, fault=None, seconds=0.0)

    return launch


def bench(keys: tuple[Key, ...]) -> CaseBench:
    calls = {"restart_addresses": lambda: None, "reset_executed": lambda: None, "executed_ranges": dict}
    device = SimpleNamespace(arch="gfx950", compute_units=256, has=lambda what: False, **calls)
    return CaseBench(device=cast(Any, device), library=cast(Any, None), keys=keys)


@pytest.mark.parametrize(
    ("loads", "status", "outcome", "message"),
    [
        (("gload",), Status.UNSUPPORTED, "unsupported", "dispatch asks for a bload kernel, and this library has none"),
        (("bload",), Status.UNSUPPORTED, "unsupported", "dispatch asks for a gload kernel, and this library has none"),
        (("bload", "gload"), Status.UNSUPPORTED, "wrong", "refused (unsupported): no kernel"),
        (("gload",), Status.BAD_PROBLEM, "wrong", "refused (bad_problem): no kernel"),
    ],
)
def test_refusal_is_wrong_only_if_library_has_all_kernels(
    monkeypatch: pytest.MonkeyPatch, loads: tuple[str, ...], status: Status, outcome: str, message: str
) -> None:
    monkeypatch.setattr(launching, "run_problem", refuse_launches(status))
    result = run_case(bench(smoke(*loads)), PROBLEM)
    assert (result.outcome, result.message[: len(message)]) == (outcome, message)


def test_gate_leaves_such_problem_out(monkeypatch: pytest.MonkeyPatch) -> None:
    problem: SuiteCase = next(problem for problem in performance_problems("smoke") if not problem.tile_rows)
    monkeypatch.setattr(launching, "run_problem", refuse_launches(Status.UNSUPPORTED))
    launch_arguments = (SimpleNamespace(arch="gfx950"), SimpleNamespace(family="batch_prefill"), problem, None)
    manifest = cast(Any, SimpleNamespace(upstream="checkout", dialect="rocm-libraries-2026"))
    reason = "dispatch asks for a bload kernel, and this library has none that fits"
    assert measure._count_launch(*launch_arguments, manifest, "bload") == reason
    with pytest.raises(InconclusiveError, match="the launch failed: no kernel"):
        measure._count_launch(*launch_arguments, manifest, None)


def test_first_tile_is_of_chosen_load_mode() -> None:
    """A part of a tier may hold the 64-row kernel of a load mode that the launch doesn't take."""
    problem = find("batch-prefill/paged_cross.bf16-vectorized-vllm-ps16-d128-none-full")
    full = select(dialect("rocm-libraries-2026"), Selection(archs=("gfx950",)))
    of = {(key.tile.bm0, key.load): key for key in serving_kernels(full, problem)}
    assert set(of) == {(64, "bload"), (64, "gload"), (128, "bload"), (128, "gload")}

    def check(*built: tuple[int, str]) -> None:
        held = bench(tuple(of[kind] for kind in built))
        checks._check_choice(
            cast(Any, SimpleNamespace(problem=problem, bench=held, kernel=of[128, "bload"].name, lines=[]))
        )

    check((64, "gload"), (128, "bload"))
    with pytest.raises(checks.EndError, match=r"chose a tile of 128 rows where .*_bload_b64x128x64"):
        check((64, "gload"), (64, "bload"), (128, "bload"))

"""Streaming with launch parameters that are chosen by measuring, among the launches that fit the guard's budget.

On a GPU, Triton's autotuner measures times (:func:`autotuner`). Without a GPU, cycles of the timing model decide
(:func:`rank`, ``ckpm decode compare --tune``). The default, ``forced_launch`` of decode/problem.py, measures
nothing.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from ckpm.attention.launch.device import EmulatedDevice
from ckpm.base.errors import CheckFailedError
from ckpm.decode.attention import SOURCE, compiled_stages
from ckpm.decode.gated import Problem
from ckpm.decode.guard.candidates import Judged
from ckpm.decode.guard.command import OWN
from ckpm.decode.guard.compiling import function_of, judge
from ckpm.decode.guard.figures import Budget
from ckpm.decode.guard.pruning import complaints, early_config_prune
from ckpm.decode.guard.table import read_table
from ckpm.decode.measuring import measure
from ckpm.decode.problem import Launch

KEY = ["capacity"]
LAUNCHES = tuple(
    Launch(block_m=16, block_n=block_n, step=step, num_stages=2, num_warps=warps, waves=waves)
    for block_n, step, warps, waves in (
        *((64, 32, 1, 4), (64, 32, 1, 3), (64, 32, 1, 2), (64, 32, 1, 0), (64, 16, 1, 4), (64, 16, 1, 2)),
        *((64, 64, 1, 4), (64, 64, 1, 0), (128, 128, 1, 0), (64, 64, 4, 0)),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A launch that fits the budget, and its modelled cycles for each token."""

    launch: Launch
    judged: Judged
    cycles_a_token: float


def budget(arch: str, head_dim: int) -> Budget:
    """The budget of streaming in the guard's table."""
    return next(
        kernel.budget
        for kernel in read_table(OWN).kernels
        if kernel.function == "streaming"
        and arch in kernel.archs
        and any(case.constexprs["HEAD_DIM"] == head_dim for case in kernel.cases)
    )


def autotuner(arch: str = "", head_dim: int = 128) -> Any:
    """The kernel as Triton's Autotuner. Without ``arch`` it is for the GPU that Triton uses."""
    import triton

    from ckpm.decode.splitk import streaming

    prune = {"early_config_prune": early_config_prune(streaming, budget(arch, head_dim), arch)}
    return triton.autotune(configurations(), key=KEY, prune_configs_by=prune)(streaming)


def configurations() -> list[Any]:
    """LAUNCHES as a list of triton.Config."""
    import triton

    return [
        triton.Config(
            {"BLOCK_M": one.block_m, "BLOCK_N": one.block_n, "STEP": one.step, "waves_per_eu": one.waves},
            num_warps=one.num_warps,
            num_stages=one.num_stages,
        )
        for one in LAUNCHES
    ]


def rank(device: EmulatedDevice, problem: Problem) -> tuple[list[Ranked], list[str]]:
    """Rank the launches that fit, the fewest cycles first. Return a line with the reason for each that doesn't.

    Raises:
        CheckFailedError: none fits.
        SetupError, InputError, DeviceError.
    """
    limit, function = budget(device.arch, problem.shape.head_dim), function_of(SOURCE, problem.form)
    found: list[Ranked] = []
    pruned: list[str] = []
    for launch in LAUNCHES:
        one = dataclasses.replace(problem, launch=launch)
        candidates = one.candidates(device.arch)
        if not (judged := judge(function, candidates[0], limit)).fits:
            pruned += complaints(judged)
            continue
        outcome = measure(device, compiled_stages(candidates), one)
        found.append(Ranked(launch=launch, judged=judged, cycles_a_token=outcome.cycles_a_token))
    if not found:
        raise CheckFailedError("no launch fits the budget: " + "; ".join(pruned), kind="over-budget")
    return sorted(found, key=lambda one: one.cycles_a_token), pruned

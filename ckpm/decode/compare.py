"""``ckpm decode compare``: counts and modelled cycles of streaming and resident, and published times of an MI350.

``--tune`` ranks launches of streaming, among those that fit the guard's budget, by cycles of the timing model. On a
GPU, Triton's autotuner measures their times (:func:`autotuner`). The default, ``forced_launch`` of
ckpm/decode/problem.py, measures nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from ckpm.attention.launch.device import EmulatedDevice
from ckpm.base.console import console
from ckpm.base.display import show
from ckpm.base.errors import CheckFailedError, UsageError, nearest_and_known
from ckpm.decode.attention import SOURCE, compiled_stages
from ckpm.decode.guard.candidates import JudgedCandidate
from ckpm.decode.guard.command import OWN
from ckpm.decode.guard.compiling import demand_triton, function_of, judge
from ckpm.decode.guard.figures import KernelBudget
from ckpm.decode.guard.pruning import complaints, current_arch, early_config_prune
from ckpm.decode.guard.table import read_guard_table
from ckpm.decode.measuring import DecodeOutcome, measure
from ckpm.decode.problem import TOKENS, DecodeLaunch, DecodeProblem, no_kernels, problems
from ckpm.matrix.dialects import check_built_arch

ARCH = "gfx950"
_COMPARED = ("resident-fp8", "streaming-fp8")
PUBLISHED = (
    "Measured by others on an MI350 (ROCm/xformers pull request 75, of shapes that it doesn't name): 125 us with "
    "512 VGPRs, 56 spills and one wave a SIMD; 105 us with 108 VGPRs, no spill and two waves; bf16 takes 110 us. "
    "What stands above are counts and a model's cycles, not times."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tune",
        metavar="PROBLEM",
        help="rank launches of streaming within the guard's budget by modelled cycles: "
        + ", ".join(problem.name for problem in problems(ARCH) if problem.form == "streaming"),
    )
    parser.add_argument("--arch", default=ARCH, help="with --tune (default: %(default)s)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Compare both forms of the kernels, or rank launches with --tune."""
    demand_triton()
    return _tune(args.tune, args.arch) if args.tune else _compare()


def _tune(name: str, arch: str) -> int:
    check_built_arch(arch)
    problems_by_name = {problem.name: problem for problem in problems(arch) if problem.form == "streaming"}
    if name not in problems_by_name:
        raise UsageError(f"--tune {name}: no such problem{nearest_and_known(name, problems_by_name)}")
    ranking, pruned = rank(EmulatedDevice(arch), problems_by_name[name])
    printed = Table("launch", "VGPRs", "waves", "modelled cycles a token")
    for ranked in ranking:
        own, figures = ranked.launch, ranked.judged.figures
        assert figures is not None
        label = f"BLOCK_N={own.block_n} STEP={own.step} num_warps={own.num_warps} waves_per_eu={own.waves}"
        forced = " (forced)" if own == problems_by_name[name].launch else ""
        printed.add_row(label + forced, str(figures.vgpr), str(figures.waves), f"{ranked.cycles_a_token:.2f}")
    console().print(printed)
    for line in pruned:
        show(line)
    return 0


def _compare() -> int:
    compared = {problem.name: problem for problem in problems(ARCH) if problem.name in _COMPARED}
    compiled = {name: compiled_stages(problem.candidates(ARCH)) for name, problem in compared.items()}
    device = EmulatedDevice(ARCH)
    rows = {name: _shown(measure(device, compiled[name], compared[name])) for name in _COMPARED}
    printed = Table("", *rows)
    for name in next(iter(rows.values())):
        printed.add_row(name, *(f"{row[name]:,}" for row in rows.values()))
    console().print(printed)
    shape = compared[_COMPARED[0]].shape
    show(
        f"One sequence of {TOKENS} tokens, head dim {shape.head_dim}, {shape.heads_q} heads on a KV head, "
        f"{shape.stored}, {shape.groups} groups, {shape.splits} splits."
    )
    show(PUBLISHED)
    return 0


def _shown(outcome: DecodeOutcome) -> Mapping[str, float]:
    own, counts = outcome.figures, outcome.counts.counters
    return {
        "VGPRs": own.vgpr,
        "spilled VGPRs": own.vgpr_spills,
        "waves on a SIMD": own.waves,
        "wave-instructions a token": round(counts["instructions"] / TOKENS, 1),
        "matrix instructions a token": round(counts["instructions_mfma"] / TOKENS, 2),
        "bytes of scratch moved a token": round(counts["scratch_bytes"] / TOKENS, 1),
        "bytes loaded a token, by all lanes": round(counts["global_load_bytes"] / TOKENS, 1),
        "workgroups on a compute unit": outcome.resident,
        "modelled cycles, all of them": outcome.cycles,
        "modelled cycles a token": outcome.cycles_a_token,
    }


KEY = ["capacity"]
LAUNCHES = tuple(
    DecodeLaunch(block_m=16, block_n=block_n, step=step, num_stages=2, num_warps=warps, waves=waves)
    for block_n, step, warps, waves in (
        *((64, 32, 1, 4), (64, 32, 1, 3), (64, 32, 1, 2), (64, 32, 1, 0), (64, 16, 1, 4), (64, 16, 1, 2)),
        *((64, 64, 1, 4), (64, 64, 1, 0), (128, 128, 1, 0), (64, 64, 4, 0)),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A launch that fits the budget, and its modelled cycles for each token."""

    launch: DecodeLaunch
    judged: JudgedCandidate
    cycles_a_token: float


def budget(arch: str, head_dim: int) -> KernelBudget:
    """The budget of streaming in the guard's table."""
    for kernel in read_guard_table(OWN).kernels:
        dims = {case.constexprs["HEAD_DIM"] for case in kernel.cases}
        if kernel.function == "streaming" and arch in kernel.archs and head_dim in dims:
            return kernel.budget
    raise no_kernels(arch)


def autotuner(arch: str = "", head_dim: int = 128) -> Any:
    """The kernel as Triton's Autotuner. Without ``arch`` it is for the GPU that Triton uses."""
    import triton

    from ckpm.decode.splitk import streaming

    arch = arch or current_arch()
    prune = {"early_config_prune": early_config_prune(streaming, budget(arch, head_dim), arch)}
    return triton.autotune(configurations(), key=KEY, prune_configs_by=prune)(streaming)


def configurations() -> list[Any]:
    """LAUNCHES as a list of triton.Config."""
    import triton

    return [
        triton.Config(
            {"BLOCK_M": launch.block_m, "BLOCK_N": launch.block_n, "STEP": launch.step, "waves_per_eu": launch.waves},
            num_warps=launch.num_warps,
            num_stages=launch.num_stages,
        )
        for launch in LAUNCHES
    ]


def rank(device: EmulatedDevice, problem: DecodeProblem) -> tuple[list[Ranked], list[str]]:
    """Rank the launches that fit, the fewest cycles first. Return a line with the reason for each that doesn't."""
    limit, function = budget(device.arch, problem.shape.head_dim), function_of(SOURCE, problem.form)
    ranking: list[Ranked] = []
    pruned: list[str] = []
    for launch in LAUNCHES:
        variant = dataclasses.replace(problem, launch=launch)
        candidates = variant.candidates(device.arch)
        if not (judged := judge(function, candidates[0], limit)).fits:
            pruned += complaints(judged)
            continue
        outcome = measure(device, compiled_stages(candidates), variant)
        ranking.append(Ranked(launch=launch, judged=judged, cycles_a_token=outcome.cycles_a_token))
    if not ranking:
        raise CheckFailedError("no launch fits the budget: " + "; ".join(pruned), kind="over-budget")
    return sorted(ranking, key=lambda ranked: ranked.cycles_a_token), pruned

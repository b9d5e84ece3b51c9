"""Streaming with launch parameters that Triton's autotuner measures, among those that fit the guard's budget.

Needs a GPU and its Triton; ``kernels.decode.problem.FORCED`` needs no measuring and is the default.
"""

from __future__ import annotations

import triton

from kernels.decode.splitk import streaming
from kernels.guard.figures import Budget
from kernels.guard.pruning import early_config_prune

BUDGET = Budget(vgpr=128, vgpr_spills=0, waves=2)
CONFIGURATIONS = [
    triton.Config({"BLOCK_M": 16, "BLOCK_N": block_n, "waves_per_eu": waves}, num_warps=warps, num_stages=2)
    for block_n, warps, waves in ((32, 1, 4), (32, 1, 0), (64, 1, 4), (64, 1, 0), (64, 4, 0), (128, 1, 0))
]
KEY = ["capacity"]


def tuned(arch: str = "") -> triton.runtime.Autotuner:
    """The kernel as an autotuner; without ``arch`` for the GPU that Triton uses."""
    prune = {"early_config_prune": early_config_prune(streaming, BUDGET, arch)}
    return triton.autotune(CONFIGURATIONS, key=KEY, prune_configs_by=prune)(streaming)

"""``python -m kernels decode``: counts and modelled cycles of both forms, beside what others measured on an MI350."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from rich.table import Table

from kernels.base.console import console
from kernels.decode.attention import compiled_stages
from kernels.decode.gated import TOKENS, problems
from kernels.decode.measuring import Outcome, measured
from kernels.guard.packages import demand_triton
from kernels.launch.device import EmulatedDevice
from matrix.base.display import show

ARCH = "gfx950"
_COMPARED = ("resident-fp8", "streaming-fp8")
PUBLISHED = (
    "Measured by others on an MI350 (ROCm/xformers pull request 75, of shapes that it doesn't name): 125 us with "
    "512 VGPRs, 56 spills and one wave a SIMD; 105 us with 108 VGPRs, no spill and two waves; bf16 takes 110 us. "
    "What stands above are counts and a model's cycles, not times."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Raises TritonMissingError, DeviceError."""
    demand_triton()
    compared = {one.name: one for one in problems(ARCH) if one.name in _COMPARED}
    compiled = {name: compiled_stages(one.candidates(ARCH)) for name, one in compared.items()}
    device = EmulatedDevice(ARCH)
    rows = {name: _shown(measured(device, compiled[name], compared[name])) for name in _COMPARED}
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


def _shown(outcome: Outcome) -> Mapping[str, float]:
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

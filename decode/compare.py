"""``ckpm decode compare``: counts and modelled cycles of both forms, beside what others measured on an MI350."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from rich.table import Table

from ckpm.attention.launch.device import EmulatedDevice
from ckpm.base.console import console
from ckpm.base.display import show
from ckpm.base.errors import UsageError
from ckpm.decode.attention import compiled_stages
from ckpm.decode.gated import TOKENS, problems
from ckpm.decode.guard.packages import demand_triton
from ckpm.decode.measuring import Outcome, measure
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
        help="instead, the launches of streaming that fit the guard's budget by their modelled cycles: of "
        + ", ".join(one.name for one in problems(ARCH) if one.form == "streaming"),
    )
    parser.add_argument("--arch", default=ARCH, help="with --tune (default: %(default)s)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Raises SetupError, DeviceError; UsageError, UnknownWordError, CheckFailedError with --tune."""
    demand_triton()
    return _tune(args.tune, args.arch) if args.tune else _compare()


def _tune(name: str, arch: str) -> int:
    from ckpm.decode.tuned import rank

    check_built_arch(arch)
    known = {one.name: one for one in problems(arch) if one.form == "streaming"}
    if name not in known:
        raise UsageError(f"--tune {name}: no such problem. Known: {', '.join(known)}.")
    found, pruned = rank(EmulatedDevice(arch), known[name])
    printed = Table("launch", "VGPRs", "waves", "modelled cycles a token")
    for one in found:
        own, figures = one.launch, one.judged.figures
        assert figures is not None
        words = f"BLOCK_N={own.block_n} STEP={own.step} num_warps={own.num_warps} waves_per_eu={own.waves}"
        forced = " (forced)" if own == known[name].launch else ""
        printed.add_row(words + forced, str(figures.vgpr), str(figures.waves), f"{one.cycles_a_token:.2f}")
    console().print(printed)
    for line in pruned:
        show(line)
    return 0


def _compare() -> int:
    compared = {one.name: one for one in problems(ARCH) if one.name in _COMPARED}
    compiled = {name: compiled_stages(one.candidates(ARCH)) for name, one in compared.items()}
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

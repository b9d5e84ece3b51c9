"""``ckpm timing board``: published problems of attention timed on this machine's GPU, and the model beside them."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ckpm.base.display import show
from ckpm.base.errors import MeasureError
from ckpm.base.outputs import demand_place
from ckpm.base.rocm_choice import add_rocm_options
from ckpm.base.settings import cache_folder
from ckpm.timing.published import ARCHS, PublishedFigure, PublishedShape, published_figures
from ckpm.timing.score import OWN, TIERS, GroupScore, Score, ScoreRow, score_of

if TYPE_CHECKING:
    from ckpm.attention.launch.c_abi import Library
    from ckpm.attention.launch.device import Device

REPEATS = {"full": 20, "smoke": 1}
_CUT = PublishedShape(batch=1, heads=8, kv_heads=8, length=512, head_dim=128, causal=False)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", required=True, choices=tuple(ARCHS.values()))
    parser.add_argument("--tier", default="full", choices=TIERS, help="smoke: AITER's kernel alone, one cut problem")
    add_rocm_options(parser, "toolchain")
    parser.add_argument("--work", type=Path, default=Path("build/score"), metavar="DIR", help="where to build")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the times as rows of a score")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Time the problems on the GPU, and write a score whose rows have the board's TFLOP/s in ``published``."""
    from ckpm.attention.launch.device import choose  # only here: readers of a file do without NumPy
    from ckpm.kernels.families.libraries import host
    from ckpm.timing.launches import CK_WHERE
    from ckpm.timing.tables import ARCH, library

    demand_place(args.output)
    figures = chosen_figures(args.arch, args.tier)
    ck = None
    if args.arch == ARCH and args.tier != "smoke":
        ck = library(args.toolchain, args.work, upstream="aiter", family="fwd", where=CK_WHERE)
    device = choose("hip", args.arch)
    loaded = device.load(ck, host("fwd").arguments) if ck else None
    rows: list[ScoreRow] = []
    for figure in figures:
        row = time_figure(device, figure, loaded, REPEATS[args.tier])
        rows.append(row)
        Score(tier=args.tier, rows=tuple(rows), groups={}, clocks={}).write(args.output)  # at once: the next may hang
        show(f"{row.kernel}, {row.label}: {row.published:.1f} TFLOP/s{f' at {row.ghz:.2f} GHz' if row.ghz else ''}")
    show(f"{len(rows)} published problems: {args.output}")


def chosen_figures(arch: str, tier: str) -> list[PublishedFigure]:
    """Published problems of attention whose kernels can be had; of tier smoke one of AITER's, cut."""
    models = TIERS[tier] if arch == "gfx950" else TIERS["smoke"]  # CK's are of gfx950
    figures = [f for f in published_figures() if f.arch == arch and f.model in models and f.shape]
    return figures if tier != "smoke" else [dataclasses.replace(figures[0], label="cut to 1x8/8x512", shape=_CUT)]


def time_figure(device: Device, figure: PublishedFigure, ck: Library | None, repeats: int) -> ScoreRow:
    """The row of a figure with this board's TFLOP/s, and the clock after the launches where it is known."""
    from ckpm.timing import asm

    shape = figure.shape
    assert shape is not None, "chosen so"
    if figure.model == "asm":
        microseconds = asm.time(device, asm.code_object(device.arch, shape.causal, cache_folder()), shape, repeats)
    else:
        assert ck is not None, "built for these figures"
        microseconds = _time_ck(device, ck, shape, repeats)
    clock = device.sensors().get("smi_clock_mhz")
    return ScoreRow(
        group=OWN, kernel=figure.kernel, label=figure.label, gpu=figure.gpu, metric="tflops", role="score",
        published=shape.flops / microseconds / 1e6, ghz=float(clock) / 1e3 if clock else None, source="own board",
    )  # fmt: skip


def _time_ck(device: Device, library: Library, shape: PublishedShape, repeats: int) -> float:
    """Mean microseconds of a launch of the kernel that CK's dispatch chooses."""
    from ckpm.attention.launch import fwd_launching
    from ckpm.attention.launch.launching import host_buffers, upload
    from ckpm.attention.launch.plan import LaunchPlan, Timing
    from ckpm.timing.launches import case_of, values_of

    case = case_of(shape)
    arrays = fwd_launching.laid_out(case, {name: values_of(form) for name, form in fwd_launching.inputs(case).items()})
    plan = LaunchPlan(fwd_launching.pose(case, library.family, device.arch), device, library)
    with upload(device, host_buffers(arrays, {**plan.outputs, **plan.workspaces})) as memory:
        pointers = {name: part.address for name, part in memory.items()}
        return plan.run(pointers, timing=Timing(warmups=1, repeats=repeats)).median * 1e3


def beside_model(times: Score, score: Score) -> tuple[tuple[ScoreRow, ...], Mapping[str, GroupScore]]:
    """The rows of a board's times that the score models, and the errors by kernel and of all, named OWN."""
    modelled = {(row.kernel, row.label, row.gpu): row.modelled for row in score.rows if row.group != OWN}
    rows = [dataclasses.replace(row, modelled=modelled.get((row.kernel, row.label, row.gpu))) for row in times.rows]
    return tuple(rows), {
        **{kernel: score_of(_of(rows, kernel)) for kernel in sorted({row.kernel for row in _of(rows)})},
        **({OWN: score_of(_of(rows))} if _of(rows) else {}),
    }


def _of(rows: Sequence[ScoreRow], kernel: str = "") -> list[ScoreRow]:
    return [row for row in rows if row.modelled and kernel in ("", row.kernel)]


def with_board(score: Score, times: Score) -> Score:
    """The score with the group OWN of a board's times, in place of an earlier one."""
    rows, groups = beside_model(times, score)
    if OWN not in groups:
        raise MeasureError("no time of this board is of a problem that the score models. Score again with --tier full.")
    others = tuple(row for row in score.rows if row.group != OWN)
    return dataclasses.replace(score, rows=(*others, *_of(rows)), groups={**score.groups, OWN: groups[OWN]})

"""``ckpm timing board``: published problems of attention timed on this machine's GPU, and the model beside them."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ckpm.base.display import show
from ckpm.base.errors import CheckFailedError, MeasureError
from ckpm.base.outputs import demand_place
from ckpm.base.rocm_choice import add_rocm_options
from ckpm.base.settings import cache_folder
from ckpm.timing.published import ARCHS, PublishedFigure, PublishedShape, published_figures
from ckpm.timing.score import OWN, TIERS, GroupScore, Score, ScoreRow, score_of

if TYPE_CHECKING:
    from ckpm.attention.launch.c_abi import Library
    from ckpm.attention.launch.device import Device
    from ckpm.timing.asm import TimedLaunch

REPEATS = {"full": 20, "smoke": 1}
_LEAST_ROWS = 16  # of O that are compared


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", required=True, choices=tuple(ARCHS.values()))
    parser.add_argument("--tier", default="full", choices=TIERS, help="smoke: AITER's kernel alone, one problem")
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
    device = choose("hip", args.arch)  # before minutes of compiling
    ck = None
    if args.arch == ARCH and args.tier != "smoke":
        ck = library(args.toolchain, args.work, upstream="aiter", family="fwd", where=CK_WHERE)
    loaded = device.load(ck, host("fwd").arguments) if ck else None
    rows: list[ScoreRow] = []
    for figure in figures:
        row = time_figure(device, figure, loaded, REPEATS[args.tier])
        rows.append(row)
        Score(tier=args.tier, rows=tuple(rows), groups={}, clocks={}).write(args.output)  # at once: the next may hang
        time = f"{row.published:.4g} TFLOP/s{f' at {row.ghz:.2f} GHz' if row.ghz else ''}"
        show(f"{row.kernel}, {row.label}: {row.reason or time}")
    show(f"{len(rows)} published problems: {args.output}")
    if wrong := sum(bool(row.reason) for row in rows):
        raise CheckFailedError(f"O of {wrong} of {len(rows)} published problems is wrong: they have no time.")


def chosen_figures(arch: str, tier: str) -> list[PublishedFigure]:
    """Published problems of attention whose kernels can be had; of tier smoke the first of AITER's."""
    models = TIERS[tier] if arch == "gfx950" else TIERS["smoke"]  # CK's are of gfx950
    figures = [f for f in published_figures() if f.arch == arch and f.model in models and f.shape]
    return figures if tier != "smoke" else figures[:1]


def time_figure(device: Device, figure: PublishedFigure, ck: Library | None, repeats: int) -> ScoreRow:
    """The row of a figure with this board's TFLOP/s, and the clock after the launches where it is known.

    If O is wrong, the row has the ``reason`` and no TFLOP/s.
    """
    from ckpm.timing import asm

    shape = figure.shape
    assert shape is not None, "chosen so"
    if figure.model == "asm":
        timed = asm.time(device, asm.code_object(device.arch, shape.causal, cache_folder()), shape, repeats)
    else:
        assert ck is not None, "built for these figures"
        timed = _time_ck(device, ck, shape, repeats)
    clock, wrong = device.sensors().get("smi_clock_mhz"), difference(shape, timed)
    return ScoreRow(
        group=OWN, kernel=figure.kernel, label=figure.label, gpu=figure.gpu, metric="tflops", role="score",
        published=0.0 if wrong else shape.flops / timed.microseconds / 1e6, reason=wrong,
        ghz=float(clock) / 1e3 if clock else None, source="own board",
    )  # fmt: skip


def difference(shape: PublishedShape, timed: TimedLaunch) -> str:
    """Compare a row of O of each head, the first and the last row among them, with float64. '' if all agree."""
    import numpy as np

    from ckpm.attention import reference
    from ckpm.attention.launch.encodings import decode
    from ckpm.attention.tolerances import compare_o
    from ckpm.matrix.problems.problem import Problem

    count, numbers = max(shape.heads, _LEAST_ROWS), np.random.default_rng(0)
    sequences, queries = numbers.integers(shape.batch, size=count), numbers.integers(shape.length, size=count)
    sequences[[0, -1]], queries[[0, -1]] = (0, shape.batch - 1), (0, shape.length - 1)
    wrong = []
    for at, (sequence, query) in enumerate(zip(sequences, queries, strict=True)):
        head, first = at % shape.heads, sequence * shape.length
        keys = slice(first, first + (query + 1 if shape.causal else shape.length))
        kv_head = head // (shape.heads // shape.kv_heads)
        bits = timed.arrays["q"][first + query, head], *(timed.arrays[name][keys, kv_head] for name in "kv")
        q, k, v = (decode(some, "bf16", "").reshape(-1, 1, shape.head_dim) for some in bits)
        problem = Problem(
            family="fwd", mode="group", seqlen_q=1, total_q=1, seqlen_k=len(k), total_k=len(k), nhead_q=1, nhead_k=1,
            hdim_q=shape.head_dim, hdim_v=shape.head_dim,
        )  # fmt: skip
        inputs = reference.inputs_of(problem, [q], [k], [v])
        o = decode(timed.o[first + query, head], "bf16", "").reshape(q.shape)
        compared = compare_o(inputs.problem, o, reference.exact(inputs))
        if not compared.passed:
            wrong.append(f"sequence {sequence}, head {head}, query {query}: {compared}")
    return f"wrong: {len(wrong)} of {count} rows of O, the first of {wrong[0]}" if wrong else ""


def _time_ck(device: Device, library: Library, shape: PublishedShape, repeats: int) -> TimedLaunch:
    """Launch the kernel that CK's dispatch chooses."""
    from ckpm.attention.launch import fwd_launching
    from ckpm.attention.launch.launching import host_buffers, upload
    from ckpm.attention.launch.plan import LaunchPlan, Timing
    from ckpm.timing.asm import TimedLaunch
    from ckpm.timing.launches import case_of, values_of

    case = case_of(shape)
    arrays = fwd_launching.laid_out(case, {name: values_of(form) for name, form in fwd_launching.inputs(case).items()})
    plan = LaunchPlan(fwd_launching.pose(case, library.family, device.arch), device, library)
    with upload(device, host_buffers(arrays, {**plan.outputs, **plan.workspaces})) as memory:
        pointers = {name: part.address for name, part in memory.items()}
        ended = plan.run(pointers, timing=Timing(warmups=1, repeats=repeats))
        return TimedLaunch(ended.median * 1e3, arrays, device.hip.read(memory["o"], "u2", arrays["q"].shape))


def beside_model(times: Score, score: Score) -> tuple[tuple[ScoreRow, ...], Mapping[str, GroupScore]]:
    """The rows of a board's times that the score models, and the errors by kernel and of all, named OWN."""
    modelled = {(row.kernel, row.label, row.gpu): row.modelled for row in score.rows if row.group != OWN}
    rows = [
        row if row.reason else dataclasses.replace(row, modelled=modelled.get((row.kernel, row.label, row.gpu)))
        for row in times.rows
    ]
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

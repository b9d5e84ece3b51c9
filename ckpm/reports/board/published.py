"""``ckpm timing board``: published problems of attention timed on this machine's GPU, and the model beside them."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ckpm.base.display import show
from ckpm.base.errors import MeasureError, RecordError
from ckpm.base.files import write_atomically
from ckpm.base.outputs import demand_place
from ckpm.base.records import Source, as_text
from ckpm.base.rocm_choice import add_rocm_options
from ckpm.base.settings import cache_folder
from ckpm.timing.published import ARCHS, PublishedFigure, PublishedShape, published_figures
from ckpm.timing.score import OWN, TIERS, GroupScore, Score, ScoreRow, score_of

if TYPE_CHECKING:
    from ckpm.attention.launch.c_abi import Library
    from ckpm.attention.launch.device import Device

REPEATS = {"full": 20, "smoke": 1}
_REMEDY = "Time them again: ckpm timing board."


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardTime:
    """A published row as this board has it. ``clock`` is the board's after the launches, '' if it is not known."""

    kernel: str
    label: str
    gpu: str
    tflops: float
    microseconds: float
    clock: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardTimes:
    """Times of one board. ``context`` are facts of GPU, ROCm, driver and clocks. ``tier`` smoke cuts the problems."""

    tier: str
    context: Mapping[str, str]
    rows: tuple[BoardTime, ...]

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step."""
        write_atomically(file, as_text(dataclasses.asdict(self)))

    @classmethod
    def read(cls, file: Path) -> BoardTimes:
        """Read written times."""
        source = Source(location=file, what="a board's times", remedy=_REMEDY, error=RecordError)
        document = source.read()
        times: BoardTimes = document.record(cls)
        if any(row.tflops <= 0 or row.microseconds <= 0 for row in times.rows):
            raise document.get("rows").fail("expected times above 0")
        return times


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", required=True, choices=tuple(ARCHS.values()))
    parser.add_argument("--tier", default="full", choices=TIERS, help="smoke: AITER's kernel alone, one cut problem")
    add_rocm_options(parser, "toolchain")
    parser.add_argument("--work", type=Path, default=Path("build/score"), metavar="DIR", help="where to build")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the times as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Time the problems on the GPU, and write the file."""
    from ckpm.attention.launch.device import choose  # only here: readers of a file do without NumPy
    from ckpm.timing.launches import CK_WHERE
    from ckpm.timing.tables import ARCH, library

    demand_place(args.output)
    figures = chosen_figures(args.arch, args.tier)
    ck = None
    if any(figure.model == "fwd" for figure in figures) and args.arch == ARCH:
        ck = library(args.toolchain, args.work, upstream="aiter", family="fwd", where=CK_WHERE)
    device = choose("hip", args.arch)
    context = dict(device.context())
    rows = tuple(_times(device, figures, ck, REPEATS[args.tier]))
    BoardTimes(tier=args.tier, context=context, rows=rows).write(args.output)
    for row in rows:
        show(f"{row.kernel}, {row.label}: {row.microseconds:.1f} us, {row.tflops:.1f} TFLOP/s {row.clock}".rstrip())
    show(f"{len(rows)} published problems: {args.output}")


def chosen_figures(arch: str, tier: str) -> list[PublishedFigure]:
    """Published problems of attention whose kernels are here; of tier smoke one, cut to 8 heads and 512 tokens."""
    models = ("asm",) if tier == "smoke" else ("asm", "fwd")
    figures = [figure for figure in published_figures() if figure.arch == arch and figure.model in models]
    figures = [figure for figure in figures if figure.shape]
    if not figures:
        raise MeasureError(f"no published problem of {arch} has a kernel here. See reports/timing/published.yaml.")
    if tier != "smoke":
        return figures
    cut = PublishedShape(batch=1, heads=8, kv_heads=8, length=512, head_dim=128, causal=False)
    return [dataclasses.replace(figures[0], label="cut to 1x8/8x512", shape=cut)]


def _times(device: Device, figures: Sequence[PublishedFigure], ck: Path | None, repeats: int) -> Iterator[BoardTime]:
    from ckpm.kernels.families.libraries import host
    from ckpm.timing import asm

    loaded = device.load(ck, host("fwd").arguments) if ck else None
    for figure in figures:
        assert figure.shape is not None, "chosen so"
        if figure.model == "asm":
            code = asm.code_object(device.arch, figure.shape.causal, cache_folder())
            time = asm.time(device, code, figure.shape, repeats)
        elif loaded is not None:
            time = _time_ck(device, loaded, figure.shape, repeats)
        else:
            continue
        sensed = device.sensors()
        clock = f"{sensed['smi_clock_mhz']} MHz" if "smi_clock_mhz" in sensed else ""
        tflops = figure.shape.flops / time / 1e6
        yield BoardTime(
            kernel=figure.kernel, label=figure.label, gpu=figure.gpu, tflops=tflops, microseconds=time, clock=clock
        )


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


def beside_model(times: BoardTimes, score: Score) -> tuple[tuple[ScoreRow, ...], Mapping[str, GroupScore]]:
    """Rows of a board's times beside the model's figures, and the errors by kernel and of all, named OWN."""
    modelled = {(row.kernel, row.label, row.gpu): row for row in score.rows if row.modelled is not None}
    rows = tuple(
        dataclasses.replace(modelled[key], group=OWN, role="score", published=row.tflops, source="own board")
        for row in times.rows
        if (key := (row.kernel, row.label, row.gpu)) in modelled
    )
    groups = {
        kernel: score_of([row for row in rows if row.kernel == kernel]) for kernel in {row.kernel for row in rows}
    }
    return rows, {**dict(sorted(groups.items())), **({OWN: score_of(rows)} if rows else {})}


def with_board(score: Score, times: BoardTimes) -> Score:
    """The score with the group OWN of a board's times, in place of an earlier one."""
    rows, groups = beside_model(times, score)
    if not rows:
        raise MeasureError("no time of this board is of a problem that the score models. Score again with --tier full.")
    others = tuple(row for row in score.rows if row.group != OWN)
    return dataclasses.replace(score, rows=(*others, *rows), groups={**score.groups, OWN: groups[OWN]})

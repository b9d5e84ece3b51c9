"""``ckpm timing splits``: model kernels that split the keys beside the time that reading K and V once takes.

One workgroup of a split and one of the combine are run and replayed. The launch of the splits is then scheduled over
the compute units, and takes no less than the memory needs for K and V. Both launches have their overhead. Times are at
the highest clock.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.attention.splitting import ROWS, best_split
from ckpm.base.display import show
from ckpm.base.errors import MeasureError
from ckpm.base.rocm_choice import add_rocm_options
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.serving import missing_kernel, serving_kernels
from ckpm.timing import grid
from ckpm.timing.clock import LAUNCH_SECONDS
from ckpm.timing.model import machines
from ckpm.timing.modelling import Modelled, ModelRequest, open_library
from ckpm.timing.tables import ARCH, WORK, library

UPSTREAM = "ckpm-extended"
WHERE = (
    "key.pipeline == 'qr_async_split' and key.kv_layout == 'linear' and key.lse and key.kv_table == 'sglang' "
    "and key.mask != 'no' and not (key.logits or key.sink) and (key.page_size == 1 and key.qscale != 'kv_blockscale' "
    "and (key.hdim_q, key.dtype) in ((128, 'bf16'), (576, 'bf16'), (576, 'bf16kvfp8')) "
    "or (key.hdim_q, key.dtype, key.page_size, key.load) == (128, 'bf16', 16, 'bload'))"
)
KEYS = 65536
QUERIES = (1, 4)
_LATENT: Mapping[str, Any] = {"nhead_k": 1, "hdim_q": 576, "hdim_v": 512, "storage": "latent"}
PROBLEMS: Sequence[Mapping[str, Any]] = (
    *({"nhead_k": heads, "page_size": page} for page in (1, 16) for heads in (8, 128)),
    _LATENT,
    {**_LATENT, "dtype": "bf16kvfp8", "qscale": "pertensor"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTime:
    """Cycles of the launch of the splits and of the combine, and of the memory to read K and V once."""

    problem: str
    split_keys: int
    workgroups: int
    split: float
    combine: float
    memory: float

    def __str__(self) -> str:
        mhz = machines()[ARCH].clock_mhz
        floor = self.memory / mhz
        microseconds = (max(self.split, self.memory) + self.combine) / mhz + 2e6 * LAUNCH_SECONDS
        cycles = f"{self.split:,.0f} + {self.combine:,.0f} cycles, {microseconds:.1f} us"
        return (
            f"{self.problem}: {self.workgroups} workgroups of {self.split_keys} keys: {cycles}, "
            f"{microseconds / floor:.2f} times the {floor:.1f} us of reading K and V once"
        )


def add_options(parser: argparse.ArgumentParser) -> None:
    add_rocm_options(parser, "toolchain")
    parser.add_argument("--work", type=Path, default=WORK, metavar="DIR", help="where to build (default: %(default)s)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Build the library if it is missing, and print a modelled launch for each problem."""
    modelled_library = open_library(library(args.toolchain, args.work, upstream=UPSTREAM, where=WHERE), ARCH)
    for fields in PROBLEMS:
        for queries in QUERIES:
            show(str(model(modelled_library, case(fields, queries))))
    return 0


def case(fields: Mapping[str, Any], queries: int) -> SuiteCase:
    """One sequence of KEYS keys and 128 heads under a causal mask."""
    of = ", ".join(f"{name} {value}" for name, value in fields.items())
    return SuiteCase(
        name=f"{queries} queries, {of}", suite="batch-prefill", tier="full", group="splits", seqlens_q=(queries,),
        seqlens_k=(KEYS,), nhead_q=128, lse=True, mask="bottom_right", window_right=0, checks=(), **fields,
    )  # fmt: skip


def model(modelled_library: Modelled, problem: SuiteCase) -> SplitTime:
    """Model a launch, split as the dispatcher does it. One KV head is run: heads differ in their numbers alone."""
    p, units = problem, modelled_library.device.compute_units
    split = best_split(p, units)
    if not split or not split.keys:
        raise MeasureError(f"{p.name}: the dispatcher splits no keys.")
    head = dataclasses.replace(p, nhead_q=p.nhead_q // p.nhead_k, nhead_k=1, split_keys=split.keys)
    if why := missing_kernel(modelled_library.keys, head):
        raise MeasureError(f"{p.name}: {why}")
    kernel = serving_kernels(modelled_library.keys, head)[0].name
    tiles = -(-head.rows_q * head.nhead_q // ROWS)
    counts = head.key_splits * tiles * p.nhead_k, -(-p.seqlen_q * p.nhead_q // 4)
    times = [
        _launch(modelled_library, head, kernel, symbol, count)
        for symbol, count in zip(("SplitKernel", "SplitCombine"), counts, strict=True)
    ]
    columns = p.hdim_q if p.storage == "latent" else p.hdim_q + p.hdim_v  # V of latents lies within K
    bytes_ = KEYS * p.nhead_k * columns * p.element_bytes
    return SplitTime(
        problem=p.name, split_keys=split.keys, workgroups=counts[0], split=times[0], combine=times[1],
        memory=bytes_ / machines()[ARCH].hbm_bytes_a_cycle,
    )  # fmt: skip


def _launch(modelled_library: Modelled, head: SuiteCase, kernel: str, symbol: str, workgroups: int) -> float:
    """Cycles of so many workgroups like the first of the kernel with ``symbol`` in its name."""
    timed = modelled_library.model(head, kernel, ModelRequest(workgroup=0, kernel=symbol, offsets=True, full_gpu=True))
    if isinstance(timed, str):
        raise MeasureError(f"{head.name}: {timed}")
    speeds = [timed.copies[0].cycles / copy.cycles for copy in timed.copies]
    return grid.cycles([timed.copies[0].cycles] * workgroups, modelled_library.device.compute_units, speeds)

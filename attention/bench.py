"""``python -m attention bench``: what a call costs in Python before its launch, beside its target.

Measured are a problem made, its plan looked up and the C ABI's struct filled; no library is opened for it.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.kernel_sets import kernel_set
from ckpm.attention.launch.c_abi import CheckedArguments, Library
from ckpm.attention.launch.device import Device, EmulatedDevice
from ckpm.attention.launch.harness import LaunchArguments
from ckpm.attention.registry import Registry
from ckpm.base.console import PlainConsole, say
from ckpm.base.files import write_atomically
from ckpm.base.outputs import demand_place
from ckpm.bench.figures import Figure, table, timed
from ckpm.matrix.problems.problem import Problem

_TARGET = 20e-6  # seconds
_CALLS = 2000
_ROUNDS = 9
_ADDRESS = 4096


class _Unlaunched(EmulatedDevice):
    """Opens nothing: plans are made and never run."""

    def __init__(self) -> None:
        self.arch = "gfx950"

    def load(self, path: Path, arguments: type[CheckedArguments] = LaunchArguments) -> Library:
        return Library(
            path=path,
            family="batch_prefill",
            dialect="",
            kernels=(),
            arguments=arguments,
            abi=ctypes.CDLL(None),
            calls={},
        )


def figures() -> list[Figure]:
    """The best of some rounds: what the machine does besides is not the dispatcher's."""
    device: Device = _Unlaunched()
    kernels = kernel_set("batch_prefill", device.arch, dtype="bf16", hdim_q=128, mode="group")
    over = Dispatcher(Registry(replace(one, library=Path("libckpm.so")) for one in kernels), device)

    def posed() -> Problem:
        return Problem(
            family="batch_prefill", mode="group", batch=4, seqlen_q=512, total_q=2000, seqlen_k=4096, nhead_q=8,
            nhead_k=2, page_size=1, pool_pages=16384,
        )  # fmt: skip

    pointers = dict.fromkeys((*over.plan(posed()).inputs, "o"), _ADDRESS)
    plan = over.plan(posed())
    whole = _each(lambda: over.plan(posed()).arguments(pointers))
    again = _each(lambda: plan.arguments(pointers))
    return [
        Figure("dispatch of a call: problem, plan, arguments", f"{whole * 1e6:.1f} us", "< 20 us", whole < _TARGET),
        Figure("of it, arguments of a plan that is kept", f"{again * 1e6:.1f} us", "reported", None),
    ]


def _each(call: Callable[[], object]) -> float:
    """Seconds of one call."""

    def calls() -> None:
        for _ in range(_CALLS):
            call()

    return min(timed(calls) for _ in range(_ROUNDS)) / _CALLS


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, default=None, help="also write the table to this file")


def run(args: argparse.Namespace) -> int:
    """Print the table; a missed target is named there and decides nothing, as in ``python -m kernels bench``."""
    if args.output:
        demand_place(args.output)
    text = table(figures())
    say(PlainConsole(), text)
    if args.output:
        write_atomically(args.output, text.encode())
    return 0

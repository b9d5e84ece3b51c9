"""Figures of the dispatcher: the time of a call before its launch, and of a kernel compiled on demand."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.kernel_sets import kernel_set
from ckpm.attention.launch.c_abi import Library
from ckpm.attention.launch.device import Device, EmulatedDevice
from ckpm.attention.registry import Registry
from ckpm.base import settings
from ckpm.bench.cold import ARCH, python
from ckpm.bench.figures import Figure, seconds_of
from ckpm.kernels.abi import CheckedArguments, LaunchArguments
from ckpm.kernels.upstream.tree import Tree
from ckpm.matrix.dialects import dialect
from ckpm.matrix.problems.problem import Problem
from ckpm.matrix.selection import Selection, select

_TARGET = 20e-6  # seconds
_CALLS = 2000
_ROUNDS = 9
_ADDRESS = 4096
_SHARED = ("upstream", "zig", "launchers", "emulator")
_WARM_RUNS = 3
_RATIO = 10


class _Unlaunched(EmulatedDevice):
    """A device that opens no library: plans are made and never run."""

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


def measure_call() -> list[Figure]:
    """Measure a problem made, its plan found and the C ABI's struct filled: the best of some rounds."""
    device: Device = _Unlaunched()
    kernels = kernel_set("batch_prefill", device.arch, dtype="bf16", hdim_q=128, mode="group")
    over = Dispatcher(Registry(replace(one, library=Path("libckpm.so")) for one in kernels), device)

    def problem() -> Problem:
        return Problem(
            family="batch_prefill", mode="group", batch=4, seqlen_q=512, total_q=2000, seqlen_k=4096, nhead_q=8,
            nhead_k=2, page_size=1, pool_pages=16384,
        )  # fmt: skip

    pointers = dict.fromkeys((*over.plan(problem()).inputs, "o"), _ADDRESS)
    plan = over.plan(problem())
    whole = _seconds_of(lambda: over.plan(problem()).arguments(pointers))
    again = _seconds_of(lambda: plan.arguments(pointers))
    return [
        Figure("dispatch of a call: problem, plan, arguments", f"{whole * 1e6:.1f} us", "< 20 us", whole < _TARGET),
        Figure("of it, arguments of a plan that is kept", f"{again * 1e6:.1f} us", "reported", None),
    ]


def _seconds_of(call: Callable[[], object]) -> float:
    def calls() -> None:
        for _ in range(_CALLS):
            call()

    return min(seconds_of(calls) for _ in range(_ROUNDS)) / _CALLS


def measure_on_demand(tree: Tree, toolchain: str, folder: Path) -> list[Figure]:
    """Measure whole processes, from the command to a loaded library: cold time, warm time and their ratio.

    The cache folder is a new one without compiled kernels. CK's tree, zig's libc++ and the emulator's core are the
    user's; cold.py measures these.

    Raises:
        InconclusiveError: a command failed.
    """
    cache = folder / "cache"
    cache.mkdir(parents=True)
    for name in _SHARED:
        if (there := settings.cache_folder() / name).is_dir():
            (cache / name).symlink_to(there)
    name = select(dialect(tree.dialect), Selection(archs=(ARCH,), tier="smoke"))[0].name
    command = ("-m", "ckpm.attention", "jit", name, "--arch", ARCH, "--upstream", tree.name)
    options = ("--toolchain", toolchain, "--device", "emulator")
    cold = python(cache, *command, *options)
    warm = min(python(cache, *command, *options).wall for _ in range(_WARM_RUNS))
    ratio = cold.wall / warm
    return [
        Figure("a kernel compiled on demand and loaded, nothing of it in the cache", str(cold), "reported", None),
        Figure(
            "the same one asked for again by another process, against that",
            f"{warm:.2f} s: {ratio:.0f} times faster",
            f">= {_RATIO} times",
            ratio >= _RATIO,
        ),
    ]

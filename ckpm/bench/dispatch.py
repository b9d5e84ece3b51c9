"""Figures of the dispatcher: the time of a call before its launch, and of a kernel compiled on demand."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import Mock, patch

from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.kernel_sets import kernel_set
from ckpm.attention.launch.c_abi import Library
from ckpm.attention.launch.device import Device, EmulatedDevice
from ckpm.attention.registry import Registry
from ckpm.base import settings
from ckpm.bench.cold import ARCH
from ckpm.bench.figures import Figure, judge_least, judge_most, python, seconds_of
from ckpm.kernels.abi import CheckedArguments, LaunchArguments
from ckpm.kernels.upstream.tree import Tree
from ckpm.matrix.dialects import dialect
from ckpm.matrix.problems.problem import Problem
from ckpm.matrix.selection import Selection, select

_TARGET = 20e-6  # seconds
_OPERATOR_TARGET = 15e-6
_CALLS = 2000
_ROUNDS = 9
_ADDRESS = 4096
_SHARED = ("upstream", "zig", "launchers", "emulator")
_WARM_RUNS = 3
_RATIO = 10


class _Unlaunched(EmulatedDevice):
    """A device without memory and libraries, for plans that never run."""

    compute_units = 256

    def __init__(self, calls: Mapping[str, Callable[..., Any]] = MappingProxyType({})) -> None:
        self.arch, self.hip, self._calls = "gfx950", Mock(), calls

    def load(self, path: Path, arguments: type[CheckedArguments] = LaunchArguments, sha256: str = "") -> Library:
        return Library(
            path=path,
            family="batch_prefill",
            dialect="",
            kernels=(),
            arguments=arguments,
            abi=ctypes.CDLL(None),
            calls=self._calls,
        )


def measure_call() -> list[Figure]:
    """Measure a call before its launch (problem, plan, the C ABI's struct): the best of several rounds."""
    device: Device = _Unlaunched()
    kernels = kernel_set("batch_prefill", device.arch, dtype="bf16", hdim_q=128, mode="group")
    dispatcher = Dispatcher(Registry(replace(kernel, library=Path("libckpm.so")) for kernel in kernels), device)

    def problem() -> Problem:
        return Problem(
            family="batch_prefill", mode="group", batch=4, seqlen_q=512, total_q=2000, seqlen_k=4096, nhead_q=8,
            nhead_k=2, page_size=1, pool_pages=16384,
        )  # fmt: skip

    pointers = dict.fromkeys((*dispatcher.plan(problem()).inputs, "o"), _ADDRESS)
    plan = dispatcher.plan(problem())
    whole = _seconds_of(lambda: dispatcher.plan(problem()).arguments(pointers))
    again = _seconds_of(lambda: plan.arguments(pointers))
    return [
        judge_most("dispatch of a call: problem, plan, arguments", f"{whole * 1e6:.1f} us", "< 20 us", whole / _TARGET),
        Figure("of it, arguments of a plan that is kept", f"{again * 1e6:.1f} us"),
    ]


def measure_operator() -> list[Figure]:
    """Measure an operator of PyTorch from its call to the library's launch, if PyTorch is installed.

    The launch does nothing. Tensors of the CPU stand for tensors on the device. The result is the best median.
    """
    if find_spec("torch") is None:
        return []
    import torch

    from ckpm.attention.callers import torch as operators

    launched = [0.0]

    def launch(*arguments: object) -> int:
        launched[0] = time.perf_counter()
        return 0

    device = _Unlaunched({"launch": launch, "selected_kernel": lambda *stage: b""})
    kernels = kernel_set("batch_prefill", device.arch, dtype="bf16", hdim_q=128, mode="group")
    dispatcher = Dispatcher(Registry(replace(kernel, library=Path("libckpm.so")) for kernel in kernels), device)
    cache = torch.zeros(16384, 2, 128, dtype=torch.bfloat16)
    sums = torch.tensor([0, 512, 1000, 1500, 2000], dtype=torch.int32)
    q, pages = torch.zeros(2000, 8, 128, dtype=torch.bfloat16), torch.arange(2000, dtype=torch.int32)
    arguments = (q, cache, cache.clone(), sums, pages, 512, 512, sums.clone())  # a server passes no tensor twice

    def is_in_place(*tensors: object) -> bool:
        return True

    def seconds() -> float:
        begin = time.perf_counter()
        operators.paged_prefill(*arguments)
        return launched[0] - begin

    operators.dispatch_to(dispatcher)
    with patch.object(operators, "_is_in_place", is_in_place), torch.inference_mode():
        median = min(statistics.median(seconds() for _ in range(_CALLS)) for _ in range(_ROUNDS))
    operators.dispatch_to(None)
    share = median / _OPERATOR_TARGET
    return [judge_most("a call by PyTorch's operator, to its launch", f"{median * 1e6:.1f} us", "< 15 us", share)]


def _seconds_of(call: Callable[[], object]) -> float:
    def calls() -> None:
        for _ in range(_CALLS):
            call()

    return min(seconds_of(calls) for _ in range(_ROUNDS)) / _CALLS


def measure_on_demand(tree: Tree, toolchain: str, folder: Path) -> list[Figure]:
    """Measure whole processes, from the command to a loaded library: cold time, warm time and their ratio.

    The cache folder is a new one without compiled kernels. CK's tree, zig's libc++ and the emulator's core are the
    user's; cold.py measures these.
    """
    cache = folder / "cache"
    cache.mkdir(parents=True)
    for name in _SHARED:
        if (there := settings.cache_folder() / name).is_dir():
            (cache / name).symlink_to(there)
    name = select(dialect(tree.dialect), Selection(archs=(ARCH,), tier="smoke"))[0].name
    command = ("-m", "ckpm", "jit", name, "--arch", ARCH, "--upstream", tree.name)
    options = ("--toolchain", toolchain, "--device", "emulator")
    cold, *again = (python(*command, *options, cache=str(cache)) for _ in range(1 + _WARM_RUNS))
    warm = min(run.wall for run in again)
    ratio = cold.wall / warm
    return [
        Figure("a kernel compiled on demand and loaded, nothing of it in the cache", str(cold)),
        judge_least(
            "the same one asked for again by another process, against that",
            f"{warm:.2f} s: {ratio:.0f} times faster",
            f">= {_RATIO} times",
            ratio / _RATIO,
        ),
    ]

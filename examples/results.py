"""Lines that an example prints about a launch, and its verdict: exit code 1 if numbers differ from the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ckpm import Attention, Dispatcher
from ckpm.attention import reference
from ckpm.attention.launch.counters import flatten
from ckpm.attention.launch.device import Device
from ckpm.attention.launch.encodings import decode, encode


def numbers(random: np.random.Generator, *shape: int, dtype: str = "bf16") -> NDArray[np.float64]:
    """Random numbers in -1..1, rounded to a kernel's dtype: the reference then has the kernel's own inputs."""
    rounded: NDArray[np.float64] = decode(encode(random.uniform(-1, 1, shape), dtype, "gfx950"), dtype, "gfx950")
    return rounded.astype(np.float64)


T = TypeVar("T")


def count(device: Device, launch: Callable[..., T]) -> tuple[T, dict[str, int]]:
    """Return the result of ``launch``, and the count of each metric; {} on a GPU, which counts nothing."""
    device.reset_counters()
    returned = launch()
    counters = device.counters()
    return returned, flatten(counters) if counters else {}


def show_counts(counts: dict[str, int]) -> None:
    names = ("instructions", "instructions_mfma", "instructions_vmem", "instructions_lds")
    if counts:
        print("counts ", ", ".join(f"{name} {counts[name]:,}" for name in names if name in counts))


def check(name: str, got: NDArray[Any], want: NDArray[np.float64], kind: str = "bf16") -> None:
    """Print the largest error. Exit if ``got`` is not within the tolerance of ``kind``."""
    agreement = reference.agreement(got, want, kind)
    finite = np.isfinite(want)
    largest = np.abs(got.astype(np.float64)[finite] - want[finite]).max(initial=0.0)
    print(f"{name:7} largest error {largest:.2g}, {agreement.worst:.2f} of the tolerance of {kind}")
    if not agreement.passed:
        raise SystemExit(1)


def show_kernels(dispatcher: Dispatcher, done: Attention) -> None:
    choice = dispatcher.why(done.problem).choice
    assert choice is not None, "it ran"
    for name in done.ran.kernels:
        print("kernel ", name)
    how = "by name" if choice.named else "as the library's own dispatch decides"
    print(f"why     order {choice.order}, {how}; {choice.note or f'{len(dispatcher.registry)} registered'}")

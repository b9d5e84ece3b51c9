"""The dispatcher and upstream's own program agree on its configurations: shapes, features, kernel, verdict."""

from __future__ import annotations

from fnmatch import fnmatch
from functools import cache

import pytest

from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.jit.compiling import compile_keys
from ckpm.attention.launch.device import Device, choose
from ckpm.attention.registry import Registry
from ckpm.kernels.library.request import LIBRARY
from ckpm.matrix.dialects import dialect, upstreams
from ckpm.matrix.enumeration import enumerate_names
from tests.programs.as_calls import compare
from tests.programs.example_program import ARCH, configurations, verdict

RESULTS_IN_FP8 = {"fp8"}  # O of these kernels is fp8; the dispatcher's calls with Q, K and V in fp8 return bf16
CALLED = [name for name in configurations() if name not in RESULTS_IN_FP8]


@cache
def device() -> Device:
    return choose("emulator", ARCH)


@cache
def names() -> tuple[str, ...]:
    """The names of aiter's kernels of fwd."""
    return tuple(
        enumerate_names(dialect(upstreams()["aiter"].dialect).family("fwd"), arch=ARCH, mask_impl="simplified")
    )


@cache
def dispatcher(kernels: str) -> Dispatcher:
    """A dispatcher over the kernels whose names match a filter of upstream's codegen."""
    registry = Registry()
    for folder in compile_keys([name for name in names() if fnmatch(name, f"fmha_fwd_{kernels}*")], ARCH):
        registry.add_library(folder / LIBRARY)
    return Dispatcher(registry, device())


@pytest.mark.parametrize("name", CALLED)
def test_both_run_kernel_and_accept_its_result(name: str) -> None:
    configuration = configurations()[name]
    done, agreement = compare(configuration, dispatcher(configuration.kernels))
    (kernel,) = done.ran.kernels
    assert fnmatch(kernel, f"fmha_fwd_{configuration.kernels}*")
    assert (agreement.passed, verdict(configuration).valid) == (True, True), str(agreement)


def test_at_least_15_configurations_are_compared() -> None:
    assert len(CALLED) >= 15

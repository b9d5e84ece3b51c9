"""Common parts of all groups of Triton cases: a launch, and the expected result by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from triton_launches.machine import Machine
from triton_launches.number_formats import Array

ARCHS = ("gfx942", "gfx950")
# the fp8 types with matrix instructions: FNUZ on gfx942, OCP's on gfx950 (ISA documents)
FP8 = {"gfx942": ("fp8e4b8", "fp8e5b16"), "gfx950": ("fp8e4nv", "fp8e5")}


@dataclass(frozen=True, slots=True)
class Case:
    """``check`` launches and compares; AssertionError: the result is another."""

    name: str
    check: Callable[[Machine], None]


def random(*names: Any) -> np.random.Generator:
    """A generator whose numbers depend on the names alone."""
    return np.random.default_rng([ord(letter) for letter in repr(names)])


def close(actual: Array, expected: Array, relative: float, absolute: float = 0.0) -> None:
    """Check that ``|actual - expected|`` is at most absolute + relative * |expected|; the error names an element."""
    assert actual.shape == expected.shape, f"{actual.shape} and not {expected.shape}"
    with np.errstate(invalid="ignore"):
        apart = np.abs(actual - expected)
        allowed = absolute + relative * np.abs(expected)
        alike = (apart <= allowed) | (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    if not alike.all():
        at = tuple(int(i) for i in np.argwhere(~alike)[0])
        raise AssertionError(f"{(~alike).sum()} of {alike.size} differ; [{at}] is {actual[at]} and not {expected[at]}")


def same(actual: Array, expected: Array) -> None:
    """Check that all elements are equal; the error names the first that differs."""
    assert actual.shape == expected.shape, f"{actual.shape} and not {expected.shape}"
    other = np.argwhere(actual != expected)
    if len(other):
        at = tuple(int(i) for i in other[0])
        raise AssertionError(f"{len(other)} of {actual.size} differ; [{at}] is {actual[at]} and not {expected[at]}")

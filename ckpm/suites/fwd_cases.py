"""One launch of fwd, paged, split-KV or V3 with random tensors; its O and LSE compared with the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch.buffers import LaunchInputs
from ckpm.attention.launch.c_abi import Launch, Library
from ckpm.attention.launch.device import Device, Fault
from ckpm.attention.launch.encodings import decode, encode
from ckpm.attention.launch.fwd_launching import FwdOutcome, run_attention
from ckpm.attention.philox import drawn
from ckpm.attention.reference import exact
from ckpm.attention.tolerances import ArrayComparison, compare_lse, compare_o
from ckpm.kernels.abi import Status
from ckpm.matrix.problems.case import SuiteCase
from ckpm.suites.checks import foreign_random_values

Bits = NDArray[Any]
# What a number of Q, K and V in fp8 stands for: other factors, so that one taken for another shows.
_DESCALES = {"q": 0.01, "k": 0.02, "v": 0.05}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A finished launch: output bits, comparisons, errors. Empty if the launch was refused.

    ``shows`` are the ledger's signatures that all errors together show.
    """

    launch: Launch
    fault: Fault | None = None
    outputs: tuple[Bits, ...] = ()
    lines: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    tolerance_used: float | None = None  # the largest error over what is allowed there
    shows: frozenset[str] = frozenset()


def run_case(case: SuiteCase, device: Device, library: Library) -> Ended:
    """Launch the kernels that dispatch chooses, and compare. Raises HipError."""
    p, arch = with_descales(case), device.arch
    bits = tensors(p, arch)
    outcome = run_attention(device, library, p, bits)
    if outcome.fault or outcome.launch.status != Status.OK:
        return Ended(launch=outcome.launch, fault=outcome.fault)
    compared = comparisons(p, bits, outcome, arch)
    foreign = foreign_random_values(p, outcome.random_values) if outcome.random_values else []
    return Ended(
        launch=outcome.launch,
        outputs=(outcome.o, *(() if outcome.lse is None else (outcome.lse.view(np.uint32),))),
        lines=tuple(map(str, compared)),
        wrong=(*(str(comparison) for comparison in compared if not comparison.passed), *foreign),
        tolerance_used=max(comparison.worst for comparison in compared),
    )


def with_descales(case: SuiteCase) -> SuiteCase:
    """The case with the factors of Q, K and V if it has static scales."""
    if case.qscale != "pertensor":
        return case
    return dataclasses.replace(case, descales=(_DESCALES["q"], _DESCALES["k"], _DESCALES["v"]))


def tensors(p: SuiteCase, arch: str = "gfx950") -> dict[str, Bits]:
    """Random bits of q, k and v, and of a bias if the problem has one; ALiBi's slopes as powers of two."""
    random = np.random.default_rng([*p.seqlens_q, *p.seqlens_k])
    shapes = {
        "q": (sum(p.seqlens_q), p.nhead_q, p.hdim_q),
        "k": (sum(p.seqlens_k), p.nhead_k, p.hdim_q),
        "v": (sum(p.seqlens_k), p.nhead_k, p.hdim_v),
    }
    bits = {
        name: encode(random.uniform(-2, 2, shape) / _factor(p, name), p.dtype, arch) for name, shape in shapes.items()
    }
    if p.bias == "bias":
        bits["bias"] = encode(random.uniform(-2, 2, (p.nhead_q, sum(p.seqlens_q), max(p.seqlens_k))), p.dtype, arch)
    elif p.bias == "alibi":
        bits["bias"] = 2.0 ** -(1 + np.arange(p.batch * p.nhead_q, dtype=np.float32)).reshape(p.batch, p.nhead_q)
    return bits


def comparisons(
    p: SuiteCase, bits: Mapping[str, Bits], outcome: FwdOutcome, arch: str = "gfx950"
) -> tuple[ArrayComparison, ...]:
    """O, and LSE if there is one, against the float64 reference of the numbers that ``bits`` stand for."""
    expected = exact(inputs(p, bits, arch), drawn(p) if p.p_drop else None)
    compared = [compare_o(p, decode(outcome.o, "bf16" if p.dtype == "fp8bf16" else p.dtype, arch), expected)]
    if outcome.lse is not None:
        compared.append(compare_lse(p, outcome.lse.astype(np.float64), expected))
    return tuple(compared)


def _factor(p: SuiteCase, name: str) -> float:
    return _DESCALES[name] if p.qscale == "pertensor" else 1.0


def inputs(p: SuiteCase, bits: Mapping[str, Bits], arch: str) -> LaunchInputs:
    """The numbers that ``bits`` stand for, as the reference takes them."""

    def split(numbers: Bits, lengths: Sequence[int], axis: int = 0) -> list[Bits]:
        return np.split(numbers, np.cumsum(lengths)[:-1], axis=axis)

    parts: dict[str, Any] = {
        name: tuple(split(decode(bits[name], p.dtype, arch) * _factor(p, name), lengths))
        for name, lengths in (("q", p.seqlens_q), ("k", p.seqlens_k), ("v", p.seqlens_k))
    }
    if p.bias == "bias":
        rows = split(decode(bits["bias"], p.dtype, arch), p.seqlens_q, axis=1)
        parts["bias"] = tuple(row[..., :length] for row, length in zip(rows, p.seqlens_k, strict=True))
    elif p.bias == "alibi":
        parts["slopes"] = bits["bias"].astype(np.float64)
    return LaunchInputs(problem=p, **parts)

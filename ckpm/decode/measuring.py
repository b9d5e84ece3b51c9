"""Launch a built problem on the emulated device: read its code object, count, and model its cycles."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ckpm.attention.launch.counters import PROGRAM, PROVENANCE, Measured, Measurements, flatten, has_counters
from ckpm.attention.launch.device import EmulatedDevice
from ckpm.base.display import show
from ckpm.base.files import sha256_of
from ckpm.base.paths import program_digest
from ckpm.decode.attention import Stages, decode
from ckpm.decode.built import BuiltDecode
from ckpm.decode.guard.figures import Figures, figures_of
from ckpm.decode.problem import TOKENS, Array, Cache, DecodeProblem, problems, quantise
from ckpm.timing import machine
from ckpm.timing.record import SIMDS


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOutcome:
    """Results of a problem: ``figures`` of the attention kernel, ``counts`` of both stages.

    ``cycles`` are modelled: ``resident`` workgroups of the attention run together on one compute unit, each with
    ``tokens`` tokens.
    """

    figures: Figures
    counts: Measured
    resident: int
    tokens: int
    cycles: int

    @property
    def cycles_a_token(self) -> float:
        return round(self.cycles / (self.resident * self.tokens), 2)


def demand_counters(built: BuiltDecode, file: Path) -> Measurements:
    """Read the counters in a file. Measure first if it has none of these kernels, this program and machine.yaml."""
    text = hashlib.sha256()
    for stages in built.stages.values():
        text.update(stages.attention.binary + stages.reduction.binary)
    counted = {
        "code sha256": text.hexdigest(),
        PROGRAM: program_digest(),
        "machine sha256": sha256_of(machine.TABLE),  # the numbers of the modelled cycles
    }
    facts = {**dict.fromkeys(PROVENANCE, ""), **built.identity(), **counted}
    if not has_counters(file, facts):
        device = EmulatedDevice(built.arch)
        outcomes = [measure(device, built.stages[problem.name], problem) for problem in problems(built.arch)]
        cycles = {outcome.counts.problem: outcome.cycles_a_token for outcome in outcomes}
        counts = tuple(outcome.counts for outcome in outcomes)
        Measurements(provenance=facts, problems=counts, cycles_a_token=cycles).write(file)
        show(f"{len(outcomes)} problems of decode on the emulated {built.arch}: {file}")
    return Measurements.read(file)


def attention_figures(stages: Stages, problem: DecodeProblem, arch: str) -> Figures:
    """Registers, LDS and waves of the attention."""
    code = stages.attention
    return figures_of(code.binary, arch=arch, warps=problem.launch.num_warps, lds_bytes=code.lds_bytes)


def measure(device: EmulatedDevice, stages: Stages, problem: DecodeProblem) -> DecodeOutcome:
    """Launch a problem, count, and model its cycles. The device's options are reset."""
    own = attention_figures(stages, problem, device.arch)
    resident = max(own.waves * SIMDS // problem.launch.num_warps, 1)
    modelled: dict[str, Any] = {}

    def after_first() -> None:
        modelled.update(machine.replay(device, machine.numbers(device.arch), resident)[0])

    q, cache, lengths = make_inputs(problem, device.arch)
    device.configure(record={"workgroup": 0})
    try:
        done = decode(device, stages, problem.shape, problem.launch, q, cache, lengths, after_first)
    finally:
        device.configure()
    counts = Measured(
        problem=problem.name,
        kernel=stages.attention.symbol,
        dtype="bf16",  # of the matrix products
        occupancy_waves=own.waves,
        compulsory_bytes=_bytes(q, cache),
        counters=flatten(done.counters),
    )
    tokens = TOKENS // problem.shape.splits
    return DecodeOutcome(figures=own, counts=counts, resident=resident, tokens=tokens, cycles=modelled["cycles"])


def make_inputs(problem: DecodeProblem, arch: str) -> tuple[Array, Cache, Array]:
    """Make Q, the cache and the lengths: numbers of a fixed seed, pages in a random order."""
    shape, rng = problem.shape, np.random.default_rng(0)
    k, v = (rng.standard_normal((TOKENS, shape.heads_kv, shape.head_dim)) for _ in range(2))
    (kb, ks, kh), (vb, vs, vh) = (quantise(tensor, shape.groups, shape.stored, arch) for tensor in (k, v))
    pages = rng.permutation(TOKENS // shape.page_size).astype(np.int32)[None] if shape.page_size else None
    q = rng.standard_normal((1, shape.heads_kv * shape.heads_q, shape.head_dim)).astype(np.float32)
    cache = Cache(k=kb, v=vb, k_scale=ks, k_shift=kh, v_scale=vs, v_shift=vh, pages=pages)
    return q, cache, np.array([TOKENS], np.int32)


def _bytes(q: Array, cache: Cache) -> int:
    """Bytes of Q, the output (both bf16) and the cache, each once."""
    parts = (cache.k, cache.v, cache.k_scale, cache.k_shift, cache.v_scale, cache.v_shift)
    return 2 * 2 * q.size + sum(part.nbytes for part in parts)

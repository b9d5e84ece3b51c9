"""Workgroups of published launches of attention, from recordings of short ones.

A workgroup's time is linear in its keys. So two lengths are recorded, and the others follow.
"""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch import fwd_launching
from ckpm.attention.launch.c_abi import Library
from ckpm.attention.launch.device import EmulatedDevice, choose
from ckpm.base.errors import MeasureError
from ckpm.base.settings import cache_folder
from ckpm.kernels.families.libraries import host
from ckpm.kernels.library.manifest import Manifest, manifest_of
from ckpm.matrix.problems.case import SuiteCase
from ckpm.timing import asm, grid
from ckpm.timing.checks import model
from ckpm.timing.machine import ModelNumber, cycles_together, launch_numbers, neighbours, numbers, values
from ckpm.timing.published import PublishedFigure, PublishedShape
from ckpm.timing.record import SIMDS

# Selects the kernels that CK's example launches for the published shapes
CK_WHERE = (
    "key.hdim_q in (64, 128) and key.dtype == 'bf16' and key.mode == 'batch' and key.tile.bm0 == 128 and "
    "key.bias == 'no' and key.qscale == 'no' and not (key.logits or key.lse or key.dropout or key.sink or key.skip)"
)
Changed = tuple[str, int]
ByLatency = Mapping[int, Mapping[str, ModelNumber]]  # the machine with this latency of loads
LENGTHS = (1024, 2048)  # queries and keys of the recorded launches
_DECLARED = re.compile(r"6kentryI\w+?_tELi(\d+)E")  # ck_tile::kentry<ARCH, workgroups of a compute unit, ...>


@dataclass(frozen=True, slots=True, kw_only=True)
class Workgroup:
    """The longest workgroup of two launches, of ``keys[0]`` and ``keys[1]`` keys.

    ``cycles`` are the cycles of one workgroup alone on its compute unit, ``matrix`` the cycles of one SIMD's matrix
    unit. ``together[k - 2]`` are the cycles of k copies on a compute unit with ``keys[1]`` keys, one for each start
    offset.
    """

    keys: tuple[int, int]
    cycles: tuple[float, float]
    matrix: tuple[float, float]
    together: tuple[tuple[float, ...], ...]

    def at(self, keys: int) -> tuple[float, float]:
        """Cycles, and cycles of the matrix units, with so many keys."""
        (first, last), share = self.keys, (keys - self.keys[0]) / (self.keys[1] - self.keys[0])
        assert first < last
        cycles, matrix = (low + share * (high - low) for low, high in (self.cycles, self.matrix))
        return cycles, matrix

    def speeds(self, pick: Callable[[Sequence[float]], float] = statistics.median) -> tuple[float, ...]:
        """The speed of each copy if there is one copy, if there are two, and so on."""
        return (1.0, *(self.cycles[1] / pick(several) for several in self.together))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A modelled figure; of a launch its cycles with the median, best and worst start offsets, and its MFMA share."""

    value: float
    least: float
    most: float
    matrix_share: float = 0.0


def estimate(workgroup: Workgroup, keys: Sequence[int], units: int) -> Answer:
    """Model a launch whose workgroups have so many ``keys`` each, in the order of their numbers."""
    by_keys = {count: workgroup.at(count) for count in set(keys)}
    lengths = [by_keys[count][0] for count in keys]
    middle, least, most = (
        grid.cycles(lengths, units, workgroup.speeds(pick)) for pick in (statistics.median, min, max)
    )
    matrix = sum(by_keys[count][1] for count in keys)
    return Answer(value=middle, least=least, most=most, matrix_share=matrix / (middle * units))


def answers(
    arch: str, units: int, figures: Sequence[PublishedFigure], ck: Path | None, changed: Changed | None = None
) -> list[Answer]:
    """Model figures on an emulated device of their arch, which stands for a GPU of so many compute ``units``.

    ``ck`` is a library of CK's kernels, which figures of model fwd need. Other figures need none. ``changed``: a number
    of the machine, and which of its neighbours replaces it.

    A process has one device, so this needs a process for each arch.
    """
    if ck is None and (fwd := [figure for figure in figures if figure.model == "fwd"]):
        raise MeasureError(
            f"{len(fwd)} figures are of CK's forward kernels, on {arch}: give a library of these kernels."
        )
    device, machine, caches = choose("emulator", arch), numbers(arch), launch_numbers(arch)
    if changed:
        name, side = changed
        table = machine if name in machine else caches
        table[name] = table[name]._replace(value=neighbours(table[name])[side])
    assert isinstance(device, EmulatedDevice)
    streams = [figure for figure in figures if figure.model == "stream"]
    of_streams = dict(zip(streams, model(device, machine, streams), strict=True))
    kernels = CkKernels.open(device, ck) if ck else None
    launched = {latency(figure.shape, caches) for figure in figures if figure.shape}
    of_launches = {
        cycles: {**machine, "memory_latency": machine["memory_latency"]._replace(value=cycles)} for cycles in launched
    }
    laws: dict[tuple[str, int, bool], tuple[Mapping[int, Workgroup], int]] = {}
    modelled = []
    for figure in figures:
        if figure.shape is None:
            value = of_streams[figure]
            modelled.append(Answer(value=value, least=value, most=value))
            continue
        law = figure.model, figure.shape.head_dim, figure.shape.causal
        if law not in laws:
            if figure.model == "fwd":
                assert kernels is not None, "refused above"
                laws[law] = kernels.record(device, of_launches, figure.shape)
            else:
                laws[law] = record_asm(device, of_launches, figure.shape.causal, cache_folder()), asm.ROWS
        workgroups, rows = laws[law]
        keys = asm_keys(figure.shape) if figure.model == "asm" else ck_keys(figure.shape, rows)
        modelled.append(estimate(workgroups[latency(figure.shape, caches)], keys, units))
    return modelled


def latency(shape: PublishedShape, caches: Mapping[str, ModelNumber]) -> int:
    """Cycles of a load from the first cache that can contain bf16 K and V of all heads, else from HBM."""
    footprint = 2 * 2 * shape.batch * shape.kv_heads * shape.length * shape.head_dim
    for cache in ("l2", "infinity_cache"):
        if footprint <= caches[f"{cache}_bytes"].value:
            return caches[f"{cache}_latency"].value
    return caches["hbm_latency"].value


def asm_keys(shape: PublishedShape) -> list[int]:
    """Keys of each workgroup of AITER's kernels: the whole length, so that all workgroups take the same time.

    With a causal mask a workgroup has two tiles of queries: the first and the last that no other workgroup has.
    """
    tiles = -(-shape.length // asm.ROWS)
    return [shape.length] * (shape.batch * shape.heads * (-(-tiles // 2) if shape.causal else tiles))


def ck_keys(shape: PublishedShape, rows: int) -> list[int]:
    """Keys of each workgroup of CK's kernels: heads run fastest, then tiles of ``rows`` queries, the longest first."""
    tiles = -(-shape.length // rows)
    lengths = [min(shape.length, (tiles - tile) * rows) if shape.causal else shape.length for tile in range(tiles)]
    return [keys for keys in lengths for _ in range(shape.heads)] * shape.batch


def record_asm(device: EmulatedDevice, machines: ByLatency, causal: bool, cache: Path) -> Mapping[int, Workgroup]:
    """Record AITER's kernel once, for each latency."""
    code = asm.code_object(device.arch, causal, cache)

    def launch(length: int) -> None:
        device.configure(record={"workgroup": 0, "only": True})
        asm.launch(
            device, code, PublishedShape(batch=1, heads=8, kv_heads=8, length=length, head_dim=128, causal=causal)
        )  # fmt: skip

    return _record(device, machines, launch, copies=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CkKernels:
    """A library of CK's forward kernels, and its manifest."""

    library: Library
    manifest: Manifest

    @classmethod
    def open(cls, device: EmulatedDevice, file: Path) -> CkKernels:
        """Load a built library."""
        manifest = manifest_of(file, device.arch)
        return cls(library=device.load(file, host("fwd").arguments), manifest=manifest)

    def record(
        self, device: EmulatedDevice, machines: ByLatency, shape: PublishedShape
    ) -> tuple[Mapping[int, Workgroup], int]:
        """Record dispatch's kernel for a shape once, for each latency. Return also its queries a workgroup."""
        ran: list[str] = []

        def launch(length: int) -> None:
            device.configure(record={"workgroup": None})
            case = case_of(dataclasses.replace(shape, batch=1, heads=1, kv_heads=1, length=length))
            tensors = {name: values_of(form) for name, form in fwd_launching.inputs(case).items()}
            outcome = fwd_launching.run_attention(device, self.library, case, tensors)
            if outcome.fault or not outcome.launch.kernel:
                why = outcome.fault.message if outcome.fault else outcome.launch.message
                raise MeasureError(f"CK's kernel of head dim {shape.head_dim}: {why}")
            ran.append(outcome.launch.kernel)

        launch(LENGTHS[0])
        built = self.manifest.kernels[ran[0]].archs[device.arch]
        key = self.manifest.keys(ran[:1])[0]
        room = built.occupancy_waves * SIMDS // (key.tile.rm0 * key.tile.rn0 * key.tile.rk0)
        copies = max(1, min(room, declared_copies(built.symbol)))
        return _record(device, machines, launch, copies), key.tile.bm0


def declared_copies(symbol: str) -> int:
    """Workgroups of a compute unit that CK's kernel is compiled for, from its mangled name.

    ROCm's compiler uses the registers that this leaves. Another one may use fewer, so that more workgroups would fit.
    """
    match = _DECLARED.search(symbol)
    if match is None:
        raise MeasureError(f"'{symbol}' does not say for how many workgroups it is compiled")
    return int(match[1])


def _record(
    device: EmulatedDevice, machines: ByLatency, launch: Callable[[int], None], copies: int
) -> Mapping[int, Workgroup]:
    alone = {cycles: list[float]() for cycles in machines}
    matrix, replayed = [], dict[str, Any]()
    for length in LENGTHS:
        device.forget_recording()
        launch(length)
        for cycles, machine in machines.items():
            replayed = dict(device.replay(values(machine)))
            alone[cycles].append(float(replayed["cycles"]))
        matrix.append(sum(wave["matrix"] for wave in replayed["waves"]) / SIMDS)
    return {
        cycles: Workgroup(
            keys=LENGTHS,
            cycles=(alone[cycles][0], alone[cycles][1]),
            matrix=(matrix[0], matrix[1]),
            together=tuple(
                tuple(map(float, cycles_together(device, machine, count, alone[cycles][1])))
                for count in range(2, copies + 1)
            ),
        )
        for cycles, machine in machines.items()
    }


def case_of(shape: PublishedShape) -> SuiteCase:
    """A published problem as a case of fwd in bf16."""
    lengths = (shape.length,) * shape.batch
    mask: dict[str, Any] = {"mask": "bottom_right", "window_right": 0} if shape.causal else {}
    return SuiteCase(
        name="fwd", suite="batch-prefill", tier="full", group="fwd", mode="batch", seqlens_q=lengths,
        seqlens_k=lengths, nhead_q=shape.heads, nhead_k=shape.kv_heads,
        hdim_q=shape.head_dim, hdim_v=shape.head_dim, **mask,
    )  # fmt: skip


def values_of(form: fwd_launching.Form) -> NDArray[Any]:
    """Bits of random bf16 numbers: 0.5 or more and below 1, of either sign."""
    generator = np.random.default_rng(0)
    return (generator.integers(0x3F00, 0x3F80, form[0]) | generator.integers(0, 2, form[0]) << 15).astype(form[1])

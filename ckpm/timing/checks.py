"""Compare the timing model with published figures of instructions and loops, each modelled on a stream of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpm.attention.launch.device import EmulatedDevice
from ckpm.base.errors import TableError
from ckpm.timing import streams
from ckpm.timing.machine import ModelNumber, values
from ckpm.timing.published import PublishedFigure
from ckpm.timing.record import SIMDS
from ckpm.timing.streams import CHASE, FMA, KERNEL, READ, Stream, assemble, large, small

ARCH = "gfx950"  # of the figures
_FLOPS = 2 * 32 * 32 * 16  # of an MFMA, 32x32x16 and twice 16x16x32
_PASSES = 40  # of a loop whose share is modelled


@dataclass(frozen=True, slots=True)
class Model:
    """Replays of streams on one machine's numbers."""

    device: EmulatedDevice
    numbers: Mapping[str, int]

    def replay(self, stream: Stream) -> Mapping[str, Any]:
        self.device.configure(record={"workgroup": 0})
        self.device.forget_recording()
        self.device.run_code(assemble(stream, ARCH), KERNEL, 64 * stream.waves)
        return self.device.replay(self.numbers)

    def more(self, short: Stream, long: Stream) -> int:
        """Cycles of the long stream less cycles of the short stream."""
        return int(self.replay(long)["cycles"]) - int(self.replay(short)["cycles"])

    def share(self, stream: Stream) -> float:
        """Percent of the hot loop's time in which the matrix units of the SIMDs work."""
        waves = self.replay(stream)["waves"]
        loops = [wave["loop"] for wave in waves]
        busy = sum(loop["matrix"] / (loop["end"] - loop["begin"]) for loop in loops)
        return float(100 * busy / min(SIMDS, len(waves)))

    def pass_cycles(self, stream: Stream) -> float:
        """Cycles of a pass through the hot loop."""
        loop = self.replay(stream)["waves"][0]["loop"]
        return float((loop["end"] - loop["begin"]) / (loop["passes"] - 1))


def model(
    device: EmulatedDevice, machine: Mapping[str, ModelNumber], figures: Sequence[PublishedFigure]
) -> list[float]:
    """Model figures that have a stream."""
    if unknown := [figure.label for figure in figures if figure.label not in _STREAMS]:
        raise TableError(f"published.yaml: no stream for '{unknown[0]}'; there are {', '.join(_STREAMS)}")
    replays = Model(device, values(machine))
    return [_STREAMS[figure.label](replays) for figure in figures]


def _rate(mfma: str, flops: int, model: Model) -> float:
    return 100 * flops * SIMDS / model.more(Stream(mfma * 100), Stream(mfma * 200))


def _dot(vector: int, exponentials: int, packed: int, model: Model) -> float:
    """Percent of the cycles that one more dot takes."""
    once = streams.dot(16, vector, exponentials, packed)
    return 100 * 16 * 32 / model.more(Stream(once, waves=1), Stream(once * 2, waves=1))


def _between(text: str, model: Model, *, first: str = "", waves: int = 4) -> float:
    """Cycles from one ``text`` to the next, after ``first``."""
    return model.more(Stream(first + text * 64, waves), Stream(first + text * 96, waves)) / 32


def _conflicts(shift: int, waves: int, model: Model) -> float:
    """Cycles from one ds_read_b128 to the next whose lanes are 16 bytes apart, shifted to the left by so many bits."""
    return _between(READ, model, first=f"v_lshlrev_b32 v1, {shift}, v1\n", waves=waves)


def _ninth(model: Model) -> float:
    """Cycles by which the ninth read issues late, seen at s_endpgm."""
    eight, nine = (int(model.replay(Stream(READ * count, waves=1))["cycles"]) for count in (8, 9))
    return nine - eight - model.numbers["issue_cycles"]


def _tile(rows: int, columns: int, model: Model) -> float:
    return model.share(streams.gemm(rows, columns, _PASSES))


def _attention(first: tuple[int, int, int], second: tuple[int, int, int], model: Model) -> float:
    """Cycles of two tiles, as their unrolled loop has them."""
    return 2 * model.pass_cycles(streams.attention(first, second, _PASSES))


# Vector operations, exponentials and packed operations beside the first and the second product (README, 5). Folding the
# scale into Q replaces a fused operation by a subtraction, which costs the same here.
_FAV3 = functools.partial(_attention, (88, 0, 12), (24, 32, 12))
_FAV4 = functools.partial(_attention, (60, 12, 0), (36, 20, 0))
_TILES = ((256, 256), (256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128))
_CONFLICTS = {"free": 0, "2": 1, "4": 2, "8": 3}  # bits by which the lanes' distance is shifted
_STREAMS: Mapping[str, Callable[[Model], float]] = {
    "matrix-rate": functools.partial(_rate, large(), _FLOPS),
    "matrix-rate-small": functools.partial(_rate, small(), _FLOPS // 2),
    "mfma-dependent": functools.partial(_between, small(), waves=1),
    "mfma-four": lambda model: _between("".join(map(small, (0, 4, 8, 12))), model, waves=1) / 4,
    "fma-dependent": functools.partial(_between, FMA, waves=1),
    "lds-chase": functools.partial(_between, CHASE, first="v_mov_b32 v2, 0\n", waves=1),
    "first-dot": functools.partial(_dot, 96 + 4, 0, 16),
    "second-dot": functools.partial(_dot, 54, 33, 0),
    "lds-b128": functools.partial(_between, READ),
    "lds-b64": functools.partial(_between, "ds_read_b64 v[24:25], v1\n", first="v_lshrrev_b32 v1, 1, v1\n"),
    **{f"lds-one-{name}": functools.partial(_conflicts, shift, 1) for name, shift in _CONFLICTS.items()},
    **{f"lds-four-{name}": functools.partial(_conflicts, shift, 4) for name, shift in _CONFLICTS.items()},
    "lds-ninth": _ninth,
    **{f"tile-{rows}x{columns}": functools.partial(_tile, rows, columns) for rows, columns in _TILES},
    "gemm-4wave": functools.partial(_tile, 256, 256),
    "gemm-8wave": lambda model: model.share(streams.gemm_of_eight_waves(_PASSES)),
    "fav3": _FAV3,
    "fav3-unfolded": _FAV3,
    "fav4": _FAV4,
    "fav4-unfolded": _FAV4,
}

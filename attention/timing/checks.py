"""The timing model beside published figures: each is modelled on a stream of its own (streams.py, published.yaml)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import asdict

from ckpm.attention.launch.device import EmulatedDevice
from ckpm.attention.timing.machine import Number, values
from ckpm.attention.timing.record import SIMDS, Check
from ckpm.attention.timing.streams import KERNEL, READ, Stream, assemble, dot, gemm, large, small
from ckpm.base.tablefile import Record, read_table

ARCH = "gfx950"  # whose figures they are
TABLE = Path(__file__).with_name("published.yaml")
_FLOPS = 2 * 32 * 32 * 16  # of an MFMA, 32x32x16 and twice 16x16x32


class Published(Record, frozen=True):
    """A figure of a document; the fields are described in the head of published.yaml."""

    about: str
    unit: str
    published: Annotated[float, Meta(gt=0)] | None
    measured: bool
    independent: bool
    source: str


class PublishedTable(Record, frozen=True):
    """published.yaml: streams of instructions, and kernels of contiguous tensors (tables.py)."""

    forward: dict[str, Published]
    checks: dict[str, Published]


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
        """Percent of the hot loop's time in which the matrix unit of a SIMD with one wave works."""
        loops = [wave["loop"] for wave in self.replay(stream)["waves"]]
        return float(100 * sum(one["matrix"] for one in loops) / sum(one["end"] - one["begin"] for one in loops))


def checks(device: EmulatedDevice, known: Mapping[str, Number]) -> tuple[Check, ...]:
    """Model every published figure.

    Raises:
        TableError: the table names a check without a stream.
        SetupError: the embedded toolchain, which assembles the streams, is missing.
        InconclusiveError, DeviceError: a stream can't be assembled, run or replayed.
    """
    table = read_table(TABLE, PublishedTable)
    if unknown := [name for name in table.record.checks if name not in _STREAMS]:
        raise table.fail(f"no stream for '{unknown[0]}'; there are {', '.join(_STREAMS)}", "checks", unknown[0])
    model = Model(device, values(known))
    return tuple(check(name, row, _STREAMS[name](model)) for name, row in table.record.checks.items())


def check(name: str, row: Published, modelled: float) -> Check:
    """A row of the table with the modelled figure."""
    return Check(name=name, modelled=round(modelled, 2), **asdict(row))


def _rate(mfma: str, flops: int, model: Model) -> float:
    return 100 * flops * SIMDS / model.more(Stream(mfma * 100), Stream(mfma * 200))


def _dot(vector: int, exponentials: int, packed: int, model: Model) -> float:
    """Percent of the cycles that one more dot takes."""
    once = dot(16, vector, exponentials, packed)
    return 100 * 16 * 32 / model.more(Stream(once, waves=1), Stream(once * 2, waves=1))


def _between(text: str, model: Model) -> float:
    return model.more(Stream(text * 64), Stream(text * 96)) / 32


def _cycles_between_lanes(shift: str, text: str, model: Model) -> float:
    """Cycles as :func:`_between`, with ``shift`` as the distance of the lanes' addresses instead of 16 bytes."""
    return model.more(Stream(f"{shift}\n{text * 64}"), Stream(f"{shift}\n{text * 96}")) / 32


def _ninth(model: Model) -> float:
    """Cycles by which the ninth read issues late, seen at s_endpgm."""
    eight, nine = (int(model.replay(Stream(READ * count, waves=1))["cycles"]) for count in (8, 9))
    return nine - eight - model.numbers["issue_cycles"]


def _tile(rows: int, columns: int, model: Model) -> float:
    return model.share(gemm(rows, columns, 40))


_TILES = ((256, 256), (256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128))
_STREAMS: Mapping[str, Callable[[Model], float]] = {
    "matrix-rate": functools.partial(_rate, large(), _FLOPS),
    "matrix-rate-small": functools.partial(_rate, small(), _FLOPS // 2),
    "first-dot": functools.partial(_dot, 96 + 4, 0, 16),
    "second-dot": functools.partial(_dot, 54, 33, 0),
    "lds-b128": functools.partial(_between, READ),
    "lds-b64": functools.partial(_cycles_between_lanes, "v_lshrrev_b32 v1, 1, v1", "ds_read_b64 v[24:25], v1\n"),
    "lds-conflict": functools.partial(_cycles_between_lanes, "v_lshlrev_b32 v1, 1, v1", READ),
    "lds-ninth": _ninth,
    **{f"tile-{rows}x{columns}": functools.partial(_tile, rows, columns) for rows, columns in _TILES},
}

"""Replays of a device's recording: the cycles, a picture of two passes of the hot loop, the sensitivity to doubts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ckpm.attention.launch.device import EmulatedDevice
from ckpm.attention.timing.machine import Number, values

_BINS, _PASSES, _LEAST_BIN = 240, 2, 4
_NO_TIMELINE = {"timeline_from": 0, "timeline_bin": 1, "timeline_bins": 0}


def replay(device: EmulatedDevice, known: Mapping[str, Number], resident: int) -> tuple[Mapping[str, Any], int, int]:
    """Replay on the device. Return its answer, the cycle at which the timelines begin, and the cycles of a letter.

    Raises:
        DeviceError: nothing was recorded, or a number is refused.
    """
    given = {**values(known), "workgroups": resident}
    first = device.replay({**given, **_NO_TIMELINE})
    begin, width = _window(first)
    shown = {"timeline_from": begin, "timeline_bin": width, "timeline_bins": _BINS}
    return device.replay({**given, **shown}), begin, width


def sensitivity(device: EmulatedDevice, known: Mapping[str, Number], resident: int) -> dict[str, tuple[int, int]]:
    """The cycles with half and twice of each doubtful figure; of a switch, off and on. Raises as :func:`replay`."""
    given = {**values(known), **_NO_TIMELINE, "workgroups": resident}

    def cycles(name: str, value: int) -> int:
        return int(device.replay({**given, name: value})["cycles"])

    return {
        name: (cycles(name, 0), cycles(name, 1))
        if number.switch
        else (cycles(name, max(number.value // 2, 1)), cycles(name, 2 * number.value))
        for name, number in known.items()
        if number.doubtful
    }


def _window(replayed: Mapping[str, Any]) -> tuple[int, int]:
    """Two passes in the middle of the hot loop; without a loop, everything."""
    loops = [wave["loop"] for wave in replayed["waves"] if wave["loop"]["passes"] > _PASSES]
    if not loops:
        return 0, max(-(-replayed["cycles"] // _BINS), _LEAST_BIN)
    longest = max(loops, key=lambda loop: int(loop["passes"]))
    one = (longest["end"] - longest["begin"]) // (longest["passes"] - 1)
    begin = longest["begin"] + (longest["passes"] - _PASSES) // 2 * one
    return begin, max(-(-_PASSES * one // _BINS), _LEAST_BIN)

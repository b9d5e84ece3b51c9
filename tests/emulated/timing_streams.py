"""Streams of hand-written assembly on the timing model: all waves of one workgroup run them from cycle 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ckpm.timing.machine import numbers, values
from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.options import Record
from emulator_assembly import assemble, launch

LDS_BYTES = 65536
END = 4  # cycles of s_endpgm's slot
# Waves 4 and up go to `other`; the others go on. Wave w is on SIMD w % 4.
SPLIT = """
v_readfirstlane_b32 s4, v0
s_cmp_gt_u32 s4, 255
s_cbranch_scc1 other
"""
ADDRESS = "s_load_dwordx2 s[4:5], s[0:1], 0x0\nv_lshlrev_b32 v1, 4, v0\ns_waitcnt lgkmcnt(0)\n"


@dataclass(frozen=True)
class Timeline:
    """The first column of the waves' letters, the cycles of a letter, and the count of letters."""

    start: int = 0
    width: int = 32
    count: int = 0


class Stream:
    """A workgroup of ``threads`` that runs ``body`` on a device, recorded once and replayed at will."""

    def __init__(self, device: EmulatedGpu, body: str, threads: int = 64, arch: str = "gfx950") -> None:
        self._device, self._arch = device, arch
        device.configure(record=Record())
        device.forget_recording()
        memory = device.malloc(1 << 20)
        launch(device, assemble(body + "\ns_endpgm\n", arch, LDS_BYTES), memory, threads=threads)
        device.free(memory)

    def replay(self, timeline: Timeline = Timeline(), workgroups: int = 1, **changes: int) -> dict[str, Any]:
        """The device's replay with some of the machine's numbers changed."""
        shown = {"timeline_from": timeline.start, "timeline_bin": timeline.width, "timeline_bins": timeline.count}
        return self._device.replay({**values(numbers(self._arch), workgroups), **shown, **changes})

    def cycles(self, **changes: int) -> int:
        return int(self.replay(Timeline(), **changes)["cycles"])


def mfma(accumulator: int = 0, factor: str = "v[0:3]", shape: str = "32x32x16", addend: int | None = None) -> str:
    """One bf16 MFMA on AGPRs from ``accumulator`` on, which it adds to unless another ``addend`` is named."""
    registers = {"32x32x16": 16, "16x16x32": 4, "32x32x8": 16, "16x16x16": 4}[shape]
    factors = f"{factor}, v[4:7]" if shape in ("32x32x16", "16x16x32") else "v[0:1], v[4:5]"
    first = accumulator if addend is None else addend
    ranges = [f"a[{start}:{start + registers - 1}]" for start in (accumulator, first)]
    return f"v_mfma_f32_{shape}_bf16 {ranges[0]}, {factors}, {ranges[1]}\n"


def adds(count: int) -> str:
    return "v_add_f32 v10, v11, v12\n" * count

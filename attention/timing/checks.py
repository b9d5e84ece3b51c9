"""The timing model beside published figures (published.yaml): each is modelled on a stream of instructions of its own.

A stream is assembly of one workgroup.
"""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import asdict

from ckpm.attention.launch.device import EmulatedDevice
from ckpm.attention.timing.machine import Number, values
from ckpm.attention.timing.record import SIMDS, Check
from ckpm.base.errors import InconclusiveError
from ckpm.base.settings import cache_folder
from ckpm.base.tablefile import Record, read_table
from ckpm.kernels.code import toolchains

KERNEL = "stream"
LDS_BYTES = 65536
_FRAME = """\
.amdgcn_target "amdgcn-amd-amdhsa--{arch}"
.text
.globl stream
.p2align 8
.type stream,@function
stream:
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshlrev_b32 v1, 4, v0
v_and_b32 v1, 0xfff, v1
s_mov_b32 m0, 0
s_waitcnt lgkmcnt(0)
{body}
s_endpgm
.size stream, .-stream
.rodata
.p2align 6
.amdhsa_kernel stream
.amdhsa_group_segment_fixed_size {lds}
.amdhsa_user_sgpr_kernarg_segment_ptr 1
.amdhsa_next_free_vgpr 256
.amdhsa_next_free_sgpr 64
.amdhsa_accum_offset 128
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.target: amdgcn-amd-amdhsa--{arch}
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: stream
    .symbol: stream.kd
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .max_flat_workgroup_size: 1024
    .sgpr_count: 64
    .vgpr_count: 256
    .args:
      - {{.size: 8, .offset: 0, .value_kind: global_buffer, .address_space: global}}
.end_amdgpu_metadata
"""
_WAVES = 4  # of a GEMM's workgroup, two by two
_LDS = 160 << 10  # bytes of a compute unit of gfx950
_DEEP = 64  # elements of K a pass
_SLICES = 4  # of a pass
_MOST_FLYING = 62  # loads that s_waitcnt vmcnt can name, and still wait


@dataclass(frozen=True, slots=True)
class Stream:
    """Assembly of one workgroup: its first argument is in s[4:5], 16 bytes a thread within 4 KB in v1, 0 in M0."""

    body: str
    waves: int = 4


def assemble(stream: Stream, arch: str) -> bytes:
    """The code object of a stream. Raises SetupError; InconclusiveError: the toolchain refuses the text."""
    tc = toolchains.detect("embedded", cache=cache_folder())
    environment = {**os.environ, **tc.environment}
    with tempfile.TemporaryDirectory() as folder:
        source, made, linked = (Path(folder, f"stream{suffix}") for suffix in (".s", ".o", ".hsaco"))
        source.write_text(_FRAME.format(arch=arch, body=stream.body, lds=LDS_BYTES), encoding="utf-8")
        target = ("-x", "assembler", "--target=amdgcn-amd-amdhsa", f"-mcpu={arch}")
        for command in (
            [*tc.compiler, *target, "-c", str(source), "-o", str(made)],
            [tc.compiler[0], "ld.lld", "-shared", str(made), "-o", str(linked)],
        ):
            run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if run.returncode:
                raise InconclusiveError(
                    f"a stream of the timing model's checks is not assembled: {run.stderr[:500]}", kind="measure"
                )
        return linked.read_bytes()


def repeat(passes: int, body: str) -> str:
    """A loop that runs ``body`` ``passes`` times."""
    return f"s_mov_b32 s8, {passes}\nloop:\n{body}s_sub_u32 s8, s8, 1\ns_cmp_lg_u32 s8, 0\ns_cbranch_scc1 loop\n"


def large(accumulator: int = 0) -> str:
    """v_mfma_f32_32x32x16_bf16, which adds to AGPRs from ``accumulator`` on."""
    place = f"a[{accumulator}:{accumulator + 15}]"
    return f"v_mfma_f32_32x32x16_bf16 {place}, v[16:19], v[20:23], {place}\n"


def small(accumulator: int = 0) -> str:
    """v_mfma_f32_16x16x32_bf16."""
    place = f"a[{accumulator}:{accumulator + 3}]"
    return f"v_mfma_f32_16x16x32_bf16 {place}, v[16:19], v[20:23], {place}\n"


ADD = "v_add_f32 v40, v41, v42\n"
EXPONENTIAL = "v_exp_f32 v43, v44\n"
PACKED = "v_pk_mul_f32 v[46:47], v[48:49], v[50:51]\n"
READ = "ds_read_b128 v[24:27], v1\n"
LOAD = "global_load_lds_dwordx4 v1, s[4:5]\n"


def dot(matrices: int, vector: int, exponentials: int, packed: int) -> str:
    """MFMAs with as much vector work beside each as fits into 24 cycles: exponentials last, and the rest after them."""
    work = [(4, ADD)] * vector + [(8, EXPONENTIAL)] * exponentials
    body = ""
    for _ in range(matrices):
        body += large()
        room = 24
        while work and work[0][0] <= room:
            cycles, text = work.pop(0)
            room -= cycles
            body += text
    return body + "".join(text for _, text in work) + PACKED * packed


def gemm(rows: int, columns: int, passes: int) -> Stream:
    """A tile of a GEMM of 16-bit elements: loads to LDS and reads of it spread evenly among the MFMAs of each pass.

    A pass is cut into four slices, as in the tutorials' sliced kernels. Each waits for the loads that were issued in
    the same slice so many passes ago as there are other buffers.
    """
    tile = (rows + columns) * _DEEP * 2
    mfmas = rows * columns * _DEEP // (16 * 16 * 32 * _WAVES)
    loads = tile // 1024 // _WAVES
    reads = (rows // 2 + columns // 2) * _DEEP * 2 // 1024
    flying = min((_LDS // tile - 1) * loads - -(-loads // _SLICES), _MOST_FLYING)
    body = ""
    for at in range(mfmas):
        if at % (mfmas // _SLICES) == 0:
            body += f"s_waitcnt vmcnt({flying})\ns_barrier\n"
        body += small(4 * (at % 16))
        body += LOAD * ((at + 1) * loads // mfmas - at * loads // mfmas)
        body += READ * ((at + 1) * reads // mfmas - at * reads // mfmas)
    return Stream(repeat(passes, body + "s_waitcnt lgkmcnt(0)\n"))


ARCH = "gfx950"  # whose figures they are
TABLE = Path(__file__).with_name("published.yaml")
_FLOPS = 2 * 32 * 32 * 16  # of an MFMA, 32x32x16 and twice 16x16x32


class Published(Record, frozen=True):
    """A figure of a document; the fields are described in the head of published.yaml."""

    about: str
    unit: str
    published: Annotated[float, Meta(gt=0)]
    measured: bool
    independent: bool
    source: str


class PublishedTable(Record, frozen=True):
    """The record of published.yaml: a stream of instructions for each figure."""

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

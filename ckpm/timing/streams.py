"""Streams of instructions for the timing model's checks: assembly of one workgroup each, and their code objects."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.errors import MeasureError
from ckpm.base.processes import tool_environment
from ckpm.base.settings import cache_folder
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
    """The code object of a stream."""
    tc = toolchains.detect("embedded", cache=cache_folder())
    environment = tool_environment(tc.environment)
    with tempfile.TemporaryDirectory() as folder:
        source, object_file, linked = (Path(folder, f"stream{suffix}") for suffix in (".s", ".o", ".hsaco"))
        source.write_text(_FRAME.format(arch=arch, body=stream.body, lds=LDS_BYTES), encoding="utf-8")
        target = ("-x", "assembler", "--target=amdgcn-amd-amdhsa", f"-mcpu={arch}")
        for command in (
            [*tc.compiler, *target, "-c", str(source), "-o", str(object_file)],
            [tc.compiler[0], "ld.lld", "-shared", str(object_file), "-o", str(linked)],
        ):
            run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if run.returncode:
                raise MeasureError(f"a stream of the timing model's checks is not assembled: {run.stderr[:500]}")
        return linked.read_bytes()


def repeat(passes: int, body: str) -> str:
    """A loop that runs ``body`` ``passes`` times."""
    return f"s_mov_b32 s8, {passes}\nloop:\n{body}s_sub_u32 s8, s8, 1\ns_cmp_lg_u32 s8, 0\ns_cbranch_scc1 loop\n"


def large(accumulator: int = 0) -> str:
    """v_mfma_f32_32x32x16_bf16, which adds to AGPRs from ``accumulator`` on."""
    registers = f"a[{accumulator}:{accumulator + 15}]"
    return f"v_mfma_f32_32x32x16_bf16 {registers}, v[16:19], v[20:23], {registers}\n"


def small(accumulator: int = 0) -> str:
    """v_mfma_f32_16x16x32_bf16."""
    registers = f"a[{accumulator}:{accumulator + 3}]"
    return f"v_mfma_f32_16x16x32_bf16 {registers}, v[16:19], v[20:23], {registers}\n"


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


FMA = "v_fma_f32 v40, v41, v42, v40\n"
CHASE = "ds_read_b32 v2, v2\ns_waitcnt lgkmcnt(0)\nv_lshlrev_b32 v2, 2, v2\n"
_WAIT = "s_waitcnt vmcnt(8) lgkmcnt(0)\n"  # at the end of a part with loads


def pingpong(clusters: Sequence[str], passes: int) -> Stream:
    """Two waves a SIMD go through the clusters, with a barrier after each cluster.

    They are one cluster apart, so that one computes while the other loads.
    """
    split = "v_readfirstlane_b32 s9, v0\ns_cmp_lt_u32 s9, 256\n"
    late = f"{split}s_cbranch_scc1 both\ns_barrier\nboth:\n"
    early = f"{split}s_cbranch_scc0 done\ns_barrier\ndone:\n"
    return Stream(late + repeat(passes, "".join(f"{cluster}s_barrier\n" for cluster in clusters)) + early, waves=8)


def attention(first: tuple[int, int, int], second: tuple[int, int, int], passes: int) -> Stream:
    """A tile of 64 keys a pass, as in the tutorials' fav3 and fav4: 256 queries and head dim 128 in eight waves.

    Each dot has 16 MFMAs with (vector operations, exponentials, packed operations) of the softmax. The parts between
    the dots read K or V from LDS, 16 KB a wave, and load the eighth part of the tile after the next.
    """
    dots = [dot(16, vector, exponentials, 0) for vector, exponentials, _ in (first, second)]
    reads = [LOAD * 2 + READ * 16, LOAD * 2 + "ds_read_b64_tr_b16 v[24:25], v1\n" * 32]
    clusters = [PACKED * first[2] + dots[0], reads[0] + _WAIT, PACKED * second[2] + dots[1], reads[1] + _WAIT]
    return pingpong(clusters, passes)


def gemm_of_eight_waves(passes: int) -> Stream:
    """The tutorials' GEMM of 256x256x64 a pass in quadrants: eight waves of 16 MFMAs a quadrant, 2 by 4."""
    mfmas = "".join(small(4 * at) for at in range(16))
    reads = (8, 4, 4, 8)  # of 64 rows of A or 32 columns of B, 64 deep
    return pingpong([part for count in reads for part in (mfmas, LOAD * 2 + READ * count + _WAIT)], passes)

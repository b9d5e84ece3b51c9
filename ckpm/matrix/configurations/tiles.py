"""Rules for block tile, waves and warp tile of the families with two gemms: fwd, split-KV, paged-KV, batch prefill.

They are rules of CK's dispatcher (see validation.py), in its order. ``tile``, ``wave`` and ``warp`` are as in
configuration.py; bm0, bn0, bk0 below are the first three numbers of ``tile``, wm0, wn0, wk0 of ``warp``. A rule accepts
lists that are too short or have a zero as its divisor: other rules refuse them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ckpm.matrix.configurations.limits import limits
from ckpm.matrix.configurations.validation import ATTENTION, error, plain
from ckpm.matrix.dialects import archs

_ASYNC = ("qr_async", "qr_async_trload", "qr_async_trload_v3")
_WAVE_SIZE = 64  # lanes; the async pipelines are gfx9's


def _usable(family: str, *lists: Sequence[int]) -> bool:
    """Return True if the family has such tiles, and the lists have the positive numbers that rules read."""
    return family in ATTENTION and all(len(lengths) >= 3 and min(lengths[:3]) > 0 for lengths in lists)


@error("tile", "wave", "warp")
def tile_wave_and_warp_are_positive(family: str, tile: Sequence[int], wave: Sequence[int], warp: Sequence[int]) -> str:
    """a gemm has a block, waves and a warp tile, so that no length of them is 0

    validation.py divides by them without asking.
    """
    counts = {**dict.fromkeys(ATTENTION, (6, 6, 6)), "bwd_dq_dk_dv": (9, 9, 6)}.get(family, (0, 0, 0))
    named = zip(("tile", "wave", "warp"), (tile, wave, warp), counts, strict=True)
    zeros = [f"{name}[{index}]" for name, lengths, count in named for index, n in enumerate(lengths[:count]) if n == 0]
    return f"0 in {plain(zeros)}" if zeros else ""


@error("tile", "warp", "wave")
def qr_at_d256_issues_mfma_by_eights(
    arch: str, family: str, pipeline: str, hdim_q: int, tile: Sequence[int], wave: Sequence[int], warp: Sequence[int]
) -> str:
    """qr interleaves MFMA instructions of its first gemm with loads in steps of 8 at hdim_q 256

    validation.py, validate_config (NumMfmaInsts) and check_qr_mfma_insts, its short form; a static_assert of
    block_fmha_pipeline_qr_ks_vs.hpp.

    Contradicted: CK's codegen lists qr kernels for hdim_q 256 with 4 instructions: fp8 in 2025 (fwd, split-KV), fp16
    and bf16 on gfx950 in 2026 (fwd).
    """
    applies = pipeline == "qr" and hdim_q == 256 and limits().archs[arch].matrix_cores == "mfma"
    if not applies or not _usable(family, tile, wave, warp):
        return ""
    blocks = [length // step for length, step in zip(tile[:3], warp[:3], strict=True)]
    count = blocks[0] * blocks[1] * blocks[2] // (wave[0] * wave[1])
    step = limits().mfma_instructions_multiple
    return f"{count} MFMA instructions of a wave; a multiple of {step} is needed" if count % step else ""


@error("tile", "pipeline")
def async_pipelines_fit_in_lds(
    arch: str, family: str, dtype: str, hdim_v: int, pipeline: str, tile: Sequence[int], warp: Sequence[int]
) -> str:
    """an async pipeline keeps three buffers of the larger of K and V in LDS, and Q in registers

    validation.py, tile_passes_all_constraints. It allows gfx950's 163840 bytes on every arch; here an arch has its own.

    Contradicted: our own kernels of head dims 512 and 576/512 have slices of 16 keys of V in LDS, CK's pipelines of 32.
    """
    if pipeline not in _ASYNC or not _usable(family, tile, warp):
        return ""
    has = archs()[arch].lds_bytes
    needs = async_lds_bytes(arch, dtype, hdim_v, tile, warp)
    return f"{needs} bytes of LDS; {arch} has {has}" if needs > has else ""


def async_lds_bytes(arch: str, dtype: str, hdim_v: int, tile: Sequence[int], warp: Sequence[int]) -> int:
    """Bytes of LDS of an async pipeline's buffers, as the dispatcher counts them from CK's descriptors.

    Lengths are in elements: a row is one pass over LDS's banks, followed by a pack as padding.
    """
    size, lds = limits().dtypes[dtype], limits().lds
    row = limits().archs[arch].lds_banks * 4 // size
    pack = lds.pack_bytes // size
    one_v = (lds.async_bk1 // pack) * (hdim_v // (row // pack)) * (row + pack)
    vector = max(limits().archs[arch].async_load_bytes // size, 1)
    waves = tile[0] // warp[0]
    lane_groups = _WAVE_SIZE // max(tile[2] // vector, 1)
    issues = tile[1] // (lane_groups * waves) if lane_groups * waves else 0
    one_k = issues * waves * (_WAVE_SIZE * vector + pack)
    return lds.async_buffers * max(one_k, one_v) * size


@error("tile", "pipeline")
def other_pipelines_fit_in_lds(family: str, dtype: str, pipeline: str, tile: Sequence[int]) -> str:
    """a pipeline that isn't async keeps a slice of Q and of K in LDS together

    validation.py, tile_passes_all_constraints; fmha_arch_specs.json, lds_limits.
    """
    if pipeline in _ASYNC or not _usable(family, tile):
        return ""
    has = limits().lds.sync_bytes
    needs = (tile[0] + tile[1]) * tile[2] * limits().dtypes[dtype]
    return f"{needs} bytes of LDS for Q and K; {pipeline} has {has}" if needs > has else ""


@error("tile[2]", "hdim_q")
def bk0_is_within_hdim_q(family: str, hdim_q: int, tile: Sequence[int]) -> str:
    """a slice of the first gemm is no longer than the head dim

    validation.py, tile_passes_all_constraints.
    """
    return f"bk0 {tile[2]} with hdim_q {hdim_q}" if _usable(family, tile) and tile[2] > hdim_q else ""


@error("tile[2]", "hdim_q")
def bk0_divides_hdim_q(family: str, hdim_q: int, tile: Sequence[int]) -> str:
    """the first gemm covers the head dim with whole slices

    validation.py, tile_passes_all_constraints; tile_fmha_shape.hpp.
    """
    return f"hdim_q {hdim_q} is not a multiple of bk0 {tile[2]}" if _usable(family, tile) and hdim_q % tile[2] else ""


@error("tile", "warp")
def warp_tile_divides_block_tile(family: str, tile: Sequence[int], warp: Sequence[int]) -> str:
    """a block consists of whole warp tiles

    validation.py, tile_passes_all_constraints.
    """
    if not _usable(family, tile, warp):
        return ""
    pairs = zip(("bm0", "bn0", "bk0"), tile, ("wm0", "wn0", "wk0"), warp, strict=False)
    return plain([f"{block} {n} is not a multiple of {warp_} {w}" for block, n, warp_, w in pairs if n % w])


@error("tile", "warp")
def async_copy_is_a_whole_number_of_loads(
    arch: str, family: str, dtype: str, pipeline: str, tile: Sequence[int], warp: Sequence[int]
) -> str:
    """the waves of a block copy K's tile to LDS in loads that every lane takes part in

    validation.py, tile_passes_all_constraints: NumIssues of MakeKLdsStoreBlockDescriptor is a whole number.

    Contradicted: CK's codegen lists qr_async forward kernels for head dims 32x32 on gfx950 with half a load.
    """
    applies = pipeline == "qr_async" and limits().archs[arch].matrix_cores == "mfma"
    if not applies or not _usable(family, tile, warp):
        return ""
    vector = max(limits().archs[arch].async_load_bytes // limits().dtypes[dtype], 1)
    one_load = tile[0] // warp[0] * _WAVE_SIZE * vector
    wrong = one_load == 0 or (tile[1] * tile[2]) % one_load != 0
    return f"{tile[1]}x{tile[2]} elements of K in loads of {one_load}" if wrong else ""


def _asks_gfx9(arch: str, dtype: str, pipeline: str) -> bool:
    return limits().archs[arch].matrix_cores == "mfma" and dtype != "fp32" and pipeline in ("qr", "qr_async", "qs")


@error("tile[1]")
def d128_takes_tiles_of_128_keys(
    arch: str, family: str, dtype: str, hdim_q: int, hdim_v: int, pipeline: str, tile: Sequence[int]
) -> str:
    """on gfx9 at head dims 128x128, qr, qr_async and qs take tiles of 128 keys

    validation.py, check_gfx9_tile_constraints, from codegen/ops/fmha_fwd.py, so of fwd only; not of fp32.
    """
    applies = (
        family == "fwd" and _asks_gfx9(arch, dtype, pipeline) and hdim_q == hdim_v == 128 and _usable(family, tile)
    )
    needed = limits().d128_bn0
    return f"bn0 {tile[1]}; {needed} is needed" if applies and tile[1] != needed else ""


@error("tile[0]")
def qr_async_at_d128_takes_tiles_of_128_queries(
    arch: str, family: str, dtype: str, hdim_q: int, hdim_v: int, pipeline: str, tile: Sequence[int]
) -> str:
    """on gfx9 at head dims 128x128, qr_async takes tiles of 128 queries

    validation.py, check_gfx9_tile_constraints, from codegen/ops/fmha_fwd.py; asked of fwd and batch_prefill, not of
    fp32.

    Contradicted: CK's codegen lists tiles of 64 queries in fwd and batch_prefill, taken when there are few blocks.
    """
    gfx9 = family in ("fwd", "batch_prefill") and pipeline == "qr_async" and _asks_gfx9(arch, dtype, pipeline)
    applies = gfx9 and hdim_q == hdim_v == 128 and _usable(family, tile)
    needed = limits().d128_async_bm0
    return f"bm0 {tile[0]}; {needed} is needed" if applies and tile[0] != needed else ""


@error("tile[0]")
def other_head_dims_take_known_tiles_of_queries(
    arch: str, family: str, dtype: str, hdim_q: int, hdim_v: int, pipeline: str, tile: Sequence[int]
) -> str:
    """on gfx9 at head dims other than 128x128, qr, qr_async and qs take tiles of 64, 128, 192 or 256 queries

    validation.py, check_gfx9_tile_constraints, which is wider than CK's codegen (128) on purpose; from
    codegen/ops/fmha_fwd.py, so of fwd only: split-KV has tiles of 32 queries. Not of fp32.
    """
    other = (hdim_q, hdim_v) != (128, 128)
    applies = family == "fwd" and _asks_gfx9(arch, dtype, pipeline) and other and _usable(family, tile)
    allowed = limits().bm0
    return f"bm0 {tile[0]}; known are {plain(allowed)}" if applies and tile[0] not in allowed else ""


@error("tile[2]")
def qr_and_qs_at_d128_take_no_slices_of_64(
    arch: str, family: str, dtype: str, hdim_q: int, hdim_v: int, pipeline: str, tile: Sequence[int]
) -> str:
    """on gfx9 at head dims 128x128, only qr_async takes slices of 64 elements of the first gemm

    validation.py, check_gfx9_tile_constraints, from codegen/ops/fmha_fwd.py, so of fwd only; not of fp32.

    Contradicted: CK's codegen of 2026 lists mxfp8 and mxfp4 kernels of qr on gfx950, which it exempts.
    """
    gfx9 = family == "fwd" and pipeline != "qr_async" and _asks_gfx9(arch, dtype, pipeline)
    applies = gfx9 and hdim_q == hdim_v == 128 and _usable(family, tile)
    return f"bk0 {tile[2]}" if applies and tile[2] == limits().d128_refused_bk0 else ""


@error("tile[1]")
def trload_at_d128_takes_narrow_tiles(
    arch: str, family: str, hdim_q: int, hdim_v: int, pipeline: str, tile: Sequence[int]
) -> str:
    """qr_async_trload leaves tiles of 128 keys at head dims 128x128 to the other pipelines

    validation.py, check_gfx950_tile_constraints, from codegen/ops/fmha_fwd.py.
    """
    applies = arch == "gfx950" and family == "fwd" and pipeline == "qr_async_trload" and hdim_q == hdim_v == 128
    wrong = applies and _usable(family, tile) and tile[1] == limits().trload_d128_refused_bn0
    return f"bn0 {tile[1]}" if wrong else ""


@error("tile[0]")
def v3_takes_tiles_of_256_queries(arch: str, family: str, pipeline: str, tile: Sequence[int]) -> str:
    """qr_async_trload_v3 is written for tiles of 256 queries

    validation.py, check_gfx950_tile_constraints, from codegen/ops/fmha_fwd.py.
    """
    applies = arch == "gfx950" and family == "fwd" and pipeline == "qr_async_trload_v3" and _usable(family, tile)
    needed = limits().v3_bm0
    return f"bm0 {tile[0]}; {needed} is needed" if applies and tile[0] != needed else ""

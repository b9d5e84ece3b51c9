"""The rules of CK's dispatcher for one kernel's configuration, as named functions.

The parameters of a rule are fields of a configuration. A rule returns the complaint, "" without one. Its docstring has
the reason and the source. If CK's own codegen lists kernels that break the rule, it also has "Contradicted:" and their
description. Such a rule still holds for configurations outside of the matrix. A kernel of the matrix is judged by the
matrix's tables (ckpm.matrix.rules); the rule is then only reported.

The source is attention/codegen/fmha/validation.py of rocm-libraries pull request 5260 (May 2026), called the
dispatcher below. Reading a configuration checks that arch and family are known (unknown_word).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ckpm.matrix.configurations.configuration import PATHS
from ckpm.matrix.configurations.limits import limits
from ckpm.matrix.keys import ANY_PAGE, takes_pages
from ckpm.matrix.rule import Rule, rule_of

Function = TypeVar("Function", bound=Callable[..., str])

ATTENTION = ("fwd", "fwd_splitkv", "fwd_pagedkv", "batch_prefill")  # families with two gemms and TileFmhaShape
RULES: dict[str, Rule] = {}


def error(*paths: str) -> Callable[[Function], Function]:
    """Register a rule; ``paths`` are fields of a configuration, tile[3] one number of a list."""
    return lambda function: _register("error", paths, function)


def warning(*paths: str) -> Callable[[Function], Function]:
    """Register a rule as :func:`error` does, for configurations that work but are unlikely to be intended."""
    return lambda function: _register("warning", paths, function)


def _register(severity: str, paths: Sequence[str], function: Function) -> Function:
    RULES[function.__name__] = rule_of(function, severity, map(_dotted_path, paths))
    return function


def _dotted_path(path: str) -> str:
    name, bracket, index = path.partition("[")
    return PATHS[name] + bracket + index


def plain(values: Sequence[Any]) -> str:
    """The values, separated by commas."""
    return ", ".join(map(str, values))


# What an arch has


@error("dtype", "arch")
def dtype_is_supported_on_arch(arch: str, dtype: str) -> str:
    """the dispatcher builds the arch's supported dtypes only

    validation.py, validate_config, dtype validation; fmha_arch_specs.json, supported_dtypes.

    Contradicted: CK's codegen lists fp8 kernels for gfx90a (all families but backward's), fp8 split-KV combine
    kernels for gfx1100, fp8fp32 for gfx1201, and mxfp8 and mxfp4 for gfx950.
    """
    supported = limits().archs[arch].dtypes
    return "" if dtype in supported else f"dtype {dtype} on {arch}, which has {plain(supported)}"


@error("dtype", "family")
def backward_dtype_is_known(family: str, dtype: str) -> str:
    """backward kernels exist for fp32, fp16 and bf16

    validation.py, validate_config, dtype validation: BWD_DTYPE_MAP.
    """
    supported = limits().backward_dtypes
    return (
        f"dtype {dtype}; {family} has {plain(supported)}" if family.startswith("bwd") and dtype not in supported else ""
    )


@error("dtype", "family")
def forward_dtype_is_known(family: str, dtype: str) -> str:
    """forward kernels have the dtypes that the dispatcher can translate; it doesn't ask append-KV and batch prefill

    validation.py, validate_config, dtype validation: FWD_DTYPE_MAP.

    Contradicted: CK's codegen of 2026 lists forward kernels for mxfp8 and mxfp4 on gfx950.
    """
    applies = family.startswith("fwd") and family != "fwd_appendkv"
    supported = limits().forward_dtypes
    return f"dtype {dtype}; {family} has {plain(supported)}" if applies and dtype not in supported else ""


@error("pipeline", "arch")
def pipeline_is_supported_on_arch(arch: str, family: str, pipeline: str) -> str:
    """an arch has the pipelines that its instructions serve

    validation.py, validate_config, pipeline validation; fmha_arch_specs.json, supported_pipelines. Not asked of
    fwd_splitkv_combine, which has none. Backward's is called bwd, append-KV's appendkv.

    Contradicted: CK's codegen lists forward kernels with qr_hpad for gfx1100 and gfx1201.
    """
    supported = limits().archs[arch].pipelines
    wrong = family != "fwd_splitkv_combine" and pipeline not in supported
    return f"pipeline {pipeline} on {arch}, which has {plain(supported)}" if wrong else ""


@warning("pipeline", "arch")
def v3_needs_its_arch(arch: str, pipeline: str) -> str:
    """the V3 pipelines are written for an arch with supports_v3

    validation.py, validate_config, pipeline validation.
    """
    wrong = pipeline in ("v3", "qr_async_trload_v3") and "v3" not in limits().archs[arch].pipelines
    return f"pipeline {pipeline} on {arch}, which has no V3 pipeline" if wrong else ""


@error("pipeline", "arch")
def trload_needs_transposing_loads(arch: str, pipeline: str) -> str:
    """qr_async_trload reads V from LDS transposed, which is an instruction of gfx950

    validation.py, validate_config, pipeline validation: supports_trload.
    """
    wrong = pipeline == "qr_async_trload" and pipeline not in limits().archs[arch].pipelines
    return f"pipeline {pipeline} on {arch}, which has no transposing loads" if wrong else ""


# What a signature may combine


@error("hdim_q", "hdim_v")
def head_dims_are_multiples_of_8(hdim_q: int, hdim_v: int) -> str:
    """rows of Q, K and V are read in pieces of 8 elements, and there is at least one

    validation.py, validate_config, global rule hdim_divisible_by; it lets 0 and less pass.
    """
    step = limits().hdim_multiple
    wrong = [f"{name} {size}" for name, size in (("hdim_q", hdim_q), ("hdim_v", hdim_v)) if size <= 0 or size % step]
    return f"{' and '.join(wrong)}; head dims are positive multiples of {step}" if wrong else ""


@warning("hdim_q", "hdim_v", "bias", "dropout")
def d192x128_has_few_tiles_with_bias_or_dropout(hdim_q: int, hdim_v: int, bias: str, dropout: bool) -> str:
    """head dims 192x128 are for inference: few tiles serve a bias or dropout

    validation.py, validate_config, global rule hdim_192_128_no_bias_dropout.
    """
    what = [word for word, present in ((f"bias {bias}", bias != "no"), ("dropout", dropout)) if present]
    return f"head dims 192x128 with {' and '.join(what)}" if (hdim_q, hdim_v) == (192, 128) and what else ""


@error("logits", "bias")
def logits_soft_cap_without_bias(logits: bool, bias: str) -> str:
    """a logits soft cap is only built without bias

    validation.py, validate_config, global rule logits_requires_no_bias, and check_logits_bias.
    """
    return f"logits with bias {bias}" if logits and bias != "no" else ""


@error("pipeline", "hdim_q", "hdim_v")
def transposing_pipelines_have_symmetric_head_dims(pipeline: str, hdim_q: int, hdim_v: int) -> str:
    """the transposing pipelines are written for head dims 64x64 and 128x128

    validation.py, validate_config, global rules, and check_gfx950_tile_constraints.

    Contradicted: CK's codegen of 2026 lists qr_async_trload kernels for head dims 256x256 on gfx950.
    """
    supported = limits().trload_hdims
    wrong = pipeline in ("qr_async_trload", "v3", "qr_async_trload_v3") and (
        hdim_q != hdim_v or hdim_q not in supported
    )
    sizes = plain([f"{size}x{size}" for size in supported])
    return f"pipeline {pipeline} at head dims {hdim_q}x{hdim_v}; it has {sizes}" if wrong else ""


@error("padding[0]", "padding[1]", "mode")
def group_mode_pads_both_seqlens(family: str, mode: str, padding: Sequence[bool | int]) -> str:
    """group mode needs seqlen_q and seqlen_k padding: the length of the next sequence is unknown

    validation.py, check_group_mode_padding, and global rule group_mode_requires_padding; codegen/ops, fmha_fwd.py.
    """
    wrong = family in ATTENTION and mode == "group" and not (padding[0] and padding[1])
    return f"group mode with padding {_flags(padding[:2])} of seqlen_q and seqlen_k" if wrong else ""


@error("padding[0]", "mode")
def group_mode_pads_seqlen_q(family: str, mode: str, padding: Sequence[bool | int]) -> str:
    """group mode needs seqlen_q padding: the length of the next sequence is unknown

    As group_mode_pads_both_seqlens, for families without seqlen_k: codegen/ops, fmha_fwd_splitkv.py
    (get_fwd_splitkv_combine_blobs) and fmha_bwd.py (get_bwd_blobs).
    """
    applies = family in ("fwd_splitkv_combine", "bwd_dot_do_o", "bwd_convert_dq")
    return "group mode without padding of seqlen_q" if applies and mode == "group" and not padding[0] else ""


@error("padding")
def head_dims_padded_by_8_are_backwards(family: str, padding: Sequence[bool | int]) -> str:
    """only head dims of bwd_dq_dk_dv are padded to a multiple of 8; all else is padded (true) or not (false)

    fmha_arch_specs.json, bwd_tiles.pad_combos.
    """
    by_8 = [index for index, pad in enumerate(padding) if pad is not True and pad == 8]
    return f"padding {padding[by_8[0]]}" if by_8 and (family != "bwd_dq_dk_dv" or by_8[0] < 2) else ""


def _flags(padding: Sequence[bool | int]) -> str:
    return plain([str(pad).lower() for pad in padding])


# What an algorithm consists of


@error("tile")
def tile_has_its_length(family: str, tile: Sequence[int]) -> str:
    """a tile has 6 numbers, 9 in bwd_dq_dk_dv

    validation.py, validate_config, tile validation.
    """
    return _length(tile, limits().tile_length.get(family, limits().tile_length["default"]))


@error("wave")
def wave_has_its_length(wave: Sequence[int]) -> str:
    """wave has 9 numbers: along m, n, k of three gemms

    validation.py, validate_config, tile validation.
    """
    return _length(wave, limits().wave_length)


@error("warp")
def warp_has_its_length(warp: Sequence[int]) -> str:
    """warp has 9 numbers: along m, n, k of three gemms

    validation.py, validate_config, tile validation.
    """
    return _length(warp, limits().warp_length)


def _length(numbers: Sequence[int], length: int) -> str:
    return f"{len(numbers)} numbers; {length} are needed" if len(numbers) != length else ""


@error("block_per_cu")
def blocks_per_cu_are_positive_or_automatic(block_per_cu: int) -> str:
    """a compute unit runs at least one block; -1 leaves the number to the pipeline

    validation.py, validate_config.
    """
    return f"block_per_cu {block_per_cu}" if block_per_cu <= 0 and block_per_cu != -1 else ""


@error("num_wave_groups")
def wave_groups_are_positive(num_wave_groups: int) -> str:
    """a block has at least one group of waves

    validation.py, validate_config.
    """
    return f"num_wave_groups {num_wave_groups}" if num_wave_groups <= 0 else ""


# What a family demands


@error("vlayout", "family")
def family_reads_row_major_v(family: str, vlayout: str) -> str:
    """these families read V by rows only

    validation.py, validate_config, rules of batch_prefill, fwd_appendkv, fwd_pagedkv, fwd_splitkv.

    Contradicted: CK's codegen of mid-2025 lists kernels of all four with column-major V.
    """
    applies = family in ("batch_prefill", "fwd_appendkv", "fwd_pagedkv", "fwd_splitkv")
    return f"{family} with column-major V" if applies and vlayout != "r" else ""


@warning("vlayout", "family")
def forward_is_tried_with_row_major_v(family: str, vlayout: str) -> str:
    """the dispatcher's forward examples assume row-major V

    validation.py, validate_config, rules of fwd.
    """
    return "fwd with column-major V" if family == "fwd" and vlayout != "r" else ""


@error("pipeline", "family")
def family_has_its_pipeline(family: str, pipeline: str) -> str:
    """a family is built with its own pipelines

    validation.py, validate_config: batch_prefill takes qr_async, fwd_appendkv appendkv, fwd_pagedkv qr_pagedkv,
    fwd_splitkv qr or qr_nwarp_sshuffle.

    Contradicted: CK's codegen of mid-2025 lists split-KV kernels with qr_async.
    """
    supported = limits().family_pipelines.get(family, (pipeline,))
    return f"pipeline {pipeline}; {family} takes {' or '.join(supported)}" if pipeline not in supported else ""


@error("paged_kv", "family")
def family_reads_paged_kv(family: str, paged_kv: bool) -> str:
    """batch prefill and paged-KV read K and V from pages

    validation.py, validate_config, rules of batch_prefill and fwd_pagedkv.

    Contradicted: CK's codegen of mid-2025 lists paged-KV kernels that read K and V without pages.
    """
    return f"{family} without paged_kv" if family in ("batch_prefill", "fwd_pagedkv") and not paged_kv else ""


@error("page_size")
def batch_prefill_page_size_is_served(family: str, page_size: int) -> str:
    """a token's page is found by shifts, so a page holds a power of two of tokens; our own kernels take multiples of 16

    validation.py, validate_config, rules of batch_prefill, which have powers of two alone.
    """
    shifts = page_size > 0 and page_size & (page_size - 1) == 0
    wrong = family == "batch_prefill" and not shifts and not takes_pages(ANY_PAGE, page_size)
    return f"page_size {page_size}" if wrong else ""


@error("mode", "family")
def family_has_its_mode(family: str, mode: str) -> str:
    """batch prefill is built for group mode, append-KV for batch mode

    validation.py, validate_config, rules of batch_prefill and fwd_appendkv. fwd_splitkv_combine has both modes, and
    there is no third: reading a configuration sees to that.

    Contradicted: CK's codegen of 2025 lists batch prefill kernels for batch mode.
    """
    needed = {"batch_prefill": "group", "fwd_appendkv": "batch"}.get(family, mode)
    return f"{family} in {mode} mode; it has {needed} mode only" if mode != needed else ""


@error("tile[3]")
def combine_has_its_bn1(family: str, tile: Sequence[int]) -> str:
    """split-KV combine works on columns of V in blocks of 32

    validation.py, validate_config, rules of fwd_splitkv_combine; fmha_arch_specs.json, splitkv_combine.combine_bn1.
    """
    needed = limits().combine_bn1
    wrong = family == "fwd_splitkv_combine" and len(tile) > 3 and tile[3] != needed
    return f"bn1 {tile[3]}; {family} has {needed}" if wrong else ""


@error("hdim_v", "tile[3]")
def combine_bn1_divides_hdim_v(family: str, hdim_v: int, tile: Sequence[int]) -> str:
    """split-KV combine covers hdim_v with whole blocks of bn1

    validation.py, validate_config, rules of fwd_splitkv_combine.
    """
    if family != "fwd_splitkv_combine" or len(tile) <= 3:
        return ""
    bn1 = tile[3]
    wrong = bn1 == 0 or hdim_v < bn1 or hdim_v % bn1 != 0
    return f"hdim_v {hdim_v} is not a multiple of bn1 {bn1}" if wrong else ""

"""Named reasons why the matrix has no kernel for a combination of axis values.

The parameters of a rule are fields of a key (ckpm.matrix.rule). Its name states the requirement; it returns True for a
kernel that breaks the requirement. A dialect's table lists its rules. The source is the file and function of upstream's
codegen that the rule mirrors; for a rule of this project's own kernels it begins with "Ours" and has the reason. V3 is
the pipeline qr_async_trload_v3, V2 every other one (keys.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from ckpm.matrix.keys import ANY_PAGE, FP8_KV_DTYPES, MIXED_DTYPES, Tile, has_large_head, is_split, is_v3
from ckpm.matrix.rule import Rule, rules_of


def group_mode_pads_both_seqlens(mode: str, pad: str) -> bool:
    """group mode needs seqlen_q and seqlen_k padding: the length of the next sequence is unknown

    codegen/ops, get_fwd_blobs of fmha_fwd.py, fmha_pagedkv_prefill.py and fmha_batch_prefill.py; fmha_fwd_splitkv.py,
    get_fwd_splitkv_blobs: spad and skpad must be set in group mode.
    """
    return mode == "group" and not pad.startswith("pssk")


def logits_soft_cap_without_bias(logits: bool, bias: str) -> bool:
    """a logits soft cap is only built without bias

    codegen/ops, get_fwd_blobs of fmha_fwd.py, fmha_pagedkv_prefill.py and fmha_batch_prefill.py; fmha_fwd_splitkv.py,
    get_fwd_splitkv_blobs.
    """
    return logits and bias != "no"


def group_mode_only(mode: str) -> bool:
    """the batch-prefill pipeline problem asserts group mode

    static_assert in BlockFmhaBatchPrefillPipelineProblem; codegen skips every other mode.
    """
    return mode != "group"


def sink_needs_mask(sink: bool, mask: str) -> bool:
    """a sink without a mask can't be dispatched

    codegen/ops/fmha_batch_prefill.py of 2026: sink tokens only extend a window.
    """
    return sink and mask == "no"


def fp8_needs_qscale(dtype: str, qscale: str) -> bool:
    """fp8 kernels are built with per-tensor or KV block scales, never without

    codegen/ops/fmha_batch_prefill.py, get_pipelines.
    """
    return dtype in FP8_KV_DTYPES and qscale == "no"


def qscale_needs_fp8(dtype: str, qscale: str) -> bool:
    """scales only exist for fp8

    codegen/ops/fmha_batch_prefill.py, get_pipelines.
    """
    return dtype not in FP8_KV_DTYPES and qscale != "no"


def fp8_is_inference_only(dtype: str, bias: str, lse: bool, dropout: bool) -> bool:
    """fp8 kernels serve inference only: no bias, no LSE, no dropout

    codegen/ops/fmha_batch_prefill.py, get_pipelines.
    """
    return dtype == "fp8bf16" and (bias != "no" or lse or dropout)


def fp8_of_v2_is_inference_only(pipeline: str, dtype: str, bias: str, lse: bool, dropout: bool) -> bool:
    """fp8 kernels of V2 serve inference only: no bias, no LSE, no dropout

    codegen/ops/fmha_batch_prefill.py, get_pipelines. V3 has LSE beside them: kernels/include_prefill/ckpm_prefill_v3.
    """
    return not is_v3(pipeline) and fp8_is_inference_only(dtype, bias, lse, dropout)


def fp8_kv_is_inference_only(dtype: str, bias: str, dropout: bool) -> bool:
    """fp8 K and V beside a Q of 16 bits are a cache's, which is for inference: no bias, no dropout

    Ours: codegen has no such dtype. CK issue 3744 and vLLM's unified backend need neither; LSE merges chunks.
    """
    return dtype in MIXED_DTYPES and (bias != "no" or dropout)


def fp8_kv_has_one_load_for_pages_of_one_token(dtype: str, page_size: int, load: str) -> bool:
    """dispatch takes 64-bit loads for pages of one token: a Q of 16 bits with fp8 K and V has no other kernel for them

    Ours: kernels/include_prefill/ckpm_prefill/load_mode.hpp. Other dtypes have both loads, as codegen has them.
    """
    return dtype in MIXED_DTYPES and page_size == 1 and load != "gload"


def fp8_has_no_sink(dtype: str, sink: bool) -> bool:
    """until April 2026, fp8 kernels were built without sink

    Upstream's published list of April 2026 (gfx950, receipt 0); the codegen of that date is not at hand.
    """
    return dtype == "fp8bf16" and sink


def page_size_1_is_linear(page_size: int, kv_layout: str) -> bool:
    """the vectorized KV layout interleaves tokens of one page, so page size 1 has none

    codegen/ops/fmha_batch_prefill.py, get_fwd_blobs.
    """
    return page_size == 1 and kv_layout != "linear"


def kv_blockscale_within_page(qscale: str, page_size: int, tile: Tile) -> bool:
    """with KV block scales, one loop step of kN0 tokens must stay inside one page (page_size >= kN0)

    codegen/ops/fmha_batch_prefill.py, get_fwd_blobs.
    """
    return qscale == "kv_blockscale" and page_size < tile.bn0


def gload_only_for_small_pages(load: str, page_size: int, tile: Tile) -> bool:
    """64-bit loads are not needed when page_size >= kN0: the SRD is rebased for every page

    codegen/ops/fmha_batch_prefill.py, get_fwd_blobs; rocm-libraries pull request 6653.
    """
    return load == "gload" and page_size >= tile.bn0


def any_page_has_64_bit_loads(page_size: int, load: str) -> bool:
    """a kernel for pages of any multiple of 16 tokens has 64-bit loads alone, which reach every pool

    Ours, of no codegen: kernels/include_prefill/ckpm_prefill/paged_cache.hpp. A tile may lie in several pages, so that
    pages have no descriptors.
    """
    return page_size == ANY_PAGE and load != "gload"


def any_page_is_inference_only(page_size: int, bias: str, dropout: bool) -> bool:
    """kernels for pages of any multiple of 16 tokens have no elementwise bias and no dropout; ALiBi they have

    Ours, of no codegen: vLLM's rocm_aiter_unified_attn.py, which has such pages, passes neither.
    """
    return page_size == ANY_PAGE and (bias == "bias" or dropout)


def beyond_upstreams_axes(pipeline: str, dtype: str, hdim_q: int, hdim_v: int, page_size: int) -> bool:
    """ckpm-extended has only dtypes, page sizes and head dims of V2 that dialect rocm-libraries-2026 lacks

    Ours: codegen/ops/fmha_batch_prefill.py of 2026 has them itself, and no kernel is to be in both dialects.
    """
    upstreams = (hdim_q, hdim_v) in ((128, 128), (256, 256)) and page_size in (1, 16, 1024)
    return upstreams and pipeline == "qr_async" and dtype not in MIXED_DTYPES


def split_takes_tiles_of_64_rows(pipeline: str, tile: Tile) -> bool:
    """kernels that split the keys are for few queries: their tiles have 64 rows

    Ours: kernels/include_prefill/ckpm_prefill/split.hpp; no upstream's codegen has such kernels.
    """
    return is_split(pipeline) and tile.bm0 != 64


def whole_keys_take_tiles_of_128_rows(pipeline: str, hdim_q: int, tile: Tile) -> bool:
    """at head dims 64, 192/128 and 256 tiles of 64 rows are for kernels that split the keys

    Ours, of no codegen: the other kernels of these head dims have 128 rows, as upstream's of head dim 256.
    """
    return pipeline == "qr_async" and hdim_q in (64, 192, 256) and tile.bm0 == 64


def split_reads_tokens_by_64_bits(pipeline: str, page_size: int, load: str) -> bool:
    """kernels that split the keys read pages of one token with 64-bit addresses, whatever the pool

    Ours: kernels/include_prefill/ckpm_prefill/load_mode.hpp; no upstream's codegen has such kernels.
    """
    return is_split(pipeline) and page_size == 1 and load == "bload"


def split_has_no_bias(pipeline: str, bias: str) -> bool:
    """kernels that split the keys have no bias: their rows are the queries of several heads

    Ours: kernels/include_prefill/ckpm_prefill/split.hpp; no upstream's codegen has such kernels.
    """
    return is_split(pipeline) and bias != "no"


def split_has_no_dropout(pipeline: str, dropout: bool) -> bool:
    """kernels that split the keys have no dropout: they serve inference

    Ours: kernels/include_prefill/ckpm_prefill/split.hpp; no upstream's codegen has such kernels.
    """
    return is_split(pipeline) and dropout


def large_heads_have_what_models_call(hdim_q: int, bias: str, dropout: bool, logits: bool, sink: bool) -> bool:
    """head dims 512 and 576/512 have no bias, ALiBi, dropout, soft cap or sink tokens, which their models don't call

    Ours, of no codegen: Gemma-4 (SGLang issue 38757) and DeepSeek's latent attention.
    """
    return has_large_head(hdim_q) and (bias != "no" or dropout or logits or sink)


def large_heads_read_linear_pages(hdim_q: int, kv_layout: str) -> bool:
    """head dims 512 and 576/512 read linear pages: 512 columns of vectorized V are more than a workgroup's 256 lanes

    Ours, of no codegen: kernels/include_prefill/ckpm_prefill/v_loader.hpp, where a lane loads one column of V.
    """
    return has_large_head(hdim_q) and kv_layout != "linear"


def large_heads_read_tokens_by_64_bits(hdim_q: int, page_size: int, load: str) -> bool:
    """head dims 512 and 576/512 read pages of one token with 64-bit addresses, as dispatch takes them for any pool

    Ours, of no codegen: kernels/include_prefill/ckpm_prefill/load_mode.hpp.
    """
    return has_large_head(hdim_q) and page_size == 1 and load == "bload"


def serving_takes_bf16_and_fp8(dtype: str) -> bool:
    """ckpm-serving has kernels of bf16, of fp8 and of fp8 K and V beside a bf16 Q, which its models run in

    Ours, of no codegen: gpt-oss, Llama-4, Qwen3.5, Gemma-4 and DeepSeek are published in bf16, fp8 or fp4.
    """
    return dtype not in ("bf16", "fp8bf16", "bf16kvfp8")


def serving_has_fp8_kv_beside_bf16_where_callers_mix(
    dtype: str, hdim_q: int, page_size: int, kv_table: str, mask: str, lse: bool, qscale: str
) -> bool:
    """ckpm-serving has fp8 K and V beside a bf16 Q under masks: vLLM's block tables, decode by tokens, fp8 latents

    Ours, of no codegen: vLLM's rocm_aiter_unified_attn.py has block tables and no LSE, SGLang's aiter_backend.py also
    lists of tokens, and latents with LSE. All have a scale for each tensor, and none is of head dims 192/128.
    """
    if dtype not in MIXED_DTYPES:
        return False
    by_tokens = kv_table == "sglang" and page_size == 1
    of_latents = hdim_q == 576 and by_tokens
    of_heads = hdim_q in (64, 128, 256, 512) and not lse and (by_tokens or kv_table == "vllm")
    return mask == "no" or qscale != "pertensor" or not (of_latents or of_heads)


def serving_has_no_bias_and_no_dropout(bias: str, dropout: bool) -> bool:
    """ckpm-serving has no kernels with bias, ALiBi or dropout, which no serving stack passes to paged prefill

    Ours, of no codegen: SGLang's aiter_backend.py, vLLM's rocm_aiter_fa.py.
    """
    return bias != "no" or dropout


def serving_has_the_callers_pages(
    dtype: str, hdim_q: int, hdim_v: int, page_size: int, kv_layout: str, kv_table: str, logits: bool, qscale: str
) -> bool:
    """ckpm-serving has the pages that a caller asks for, by table: SGLang's, FlashInfer's and vLLM's

    Ours, of no codegen: SGLang's 1-D tables have pages of one token, or of 64 in the vectorized layout, in fp8 at head
    dim 256 also in the linear one (aiter_backend.py). FlashInfer's have linear pages of 16 and 1024. vLLM's 2-D tables
    have both layouts: pages of 16 and 64 in v1/attention/backends/rocm_aiter_fa.py, any multiple of 16 in
    rocm_aiter_unified_attn.py. SGLang's 2-D tables have pages of one token, too, by default. Latent attention's
    192/128 has linear pages of 1 and 16, and none of one token in 2-D tables.
    """
    if hdim_q != hdim_v:
        return kv_layout != "linear" or page_size not in ((1, 16) if kv_table == "sglang" else (16,))
    if kv_table == "vllm":
        return (page_size, kv_layout) != (1, "linear") and page_size not in (16, 64, ANY_PAGE)
    if (page_size, kv_layout) == (64, "linear"):
        return (dtype, hdim_q, logits, qscale) != ("fp8bf16", 256, False, "pertensor")
    return (page_size, kv_layout) not in ((1, "linear"), (64, "vectorized"), (16, "linear"), (1024, "linear"))


def serving_has_no_sink_tokens(sink: bool) -> bool:
    """ckpm-serving has no kernels with sink tokens: callers pass sink logits, which every kernel takes

    Ours, of no codegen: SGLang's aiter_backend.py passes sink_ptr without sink_size.
    """
    return sink


def serving_has_the_models_soft_caps(hdim_q: int, logits: bool) -> bool:
    """ckpm-serving has soft caps at head dims 128 and 256, as the models that have them

    Ours, of no codegen: Gemma-2 (256, 128) and Grok (128) have soft caps.
    """
    return logits and hdim_q not in (128, 256)


def serving_has_v3_of_head_dim_256_without_soft_caps(pipeline: str, hdim_q: int, logits: bool) -> bool:
    """ckpm-serving has V3 of head dim 256 for Qwen3.5, which has no soft cap; V2 has soft caps there

    Ours, of no codegen: Gemma-2 has soft caps at head dim 256, and V2's kernels of fp8 take them.
    """
    return is_v3(pipeline) and hdim_q == 256 and logits


def serving_has_lse_where_callers_merge(
    hdim_q: int, hdim_v: int, page_size: int, kv_layout: str, kv_table: str, lse: bool
) -> bool:
    """ckpm-serving has LSE for vLLM and FlashInfer, which merge chunks by it, and for latent attention with a prefix

    Ours, of no codegen: SGLang's aiter_backend.py calls mha_batch_prefill_func without return_lse, unified_attention
    has none, and a prefix of latent attention is merged by LSE (SGLang issue 35522).
    """
    of_sglang = page_size == 1 or (kv_table == "sglang" and page_size == 64)
    return lse and of_sglang and hdim_q == hdim_v


def serving_has_no_mask_for_merged_chunks(mask: str, lse: bool, page_size: int, kv_table: str) -> bool:
    """ckpm-serving has kernels without a mask for chunks that callers merge by LSE, and for FlashInfer's pages

    Ours, of no codegen: SGLang's aiter_backend.py and vLLM's rocm_aiter_unified_attn.py are causal or have a window.
    FlashInfer's plan() has no mask by default.
    """
    of_flashinfer = kv_table == "sglang" and page_size in (16, 1024)
    return mask == "no" and not lse and not of_flashinfer


def serving_splits_masked_keys(pipeline: str, hdim_q: int, mask: str, logits: bool) -> bool:
    """ckpm-serving splits keys under a mask, without a soft cap, at other head dims than 192/128

    Ours, of no codegen: SGLang issue 30105 and vLLM's rocm_aiter_fa.py, causal or a window. Latent attention's few
    queries are absorbed (576/512).
    """
    return is_split(pipeline) and (mask == "no" or logits or hdim_q == 192)


def group_mode_pads_seqlen_q(mode: str, pad: str) -> bool:
    """group mode needs seqlen_q padding: the length of the next sequence is unknown

    codegen/ops/fmha_fwd_splitkv.py, get_fwd_splitkv_combine_blobs: spad must be set in group mode. fmha_bwd.py,
    get_bwd_blobs: so must spad1d, for dot_do_o and convert_dq.
    """
    return mode == "group" and pad not in ("ps", "psd", "psdv")


def nwarp_pipeline_for_several_n_waves(pipeline: str, tile: Tile) -> bool:
    """split-KV tiles with several waves along kN0 take qr_nwarp_sshuffle, which shuffles S between them; others take qr

    codegen/ops/fmha_fwd_splitkv.py of 2026, get_fwd_splitkv_blobs.
    """
    return (pipeline == "qr_nwarp_sshuffle") != (tile.rn0 != 1)


def d192x128_and_d160_are_inference_only(hdim_q: int, hdim_v: int, bias: str, dropout: bool) -> bool:
    """head dims 192x128 and 160 are for prefill of inference: no bias, no dropout

    codegen/ops/fmha_fwd.py, get_fwd_blobs; later CompatibilityRuleFactory.check_hdim.
    """
    return ((hdim_q, hdim_v) == (192, 128) or hdim_q == 160) and (bias != "no" or dropout)


def _restricts_tiles(arch_trait: str, dtype: str) -> bool:
    return arch_trait in ("gfx9", "gfx950") and dtype not in ("fp32", "mxfp8", "mxfp4")


def qr_and_qr_async_take_128_row_tiles(
    arch_trait: str, dtype: str, hdim_q: int, hdim_v: int, pipeline: str, tile: Tile
) -> bool:
    """on gfx9, qr and qr_async take tiles of 128 keys at head dims 128x128, and of 128 queries at all others below 512

    codegen/ops/fmha_fwd.py, get_fwd_blobs; later CompatibilityRuleFactoryGfx9.check_hdim_tile, which exempts fp32,
    mxfp8 and mxfp4. Head dim 512: rocm-libraries pull request 12011.
    """
    if not _restricts_tiles(arch_trait, dtype) or pipeline not in ("qr", "qr_async") or hdim_q >= 512:
        return False
    return tile.bn0 != 128 if (hdim_q, hdim_v) == (128, 128) else tile.bm0 != 128


def qr_takes_no_64_wide_slices_at_d128(
    arch_trait: str, dtype: str, hdim_q: int, hdim_v: int, pipeline: str, tile: Tile
) -> bool:
    """on gfx9 at head dims 128x128, only qr_async takes tiles whose first gemm unrolls kK0 = 64

    codegen/ops/fmha_fwd.py of 2026, CompatibilityRuleFactoryGfx9.check_hdim_tile, which exempts fp32, mxfp8 and mxfp4.
    """
    return _restricts_tiles(arch_trait, dtype) and pipeline == "qr" and hdim_q == hdim_v == 128 and tile.bk0 == 64


def trload_takes_narrow_tiles_at_d128(hdim_q: int, hdim_v: int, pipeline: str, tile: Tile) -> bool:
    """qr_async_trload leaves the tiles of 128 keys at head dims 128x128 to the other pipelines

    codegen/ops/fmha_fwd.py, get_fwd_blobs; later CompatibilityRuleFactoryGfx950.check_tile_pipeline.
    """
    return pipeline == "qr_async_trload" and (hdim_q, hdim_v) == (128, 128) and tile.bn0 == 128


def trload_pads_no_sequence_of_batches(mode: str, pipeline: str, pad: str) -> bool:
    """in batch mode, qr_async_trload has only kernels that pad neither sequence

    codegen/ops/fmha_fwd.py of rocm-libraries pull request 11519, check_trload_seq_padding.
    """
    return mode == "batch" and pipeline == "qr_async_trload" and pad.startswith("ps")


def v3_has_its_own_tiles(arch_trait: str, pipeline: str, tile: Tile) -> bool:
    """on gfx950, tiles of 256 queries and 8 waves are for qr_async_trload_v3, which takes no other

    codegen/ops/fmha_fwd.py of 2026, CompatibilityRuleFactoryGfx950.check_tile_pipeline.
    """
    waves = tile.rm0 * tile.rn0 * tile.rk0, tile.rm1 * tile.rn1 * tile.rk1
    v3_tile = tile.bm0 == 256 and waves == (8, 8)
    return arch_trait == "gfx950" and v3_tile != is_v3(pipeline)


def v3_takes_fp8(pipeline: str, dtype: str) -> bool:
    """V3 batch prefill is for fp8; fp16 and bf16 are V2's

    Pull request 6054, codegen/ops/fmha_batch_prefill.py: the tile and the pipeline of V3 are listed for fp8bf16 alone.
    """
    return is_v3(pipeline) and dtype != "fp8bf16"


def v3_takes_head_dim_128(pipeline: str, hdim_q: int, hdim_v: int) -> bool:
    """V3 batch prefill is for head dim 128: at 256, twice the accumulators of 256 rows; larger ones are V2's

    Pull request 6054, codegen/ops/fmha_batch_prefill.py: V3's tile and pipeline are listed for head dim 128 alone.
    """
    return is_v3(pipeline) and (hdim_q, hdim_v) != (128, 128)


def v3_takes_linear_layout(pipeline: str, kv_layout: str) -> bool:
    """V3 batch prefill reads linear pages; V of the vectorized layout would be loaded below a dword: that is V2's

    Pull request 6054, "VECTORIZED falls back to V2 via trait matching"; codegen/ops/fmha_batch_prefill.py of it.
    """
    return is_v3(pipeline) and kv_layout != "linear"


def v3_has_no_bias(pipeline: str, bias: str) -> bool:
    """V3 batch prefill adds no bias and no ALiBi; those are V2's, in fp16 and bf16

    Pull request 6054, codegen/ops/fmha_batch_prefill.py, pipelines of gfx950.
    """
    return is_v3(pipeline) and bias != "no"


def v3_has_no_lse(pipeline: str, lse: bool) -> bool:
    """V3 of pull request 6054 stores no LSE: V2 does, in fp16 and bf16

    Pull request 6054, codegen/ops/fmha_batch_prefill.py, pipelines of gfx950.
    """
    return is_v3(pipeline) and lse


def v3_has_no_dropout(pipeline: str, dropout: bool) -> bool:
    """V3 batch prefill is for inference, without dropout: that is V2's, in fp16 and bf16

    Pull request 6054, codegen/ops/fmha_batch_prefill.py, pipelines of gfx950.
    """
    return is_v3(pipeline) and dropout


def v3_has_no_sink(pipeline: str, sink: bool) -> bool:
    """V3 batch prefill has no sink tokens: those are V2's

    Pull request 6054, codegen/ops/fmha_batch_prefill.py, pipelines of gfx950.
    """
    return is_v3(pipeline) and sink


def v3_takes_pages_up_to_1024(pipeline: str, page_size: int) -> bool:
    """V3 has pages of 1, 16, 64 and 1024 tokens; V2 has other sizes, too

    Ours: the codegen of pull request 6054 has 1, 16 and 1024.
    """
    return is_v3(pipeline) and page_size not in (1, 16, 64, 1024)


def v3_has_one_load_for_each_page_size(pipeline: str, page_size: int, load: str) -> bool:
    """V3 gives each page of 8 tokens or more a descriptor of its own; pages of one token take 64-bit loads

    Ours: kernels/include_prefill/ckpm_prefill_v3/page_stream.hpp; neither form limits the pool. The codegen of pull
    request 6054 names no load for V3 either.
    """
    return is_v3(pipeline) and (load == "gload") != (page_size == 1)


def v3_takes_head_dim_256_in_fp8(pipeline: str, dtype: str, hdim_q: int) -> bool:
    """V3 has head dim 256 in fp8: in 16 bits two tiles of K and V take 128 KB of LDS, and Q of 256 rows 128 KB more

    Ours, of no codegen: kernels/include_prefill/ckpm_prefill_v3/pipeline.hpp. gfx950 has 160 KB, and O takes half of a
    lane's 256 registers.
    """
    return is_v3(pipeline) and hdim_q == 256 and dtype != "fp8bf16"


def v3_beyond_pull_request_6054(
    pipeline: str, dtype: str, hdim_q: int, kv_layout: str, page_size: int, lse: bool, mask: str
) -> bool:
    """V3's kernels of pull request 6054 (fp8, head dim 128, linear pages of 1, 16, 1024, no LSE) are prefill-v3's

    Ours: codegen/ops/fmha_batch_prefill.py of that pull request has them, and no kernel is to be in both dialects.
    """
    data = (dtype, hdim_q, kv_layout) == ("fp8bf16", 128, "linear") and page_size in (1, 16, 1024)
    return is_v3(pipeline) and data and not lse and mask != "generic"


def v3_has_no_window(pipeline: str, mask: str) -> bool:
    """V3 of pull request 6054 has no mask or a causal one; sliding windows are V2's

    Pull request 6054, "No mask / causal mask"; codegen/ops/fmha_batch_prefill.py of it.
    """
    return is_v3(pipeline) and mask not in ("no", "causal")


def fp32_minimal_set_has_simplified_masks(receipt: int, mask_impl: str) -> bool:
    """receipt 801 has kernels with simplified masks only

    codegen/ops/fmha_fwd.py, get_fwd_blobs; later get_product: F_mask is compared with "s_no".
    """
    return receipt == 801 and mask_impl != "simplified"


def dbias_needs_bias(bias: str, dbias: bool) -> bool:
    """only an elementwise bias has a gradient

    codegen/ops/fmha_bwd.py, get_bwd_blobs.
    """
    return dbias and bias != "bias"


def trload_on_gfx950_in_16_bits(arch_trait: str, dtype: str, trload: bool) -> bool:
    """transposing loads from LDS are instructions of gfx950; codegen uses them for fp16 and bf16

    codegen/ops/fmha_bwd.py, get_dq_dk_dv_tiles of each factory.
    """
    return trload and (arch_trait != "gfx950" or dtype == "fp32")


def trload_pads_both_head_dims_by_8(trload: bool, dpad: int, dvpad: int) -> bool:
    """with transposing loads, both head dims are padded to a multiple of 8 or neither is

    codegen/ops/fmha_bwd.py, get_bwd_blobs.
    """
    return trload and (dpad, dvpad) not in ((0, 0), (8, 8))


def hdim_q_padded_by_8_needs_hdim_v_too(trload: bool, dpad: int, dvpad: int) -> bool:
    """hdim_q isn't padded to a multiple of 8 unless hdim_v is; hdim_v alone may be padded

    codegen/ops/fmha_bwd.py, get_bwd_blobs: its comment rules out either being 8 alone, its test only hdim_q.
    """
    return not trload and dpad == 8 and dvpad != 8


def short_q_tiles_serve_unmasked_batches(mode: str, mask: str, tile: Tile) -> bool:
    """tiles for a short seqlen_q have kernels for batch mode without mask only

    codegen/ops/fmha_bwd.py, get_bwd_blobs.
    """
    return tile.max_seq_q != 0 and (mode == "group" or mask != "no")


def short_q_tiles_serve_unmasked_problems(mask: str, tile: Tile) -> bool:
    """tiles for a short seqlen_q have kernels without mask only

    codegen/ops/fmha_bwd.py of September 2026, get_bwd_blobs.
    """
    return tile.max_seq_q != 0 and mask != "no"


def deterministic_dq_is_split_by_kn0(deterministic: bool, tile: Tile) -> bool:
    """a deterministic dQ has an accumulator for each kN0 tokens of K, so kN0 is part of the kernel; else it is 0

    codegen/ops/fmha_bwd.py, convert_dq_bn0 of FmhaBwdApiTrait.
    """
    return deterministic != (tile.bn0 != 0)


def integrations_pad_both_head_dims_alike(receipt: int, dpad: int, dvpad: int) -> bool:
    """flash-attention's and PyTorch's receipts (2, 3, 4) have kernels that pad both head dims alike

    codegen/ops/fmha_bwd.py, get_bwd_blobs.
    """
    return receipt in (2, 3, 4) and dpad != dvpad


def fp32_pads_both_head_dims_alike(dtype: str, dpad: int, dvpad: int) -> bool:
    """fp32 kernels pad both head dims alike

    codegen/ops/fmha_bwd.py, get_bwd_blobs, receipts 800 and 801.
    """
    return dtype == "fp32" and dpad != dvpad


def fp32_has_receipts_of_its_own(receipt: int, dtype: str) -> bool:
    """fp32 is built by receipts 800 and 801, and nothing else is built by these

    codegen/ops/fmha_bwd.py, get_bwd_blobs.
    """
    return (dtype == "fp32") != (receipt in (800, 801))


RULES: Mapping[str, Rule] = rules_of(globals())

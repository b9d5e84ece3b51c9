// Batch prefill as rocm-libraries of 2026 offers it to host code, for the packaged CK of November
// 2025: requests, arguments, dispatch traits, and how arguments become a launch. It stands where
// CK's own example header of that name would.
#pragma once

#include "ck_tile/core.hpp"
#include "ck_tile/host/hip_check_error.hpp"
#include "ck_tile/host/kernel_launch.hpp"
#include "ck_tile/host/stream_config.hpp"
#include "ck_tile/ops/epilogue/default_2d_epilogue.hpp"
#include "ck_tile/ops/fmha/block/block_attention_bias_enum.hpp"
#include "ck_tile/ops/fmha/block/block_masking.hpp"
#include "ck_tile/ops/fmha/block/variants.hpp"
#include "ck_tile/ops/fmha/pipeline/block_fmha_pipeline_enum.hpp"
#include "ck_tile/ops/fmha/pipeline/tile_fmha_shape.hpp"
#include "ckpm_prefill/launch.hpp"
#include "ckpm_prefill/load_mode.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>

enum class mask_enum
{
    no_mask = 0,
    mask_top_left,
    mask_bottom_right,
    window_generic
};

enum class bias_enum
{
    no_bias          = 0,
    elementwise_bias = 1,
    alibi            = 2
};

enum class quant_scale_enum
{
    no_scale      = 0,
    pertensor     = 1,
    blockscale    = 2,
    kv_blockscale = 3,
    mx            = 4
};

struct FmhaFwdFp16
{};
struct FmhaFwdBf16
{};
struct FmhaFwdFp8Bf16
{};
struct FmhaFwdFp16KvFp8
{};
struct FmhaFwdBf16KvFp8
{};

namespace ckpm::prefill {

// Q and P have one type, and so K and V unless the cache has another; sums, scores and LSE are in
// float32.
template <typename Q, typename Bias, typename Out, typename Cache = Q>
struct Types
{
    using QDataType             = Q;
    using KDataType             = Cache;
    using VDataType             = Cache;
    using PDataType             = Q;
    using BiasDataType          = Bias;
    using ODataType             = Out;
    using RandValOutputDataType = uint8_t;
    using LSEDataType           = float;
    using SaccDataType          = float;
    using SMPLComputeDataType   = float;
    using OaccDataType          = float;
};

} // namespace ckpm::prefill

template <typename DataType>
struct FmhaFwdTypeConfig;
template <>
struct FmhaFwdTypeConfig<FmhaFwdFp16>
    : ckpm::prefill::Types<ck_tile::half_t, ck_tile::half_t, ck_tile::half_t>
{};
template <>
struct FmhaFwdTypeConfig<FmhaFwdBf16>
    : ckpm::prefill::Types<ck_tile::bf16_t, ck_tile::bf16_t, ck_tile::bf16_t>
{};
template <>
struct FmhaFwdTypeConfig<FmhaFwdFp8Bf16>
    : ckpm::prefill::Types<ck_tile::fp8_t, float, ck_tile::bf16_t>
{};
template <>
struct FmhaFwdTypeConfig<FmhaFwdFp16KvFp8>
    : ckpm::prefill::Types<ck_tile::half_t, ck_tile::half_t, ck_tile::half_t, ck_tile::fp8_t>
{};
template <>
struct FmhaFwdTypeConfig<FmhaFwdBf16KvFp8>
    : ckpm::prefill::Types<ck_tile::bf16_t, ck_tile::bf16_t, ck_tile::bf16_t, ck_tile::fp8_t>
{};

struct FmhaMasks
{
    using NoMask      = ck_tile::GenericAttentionMask<false>;
    using CausalMask  = ck_tile::GenericAttentionMask<true, false>;
    using GenericMask = ck_tile::GenericAttentionMask<true, true>;
};

// Pointers are device addresses, strides count elements. `batch_stride_k` and `batch_stride_v` lead
// from page to page; of Q and O they are unused, as batch prefill has group mode only.
struct fmha_batch_prefill_args
{
    const void* q_ptr;
    const void* k_ptr;
    const void* v_ptr;
    const void* bias_ptr; // elementwise bias or ALiBi slopes
    const void* q_descale_ptr;
    const void* k_descale_ptr;
    const void* v_descale_ptr;
    void* rand_val_ptr;
    void* lse_ptr;
    void* o_ptr;
    const void* seqstart_q_ptr;
    const void* sink_ptr; // a logit for each head, or null

    ck_tile::index_t seqlen_q, seqlen_k, batch, max_seqlen_q;
    ck_tile::index_t hdim_q, hdim_v, nhead_q, nhead_k;
    int32_t num_total_pages;
    ck_tile::index_t page_block_size;
    ck_tile::BlockAttentionKVCacheMemoryLayoutEnum kv_memory_layout;
    ck_tile::BlockAttentionKVCacheLookupTableEnum kv_lookup_table;
    void* kv_indptr;         // 1-D table: where each sequence's pages begin
    void* kv_page_indices;   // 1-D table: the pages; 2-D table: its rows
    void* kv_last_page_lens; // 1-D table
    void* seqlen_k_ptr;      // 2-D table
    ck_tile::index_t batch_stride_block_table;

    float scale_s, scale_p, scale_o;
    float logits_soft_cap;

    ck_tile::index_t stride_q, stride_k, stride_v, stride_bias, stride_randval, stride_o;
    ck_tile::index_t nhead_stride_q, nhead_stride_k, nhead_stride_v, nhead_stride_bias;
    ck_tile::index_t nhead_stride_randval, nhead_stride_lse, nhead_stride_o;
    ck_tile::index_t batch_stride_q, batch_stride_k, batch_stride_v, batch_stride_bias;
    ck_tile::index_t batch_stride_randval, batch_stride_lse, batch_stride_o;

    ck_tile::index_t window_size_left, window_size_right, sink_size, mask_type;
    float p_drop;
    bool s_randval;
    std::variant<std::pair<uint64_t, uint64_t>, std::pair<const void*, const void*>>
        drop_seed_offset;
    ck_tile::index_t nblock_stride_kv_block_descale = 0;
    ck_tile::index_t nhead_stride_kv_block_descale  = 0;
    // Above 0: so many keys of a sequence go to one workgroup, and `seqlen_k` is the longest
    // sequence's. The workspaces have a row for each split, query and head.
    ck_tile::index_t split_keys = 0;
    void* o_acc_ptr             = nullptr;
    void* lse_acc_ptr           = nullptr;
};

namespace ckpm::prefill {

inline void set_dropout(ck_tile::FmhaBatchPrefillKargs& kargs, const fmha_batch_prefill_args& args)
{
    const float kept = 1.0f - args.p_drop;
    kargs.rp_undrop  = 1.0f / kept;
    kargs.keep_up_to =
        static_cast<uint8_t>(std::floor(kept * float{std::numeric_limits<uint8_t>::max()}));
    kargs.store_randval = args.s_randval;
    if(const auto* numbers = std::get_if<std::pair<uint64_t, uint64_t>>(&args.drop_seed_offset))
    {
        kargs.drop_seed       = numbers->first;
        kargs.drop_offset     = numbers->second;
        kargs.drop_by_pointer = false;
        return;
    }
    const auto& places    = std::get<std::pair<const void*, const void*>>(args.drop_seed_offset);
    kargs.drop_seed       = reinterpret_cast<uint64_t>(places.first);
    kargs.drop_offset     = reinterpret_cast<uint64_t>(places.second);
    kargs.drop_by_pointer = true;
}

} // namespace ckpm::prefill

template <typename Kernel>
auto fmha_batch_prefill_create_kargs_and_grids(fmha_batch_prefill_args args)
{
    ck_tile::FmhaBatchPrefillKargs kargs{};
    kargs.q_ptr                          = args.q_ptr;
    kargs.k_ptr                          = args.k_ptr;
    kargs.v_ptr                          = args.v_ptr;
    kargs.bias_ptr                       = args.bias_ptr;
    kargs.q_descale_ptr                  = args.q_descale_ptr;
    kargs.k_descale_ptr                  = args.k_descale_ptr;
    kargs.v_descale_ptr                  = args.v_descale_ptr;
    kargs.sink_ptr                       = args.sink_ptr;
    kargs.rand_val_ptr                   = args.rand_val_ptr;
    kargs.lse_ptr                        = args.lse_ptr;
    kargs.o_ptr                          = args.o_ptr;
    kargs.seqstart_q_ptr                 = static_cast<const int32_t*>(args.seqstart_q_ptr);
    kargs.kv_indptr                      = static_cast<const int32_t*>(args.kv_indptr);
    kargs.kv_page_indices                = static_cast<const int32_t*>(args.kv_page_indices);
    kargs.kv_last_page_lens              = static_cast<const int32_t*>(args.kv_last_page_lens);
    kargs.seqlen_k_ptr                   = static_cast<const int32_t*>(args.seqlen_k_ptr);
    kargs.hdim_q                         = args.hdim_q;
    kargs.hdim_v                         = args.hdim_v;
    kargs.nhead_q                        = args.nhead_q;
    kargs.nhead_ratio_qk                 = args.nhead_q / args.nhead_k;
    kargs.num_total_pages                = args.num_total_pages;
    kargs.batch_stride_block_table       = args.batch_stride_block_table;
    kargs.stride_q                       = args.stride_q;
    kargs.stride_k                       = args.stride_k;
    kargs.stride_v                       = args.stride_v;
    kargs.stride_bias                    = args.stride_bias;
    kargs.stride_randval                 = args.stride_randval;
    kargs.stride_o                       = args.stride_o;
    kargs.nhead_stride_q                 = args.nhead_stride_q;
    kargs.nhead_stride_k                 = args.nhead_stride_k;
    kargs.nhead_stride_v                 = args.nhead_stride_v;
    kargs.nhead_stride_bias              = args.nhead_stride_bias;
    kargs.nhead_stride_randval           = args.nhead_stride_randval;
    kargs.nhead_stride_lse               = args.nhead_stride_lse;
    kargs.nhead_stride_o                 = args.nhead_stride_o;
    kargs.batch_stride_k                 = args.batch_stride_k;
    kargs.batch_stride_v                 = args.batch_stride_v;
    kargs.nblock_stride_kv_block_descale = args.nblock_stride_kv_block_descale;
    kargs.nhead_stride_kv_block_descale  = args.nhead_stride_kv_block_descale;
    kargs.window_size_left               = args.window_size_left;
    kargs.window_size_right              = args.window_size_right;
    kargs.mask_type                      = args.mask_type;
    kargs.sink_size                      = args.sink_size;
    kargs.scale_s                        = args.scale_s;
    kargs.logits_soft_cap                = args.logits_soft_cap;
    kargs.page_tokens                    = ck_tile::mdiv(args.page_block_size);
    ckpm::prefill::set_dropout(kargs, args);
    return std::make_pair(kargs, Kernel::GridSize(args.batch, args.nhead_q, args.max_seqlen_q));
}

// By its trait a request's arm of the dispatch finds a kernel's definition.
template <ck_tile::index_t HDim,
          typename DataType,
          bool IsGroupMode,
          ck_tile::index_t M0,
          ck_tile::index_t N0,
          ck_tile::index_t K0,
          ck_tile::index_t N1,
          ck_tile::index_t K1,
          ck_tile::index_t K0Max,
          bool VRowMajor,
          ck_tile::BlockFmhaPipelineEnum Pipeline,
          bool HasLogitsSoftCap,
          typename Mask,
          ck_tile::BlockAttentionBiasEnum Bias,
          bool StoreLse,
          bool HasDropout,
          ck_tile::BlockAttentionQuantScaleEnum QScale,
          bool PadS,
          bool PadSK,
          bool PadD,
          bool PadDv,
          bool UseTrLoad,
          bool SkipMinSeqlenQ,
          bool HasSink,
          ck_tile::index_t PageSize,
          ck_tile::BlockAttentionKVCacheMemoryLayoutEnum Layout,
          ck_tile::BlockAttentionKVCacheLookupTableEnum Table,
          ck_tile::BlockAttentionKVCacheLoadModeEnum Load>
struct fmha_fwd_batch_prefill_traits_
{};

// A request.
struct fmha_batch_prefill_traits
{
    int hdim_q, hdim_v;
    std::string data_type;
    bool is_group_mode, is_v_rowmajor, has_logits_soft_cap;
    mask_enum mask_type;
    bias_enum bias_type;
    bool has_lse, has_dropout;
    quant_scale_enum qscale_type;
    bool has_sink = false;
    ck_tile::BlockAttentionKVCacheMemoryLayoutEnum kv_memory_layout =
        ck_tile::BlockAttentionKVCacheMemoryLayoutEnum::VECTORIZED_LAYOUT;
    ck_tile::BlockAttentionKVCacheLookupTableEnum kv_lookup_table =
        ck_tile::BlockAttentionKVCacheLookupTableEnum::SGLANG_PAGE_TABLE_1D;
    int page_size = 1;
};

template <typename Traits_>
float fmha_batch_prefill_(const ck_tile::stream_config&, fmha_batch_prefill_args);

float fmha_batch_prefill(fmha_batch_prefill_traits,
                         fmha_batch_prefill_args,
                         const ck_tile::stream_config&);

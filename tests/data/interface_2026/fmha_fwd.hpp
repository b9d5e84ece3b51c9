// What CK's example header fmha_fwd.hpp of 2026 gives to batch prefill: requests, arguments, type
// configurations. The other forward families are in forward.hpp.
//
// INTERFACE_2026_FIVE chooses the older form of fmha_batch_prefill_select_kv_load_mode, with five
// parameters. INTERFACE_2026_STUBS defines fmha_batch_prefill_ for every dispatch trait: a dispatch
// can then be run without units.
#pragma once

#include "ck_tile/core.hpp"
#include "ck_tile/host/device_prop.hpp"
#include "ck_tile/launch.hpp"
#include "ck_tile/ops/fmha.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
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

// Qkv: element type of Q, K, V and P; the others are named.
template <typename Qkv, typename Bias, typename Out>
struct InterfaceTypes
{
    using QDataType             = Qkv;
    using KDataType             = Qkv;
    using VDataType             = Qkv;
    using PDataType             = Qkv;
    using BiasDataType          = Bias;
    using ODataType             = Out;
    using RandValOutputDataType = uint8_t;
    using LSEDataType           = float;
    using SaccDataType          = float;
    using SMPLComputeDataType   = float;
    using OaccDataType          = float;
};

template <typename Config>
struct FmhaFwdTypeConfig;
template <>
struct FmhaFwdTypeConfig<FmhaFwdFp16>
    : InterfaceTypes<ck_tile::half_t, ck_tile::half_t, ck_tile::half_t>
{};
template <>
struct FmhaFwdTypeConfig<FmhaFwdBf16>
    : InterfaceTypes<ck_tile::bf16_t, ck_tile::bf16_t, ck_tile::bf16_t>
{};
template <>
struct FmhaFwdTypeConfig<FmhaFwdFp8Bf16> : InterfaceTypes<ck_tile::fp8_t, float, ck_tile::bf16_t>
{};

struct FmhaMasks
{
    using NoMask      = ck_tile::GenericAttentionMask<false>;
    using CausalMask  = ck_tile::GenericAttentionMask<true, false>;
    using GenericMask = ck_tile::GenericAttentionMask<true, true>;
};

// Fields of the argument struct in order, without the last three, which are not plain numbers or
// have a default.
#define INTERFACE_2026_ARGS(X)                                          \
    X(const void*, q_ptr)                                               \
    X(const void*, k_ptr)                                               \
    X(const void*, v_ptr)                                               \
    X(const void*, bias_ptr)                                            \
    X(const void*, q_descale_ptr)                                       \
    X(const void*, k_descale_ptr)                                       \
    X(const void*, v_descale_ptr)                                       \
    X(void*, rand_val_ptr)                                              \
    X(void*, lse_ptr)                                                   \
    X(void*, o_ptr)                                                     \
    X(const void*, seqstart_q_ptr)                                      \
    X(const void*, sink_ptr)                                            \
    X(ck_tile::index_t, seqlen_q)                                       \
    X(ck_tile::index_t, seqlen_k)                                       \
    X(ck_tile::index_t, batch)                                          \
    X(ck_tile::index_t, max_seqlen_q)                                   \
    X(ck_tile::index_t, hdim_q)                                         \
    X(ck_tile::index_t, hdim_v)                                         \
    X(ck_tile::index_t, nhead_q)                                        \
    X(ck_tile::index_t, nhead_k)                                        \
    X(int32_t, num_total_pages)                                         \
    X(ck_tile::index_t, page_block_size)                                \
    X(ck_tile::BlockAttentionKVCacheMemoryLayoutEnum, kv_memory_layout) \
    X(ck_tile::BlockAttentionKVCacheLookupTableEnum, kv_lookup_table)   \
    X(void*, kv_indptr)                                                 \
    X(void*, kv_page_indices)                                           \
    X(void*, kv_last_page_lens)                                         \
    X(void*, seqlen_k_ptr)                                              \
    X(ck_tile::index_t, batch_stride_block_table)                       \
    X(float, scale_s)                                                   \
    X(float, scale_p)                                                   \
    X(float, scale_o)                                                   \
    X(float, logits_soft_cap)                                           \
    X(ck_tile::index_t, stride_q)                                       \
    X(ck_tile::index_t, stride_k)                                       \
    X(ck_tile::index_t, stride_v)                                       \
    X(ck_tile::index_t, stride_bias)                                    \
    X(ck_tile::index_t, stride_randval)                                 \
    X(ck_tile::index_t, stride_o)                                       \
    X(ck_tile::index_t, nhead_stride_q)                                 \
    X(ck_tile::index_t, nhead_stride_k)                                 \
    X(ck_tile::index_t, nhead_stride_v)                                 \
    X(ck_tile::index_t, nhead_stride_bias)                              \
    X(ck_tile::index_t, nhead_stride_randval)                           \
    X(ck_tile::index_t, nhead_stride_lse)                               \
    X(ck_tile::index_t, nhead_stride_o)                                 \
    X(ck_tile::index_t, batch_stride_q)                                 \
    X(ck_tile::index_t, batch_stride_k)                                 \
    X(ck_tile::index_t, batch_stride_v)                                 \
    X(ck_tile::index_t, batch_stride_bias)                              \
    X(ck_tile::index_t, batch_stride_randval)                           \
    X(ck_tile::index_t, batch_stride_lse)                               \
    X(ck_tile::index_t, batch_stride_o)                                 \
    X(ck_tile::index_t, window_size_left)                               \
    X(ck_tile::index_t, window_size_right)                              \
    X(ck_tile::index_t, sink_size)                                      \
    X(ck_tile::index_t, mask_type)                                      \
    X(float, p_drop)                                                    \
    X(bool, s_randval)

struct fmha_batch_prefill_args
{
#define INTERFACE_2026_FIELD(type, name) type name;
    INTERFACE_2026_ARGS(INTERFACE_2026_FIELD)
#undef INTERFACE_2026_FIELD
    std::variant<std::pair<uint64_t, uint64_t>, std::pair<const void*, const void*>>
        drop_seed_offset;
    ck_tile::index_t nblock_stride_kv_block_descale = 0;
    ck_tile::index_t nhead_stride_kv_block_descale  = 0;
};

// What arrives at a kernel: here the arguments as they are.
struct InterfaceKargs
{
    fmha_batch_prefill_args args;

    void describe(ck_tile::Record& r) const
    {
#define INTERFACE_2026_LINE(type, name) r.line("args." #name, args.name);
        INTERFACE_2026_ARGS(INTERFACE_2026_LINE)
#undef INTERFACE_2026_LINE
        const auto* seed = std::get_if<std::pair<uint64_t, uint64_t>>(&args.drop_seed_offset);
        r.line("args.drop_seed", seed ? std::to_string(seed->first) : std::string("pointer"));
        r.line("args.drop_offset", seed ? std::to_string(seed->second) : std::string("pointer"));
        r.line("args.nblock_stride_kv_block_descale", args.nblock_stride_kv_block_descale);
        r.line("args.nhead_stride_kv_block_descale", args.nhead_stride_kv_block_descale);
    }
};

template <typename Kernel>
auto fmha_batch_prefill_create_kargs_and_grids(fmha_batch_prefill_args args)
{
    return std::make_pair(
        InterfaceKargs{args},
        Kernel::GridSize(args.batch, args.nhead_q, args.max_seqlen_q, args.hdim_v));
}

#ifdef INTERFACE_2026_FIVE
inline ck_tile::BlockAttentionKVCacheLoadModeEnum fmha_batch_prefill_select_kv_load_mode(
    ck_tile::index_t page_block_size,
    ck_tile::index_t kN0,
    ck_tile::index_t num_total_pages,
    ck_tile::index_t batch_stride_k,
    ck_tile::index_t element_bytes)
{
    using Mode         = ck_tile::BlockAttentionKVCacheLoadModeEnum;
    const int64_t pool = int64_t{num_total_pages} * batch_stride_k * element_bytes;
    const bool beyond  = page_block_size < kN0 && pool > std::numeric_limits<int32_t>::max();
    return beyond ? Mode::GLOBAL_LOAD_LDS : Mode::BUFFER_LOAD;
}
#else
inline ck_tile::BlockAttentionKVCacheLoadModeEnum fmha_batch_prefill_select_kv_load_mode(
    ck_tile::index_t page_block_size,
    ck_tile::index_t kN0,
    ck_tile::index_t num_total_pages,
    ck_tile::index_t batch_stride_k,
    ck_tile::index_t batch_stride_v,
    ck_tile::index_t element_bytes,
    const void* k_base_ptr,
    const void* v_base_ptr)
{
    using Mode        = ck_tile::BlockAttentionKVCacheLoadModeEnum;
    const auto beyond = [&](const void* base, ck_tile::index_t stride) {
        const uint64_t pool =
            uint64_t(num_total_pages) * uint64_t(stride) * uint64_t(element_bytes);
        return (reinterpret_cast<uint64_t>(base) & 0xFFFFFFFFu) + pool >
               uint64_t(std::numeric_limits<int32_t>::max());
    };
    if(page_block_size >= kN0)
        return Mode::BUFFER_LOAD;
    if(page_block_size == 1 || beyond(k_base_ptr, batch_stride_k) ||
       beyond(v_base_ptr, batch_stride_v))
        return Mode::GLOBAL_LOAD_LDS;
    return Mode::BUFFER_LOAD;
}
#endif

// The parameters of dispatch traits. INTERFACE_2026_OCCUPANCY adds what rocm-libraries pull request
// 11298 did; upstream's default of -1 would hide a missing argument.
#ifdef INTERFACE_2026_OCCUPANCY
#define INTERFACE_2026_LAST , ck_tile::index_t Occupancy
#else
#define INTERFACE_2026_LAST
#endif
#define INTERFACE_2026_FIRST                                                                \
    ck_tile::index_t HDim, typename DataType, bool IsGroupMode, ck_tile::index_t M0,        \
        ck_tile::index_t N0, ck_tile::index_t K0, ck_tile::index_t N1, ck_tile::index_t K1, \
        ck_tile::index_t K0Max, bool VRowMajor, ck_tile::BlockFmhaPipelineEnum Pipeline,    \
        bool HasLogitsSoftCap, typename Mask, ck_tile::BlockAttentionBiasEnum Bias, bool StoreLse
#define INTERFACE_2026_FEATURES                                                           \
    bool HasDropout, ck_tile::BlockAttentionQuantScaleEnum QScale, bool PadS, bool PadSK, \
        bool PadD, bool PadDv, bool UseTrLoad, bool SkipMinSeqlenQ, bool HasSink

// A dispatch trait: by it a request's arm and a kernel's definition find each other.
template <INTERFACE_2026_FIRST, INTERFACE_2026_FEATURES INTERFACE_2026_LAST>
struct fmha_fwd_traits_
{};

template <INTERFACE_2026_FIRST,
          INTERFACE_2026_FEATURES,
          ck_tile::index_t PageSize,
          ck_tile::BlockAttentionKVCacheMemoryLayoutEnum Layout,
          ck_tile::BlockAttentionKVCacheLookupTableEnum Table,
          ck_tile::BlockAttentionKVCacheLoadModeEnum Load INTERFACE_2026_LAST>
struct fmha_fwd_batch_prefill_traits_
{};

// A request.
struct fmha_fwd_traits
{
    int hdim_q, hdim_v;
    std::string data_type;
    bool is_group_mode, is_v_rowmajor, has_logits_soft_cap;
    mask_enum mask_type;
    bias_enum bias_type;
    bool has_lse, has_dropout;
    quant_scale_enum qscale_type;
    bool skip_min_seqlen_q = false;
    bool has_sink          = false;
};

struct fmha_batch_prefill_traits : fmha_fwd_traits
{
    ck_tile::BlockAttentionKVCacheMemoryLayoutEnum kv_memory_layout =
        ck_tile::BlockAttentionKVCacheMemoryLayoutEnum::VECTORIZED_LAYOUT;
    ck_tile::BlockAttentionKVCacheLookupTableEnum kv_lookup_table =
        ck_tile::BlockAttentionKVCacheLookupTableEnum::SGLANG_PAGE_TABLE_1D;
    int page_size = 1;
};

#include "forward.hpp"

#ifdef INTERFACE_2026_STUBS
// Notes which kernel of the dispatch's table has been called; defined in stubs.hip.
float interface_2026_stub(float (*called)(const ck_tile::stream_config&, fmha_batch_prefill_args));
template <typename Traits_, typename Arch = void>
float fmha_batch_prefill_(const ck_tile::stream_config&, fmha_batch_prefill_args)
{
    return interface_2026_stub(&fmha_batch_prefill_<Traits_, Arch>);
}
#else
template <typename Traits_, typename Arch = void>
float fmha_batch_prefill_(const ck_tile::stream_config&, fmha_batch_prefill_args);
#endif

float fmha_batch_prefill(fmha_batch_prefill_traits,
                         fmha_batch_prefill_args,
                         const ck_tile::stream_config&);

// The types from which a batch-prefill kernel is put together, in the parameter order of the newest
// CK.
#pragma once

#include "ck_tile/core.hpp"

namespace ck_tile {

enum class BlockAttentionBiasEnum
{
    NO_BIAS          = 0,
    ELEMENTWISE_BIAS = 1,
    ALIBI            = 2
};
enum class BlockAttentionQuantScaleEnum
{
    NO_SCALE      = 0,
    PERTENSOR     = 1,
    BLOCKSCALE    = 2,
    KV_BLOCKSCALE = 3,
    MX            = 4
};
enum class BlockAttentionKVCacheMemoryLayoutEnum
{
    VECTORIZED_LAYOUT = 0,
    LINEAR_LAYOUT     = 1
};
enum class BlockAttentionKVCacheLookupTableEnum
{
    VLLM_BLOCK_TABLE_2D  = 0,
    SGLANG_PAGE_TABLE_1D = 1
};
enum class BlockAttentionKVCacheLoadModeEnum
{
    BUFFER_LOAD     = 0,
    GLOBAL_LOAD_LDS = 1
};
enum class BlockFmhaPipelineEnum
{
    QRKSVS = 0,
    QRKSVS_ASYNC,
    QRKSVS_ASYNC_TRLOAD,
    QRKSVS_ASYNC_TRLOAD_V3
};

template <bool IsMasking>
struct SimplifiedGenericAttentionMask
{
    static constexpr const char* word = IsMasking ? "simplified" : "simplified none";
};

template <bool IsMasking, bool IsLocal = true>
struct GenericAttentionMask
{
    static constexpr const char* word = !IsMasking ? "none" : IsLocal ? "window" : "causal";
};

template <typename Block,
          typename Waves0,
          typename WarpTile0,
          typename Waves1,
          typename WarpTile1,
          bool VRowMajor>
struct TileFmhaShape
{
    static constexpr index_t kM0 = Block::at(0), kN0 = Block::at(1), kK0 = Block::at(2);
    static constexpr index_t kN1 = Block::at(3), kK1 = Block::at(4), kQKHeaddim = Block::at(5);
    static constexpr index_t NumWarps       = Waves0::product;
    static constexpr bool IsVLayoutRowMajor = VRowMajor;
    static_assert(Waves1::product == NumWarps && kQKHeaddim % kK0 == 0 && kN0 % kK1 == 0);
    static_assert(Waves0::at(0) * WarpTile0::at(0) <= kM0 && kK0 % WarpTile0::at(2) == 0);

    static void describe(Record& r)
    {
        r.line("tile", Block::text());
        r.line("waves0", Waves0::text());
        r.line("warp_tile0", WarpTile0::text());
        r.line("waves1", Waves1::text());
        r.line("warp_tile1", WarpTile1::text());
        r.line("v_rowmajor", VRowMajor);
    }
};

template <bool PadSeqLenQ,
          bool PadSeqLenK,
          bool PadHeadDimQ,
          bool PadHeadDimV,
          bool HasLogitsSoftCap,
          BlockAttentionBiasEnum Bias,
          bool HasBiasGrad,
          bool StoreLse,
          bool HasDropout,
          BlockAttentionQuantScaleEnum QScale,
          index_t BlockPerCu  = -1,
          bool SkipMinSeqlenQ = false,
          bool HasSink        = false,
          index_t PageSize    = 1,
          BlockAttentionKVCacheMemoryLayoutEnum Layout =
              BlockAttentionKVCacheMemoryLayoutEnum::VECTORIZED_LAYOUT,
          BlockAttentionKVCacheLookupTableEnum Table =
              BlockAttentionKVCacheLookupTableEnum::SGLANG_PAGE_TABLE_1D,
          BlockAttentionKVCacheLoadModeEnum Load = BlockAttentionKVCacheLoadModeEnum::BUFFER_LOAD>
struct TileFmhaBatchPrefillTraits
{
    static constexpr bool kPadSeqLenQ = PadSeqLenQ, kPadHeadDimV = PadHeadDimV,
                          kHasLogitsSoftCap = HasLogitsSoftCap;
    static constexpr index_t kBlockPerCu = BlockPerCu, kPageBlockSize = PageSize;
    static constexpr auto kKVMemoryLayout = Layout;
    static constexpr auto kKVLoadMode     = Load;
    static_assert(PageSize > 0 && (PageSize & (PageSize - 1)) == 0,
                  "page size must be a power of two");
    static_assert(PageSize != 1 || Layout == BlockAttentionKVCacheMemoryLayoutEnum::LINEAR_LAYOUT);

    static void describe(Record& r)
    {
        r.line("pads", sequence<PadSeqLenQ, PadSeqLenK, PadHeadDimQ, PadHeadDimV>::text());
        r.line("logits", HasLogitsSoftCap);
        r.line("bias", Bias);
        r.line("bias_grad", HasBiasGrad);
        r.line("lse", StoreLse);
        r.line("dropout", HasDropout);
        r.line("qscale", QScale);
        r.line("occupancy", BlockPerCu);
        r.line("skip_min_seqlen_q", SkipMinSeqlenQ);
        r.line("sink", HasSink);
        r.line("page_size", PageSize);
        r.line("kv_layout", Layout);
        r.line("kv_table", Table);
        r.line("load", Load);
    }
};

template <typename Q,
          typename K,
          typename V,
          typename Sacc,
          typename SmplCompute,
          typename Bias,
          typename RandVal,
          typename Lse,
          typename P,
          typename Oacc,
          typename O,
          typename Shape_,
          bool IsGroupMode,
          typename Variant,
          typename Mask,
          bool UseTrLoad,
          index_t PageSize,
          typename Traits_>
struct BlockFmhaBatchPrefillPipelineProblem
{
    using Shape                          = Shape_;
    using Traits                         = Traits_;
    static constexpr index_t kVectorSize = 16 / sizeof(K);
    static_assert(IsGroupMode, "batch prefill is in group mode");
    static_assert(Shape::IsVLayoutRowMajor, "V must be row-major");
    static_assert(PageSize == Traits::kPageBlockSize);
    static_assert(Variant::use_logits_soft_cap == Traits::kHasLogitsSoftCap);
    static_assert(Traits::kKVMemoryLayout == BlockAttentionKVCacheMemoryLayoutEnum::LINEAR_LAYOUT ||
                  PageSize % kVectorSize == 0);
    static_assert(Shape::kQKHeaddim % kVectorSize == 0 && Shape::kN1 % kVectorSize == 0);
    static_assert(Traits::kKVLoadMode == BlockAttentionKVCacheLoadModeEnum::BUFFER_LOAD ||
                  PageSize < Shape::kN0);

    static void describe(Record& r)
    {
        std::string types;
        for(const char* word : {type_word<Q>(),
                                type_word<K>(),
                                type_word<V>(),
                                type_word<Sacc>(),
                                type_word<SmplCompute>(),
                                type_word<Bias>(),
                                type_word<RandVal>(),
                                type_word<Lse>(),
                                type_word<P>(),
                                type_word<Oacc>(),
                                type_word<O>()})
            types += std::string(types.empty() ? "" : ",") + word;
        r.line("types", types);
        r.line("mask", Mask::word);
        r.line("group_mode", IsGroupMode);
        r.line("exp2", Variant::use_exp2);
        r.line("trload", UseTrLoad);
        Shape::describe(r);
        Traits::describe(r);
    }
};

template <typename Problem_, typename Policy = void>
struct BlockFmhaBatchPrefillPipelineQRKSVSAsync
{
    using Problem = Problem_;
    // -1: the pipeline's own choice
    static constexpr index_t kBlockPerCu =
        Problem::Traits::kBlockPerCu == -1 ? 2 : Problem::Traits::kBlockPerCu;
};

template <typename Acc, typename O, bool PadM, bool PadN>
struct Default2DEpilogueProblem
{
    static_assert(std::is_same_v<Acc, float>);
    static void describe(Record& r)
    {
        r.line("epilogue", std::string(type_word<O>()) + (PadM ? " m" : "") + (PadN ? " n" : ""));
    }
};

template <typename Problem_>
struct Default2DEpilogue
{
    using Problem = Problem_;
};

template <typename Pipeline, typename Epilogue>
struct FmhaBatchPrefillWithPagedKVCacheKernel
{
    using Shape                          = typename Pipeline::Problem::Shape;
    static constexpr index_t kBlockPerCu = Pipeline::kBlockPerCu;
    static_assert(kBlockPerCu > 0);

    static dim3 BlockSize() { return dim3(64 * Shape::NumWarps); }
    static dim3 GridSize(index_t batch, index_t nhead, index_t seqlen_q, index_t hdim_v)
    {
        const index_t tiles =
            (seqlen_q + Shape::kM0 - 1) / Shape::kM0 * ((hdim_v + Shape::kN1 - 1) / Shape::kN1);
        return dim3(nhead, tiles, batch);
    }
    static void describe(Record& r)
    {
        Pipeline::Problem::describe(r);
        Epilogue::Problem::describe(r);
    }
};

} // namespace ck_tile

#include "ck_tile/ops/backward.hpp"
#include "ck_tile/ops/forward.hpp"

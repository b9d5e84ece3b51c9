// What a batch-prefill kernel is made for: the names of 2026 over CK's tile shapes.
#pragma once

#include "ck_tile/core.hpp"
#include "ck_tile/ops/fmha/block/block_attention_bias_enum.hpp"
#include "ckpm_prefill/load_mode.hpp"
#include "ckpm_prefill/score_bounds.hpp"

#include <type_traits>

namespace ck_tile {

template <bool kPadSeqLenQ_,
          bool kPadSeqLenK_,
          bool kPadHeadDimQ_,
          bool kPadHeadDimV_,
          bool kHasLogitsSoftCap_,
          BlockAttentionBiasEnum BiasEnum_,
          bool kHasBiasGrad_,
          bool kStoreLSE_,
          bool kHasDropout_,
          BlockAttentionQuantScaleEnum QScaleEnum_,
          index_t kBlockPerCu_,
          bool kSkipMinSeqlenQ_,
          bool kHasSink_,
          index_t kPageBlockSize_,
          BlockAttentionKVCacheMemoryLayoutEnum kKVMemoryLayout_,
          BlockAttentionKVCacheLookupTableEnum kKVLookupTable_,
          BlockAttentionKVCacheLoadModeEnum kKVLoadMode_>
struct TileFmhaBatchPrefillTraits
{
    static_assert(kPadSeqLenQ_ && kPadSeqLenK_,
                  "batch prefill pads lengths: sequences of a group have any");
    static_assert(!kHasBiasGrad_ && !kSkipMinSeqlenQ_, "neither exists in batch prefill");

    static constexpr bool kPadsHeadDims     = kPadHeadDimQ_ && kPadHeadDimV_;
    static constexpr bool kHasLogitsSoftCap = kHasLogitsSoftCap_;
    static constexpr auto BiasEnum          = BiasEnum_;
    static constexpr bool kStoreLSE         = kStoreLSE_;
    static constexpr bool kHasDropout       = kHasDropout_;
    static constexpr auto QScaleEnum        = QScaleEnum_;
    static constexpr index_t kBlockPerCu    = kBlockPerCu_;
    static constexpr bool kHasSink          = kHasSink_;
    static constexpr index_t kPageBlockSize = kPageBlockSize_;
    static constexpr auto kKVMemoryLayout   = kKVMemoryLayout_;
    static constexpr auto kKVLookupTable    = kKVLookupTable_;
    static constexpr auto kKVLoadMode       = kKVLoadMode_;
};

template <typename QDataType_,
          typename KDataType_,
          typename VDataType_,
          typename SaccDataType_,
          typename SMPLComputeDataType_,
          typename BiasDataType_,
          typename RandValOutputDataType_,
          typename LSEDataType_,
          typename PDataType_,
          typename OaccDataType_,
          typename ODataType_,
          typename BlockFmhaShape_,
          bool kIsGroupMode_,
          typename AttentionVariant_,
          typename FmhaMask_,
          bool kUseTrLoad_,
          index_t kPageBlockSize_,
          typename Traits_>
struct BlockFmhaBatchPrefillPipelineProblem
{
    using QDataType             = QDataType_;
    using CacheDataType         = KDataType_; // of K and V in the cache
    using KDataType             = QDataType_; // as they are multiplied
    using VDataType             = QDataType_;
    using SaccDataType          = SaccDataType_;
    using SMPLComputeDataType   = SMPLComputeDataType_;
    using BiasDataType          = BiasDataType_;
    using RandValOutputDataType = RandValOutputDataType_;
    using LSEDataType           = LSEDataType_;
    using PDataType             = PDataType_;
    using OaccDataType          = OaccDataType_;
    using ODataType             = ODataType_;
    using BlockFmhaShape        = BlockFmhaShape_;
    using AttentionVariant      = AttentionVariant_;
    using FmhaMask              = FmhaMask_;
    using Traits                = Traits_;

    static_assert(kIsGroupMode_, "batch prefill has group mode only");
    static_assert(kPageBlockSize_ == Traits::kPageBlockSize, "one page size");
    static_assert(std::is_same_v<KDataType_, VDataType_>);
    static_assert(BlockFmhaShape::IsVLayoutRowMajor, "V is row-major in every layout of the cache");

    static constexpr index_t kNumGemm0Warps = BlockFmhaShape::NumGemm0Warps;
    static constexpr index_t kNumGemm1Warps = BlockFmhaShape::NumGemm1Warps;
    static constexpr index_t kBlockSize     = BlockFmhaShape::NumWarps * get_warp_size();
    static constexpr bool kHasDropout       = Traits::kHasDropout;
    static constexpr bool kUseTrLoad        = kUseTrLoad_;

    template <bool kHasMask, bool kHasSink>
    using ScoreMask = ckpm::prefill::ScoreBounds<kHasMask, kHasSink>;
};

// The same for a workgroup that takes some of the keys, and all heads of a KV head.
template <typename Problem_>
struct FmhaBatchPrefillSplitProblem : Problem_
{
    template <bool kHasMask, bool kHasSink>
    using ScoreMask = ckpm::prefill::SplitBounds<kHasMask, kHasSink>;
};

} // namespace ck_tile

// The types from which kernels of fwd, fwd_pagedkv and fwd_splitkv are put together, in the
// parameter order of CK of 2026. Included by the fmha.hpp beside it.
#pragma once

namespace ck_tile {

struct gfx9_t
{};
struct gfx950_t
{};

// Numbers of a template, as a test reads them: an enumerator is its value.
template <auto... Values>
struct Listed
{
    static std::string text() { return sequence<static_cast<index_t>(Values)...>::text(); }
};

#define INTERFACE_2026_PADS bool PadSeqLenQ, bool PadSeqLenK, bool PadHeadDimQ, bool PadHeadDimV
#define INTERFACE_2026_SCORES \
    bool HasLogitsSoftCap, BlockAttentionBiasEnum Bias, bool HasBiasGrad, bool StoreLse
#define INTERFACE_2026_LISTED \
    PadSeqLenQ, PadSeqLenK, PadHeadDimQ, PadHeadDimV, HasLogitsSoftCap, Bias, StoreLse

template <INTERFACE_2026_PADS,
          INTERFACE_2026_SCORES,
          bool HasDropout,
          BlockAttentionQuantScaleEnum QScale,
          index_t BlockPerCu,
          bool SkipMinSeqlenQ,
          bool HasSink>
struct TileFmhaTraits
    : Listed<INTERFACE_2026_LISTED, HasDropout, QScale, BlockPerCu, SkipMinSeqlenQ, HasSink>
{
    static_assert(!HasBiasGrad);
};
template <INTERFACE_2026_PADS,
          INTERFACE_2026_SCORES,
          bool IsPagedKv,
          bool StaticQuant,
          index_t BlockPerCu,
          bool SkipMinSeqlenQ,
          bool HasSink>
struct TileFmhaFwdPagedKVTraits
    : Listed<INTERFACE_2026_LISTED, IsPagedKv, StaticQuant, BlockPerCu, SkipMinSeqlenQ, HasSink>
{
    static_assert(!HasBiasGrad);
};
template <INTERFACE_2026_PADS,
          INTERFACE_2026_SCORES,
          bool StaticQuant,
          bool IsPagedKv,
          bool HasUnevenSplits,
          bool MergeHeads,
          index_t BlockPerCu,
          bool HasSink>
struct TileFmhaFwdSplitKVTraits
    : Listed<INTERFACE_2026_LISTED, StaticQuant, IsPagedKv, BlockPerCu, HasSink>
{
    static_assert(!HasBiasGrad);
};
template <bool PadSeqLenQ,
          bool PadHeadDimV,
          bool StoreLse,
          bool StaticQuant,
          index_t LogMaxSplits,
          index_t BlockPerCu>
struct TileFmhaFwdSplitKVCombineTraits
    : Listed<PadSeqLenQ, PadHeadDimV, StoreLse, StaticQuant, BlockPerCu>
{};

// The record of a kernel: element types, shape, mode, mask, numbers of its traits.
template <typename Q, typename O, typename Shape, bool IsGroupMode, typename Mask, typename Traits>
struct InterfaceProblem
{
    static void describe(Record& r)
    {
        r.line("types", std::string(type_word<Q>()) + "," + type_word<O>());
        r.line("group_mode", IsGroupMode);
        r.line("mask", Mask::word);
        Shape::describe(r);
        r.line("traits", Traits::text());
    }
};

#define INTERFACE_2026_TYPES \
    typename Q, typename K, typename V, typename Sacc, typename SmplCompute, typename Bias

#ifdef INTERFACE_2026_OCCUPANCY // September's fwd has both
#define INTERFACE_2026_BUFFERING , bool DoubleKvBuffer, bool ProgressiveLoad
#else
#define INTERFACE_2026_BUFFERING
#endif

template <INTERFACE_2026_TYPES,
          typename RandVal,
          typename Lse,
          typename P,
          typename Oacc,
          typename O,
          typename Shape,
          bool IsGroupMode,
          typename Variant,
          typename Mask,
          bool UseTrLoad,
          typename Traits INTERFACE_2026_BUFFERING>
struct BlockFmhaPipelineProblem : InterfaceProblem<Q, O, Shape, IsGroupMode, Mask, Traits>
{
#ifdef INTERFACE_2026_OCCUPANCY
    static_assert(!DoubleKvBuffer && !ProgressiveLoad, "for gfx125 alone");
#endif
};
#define INTERFACE_2026_PROBLEM(name)                                       \
    template <INTERFACE_2026_TYPES,                                        \
              typename Lse,                                                \
              typename P,                                                  \
              typename Oacc,                                               \
              typename O,                                                  \
              typename Shape,                                              \
              bool IsGroupMode,                                            \
              typename Variant,                                            \
              typename Mask,                                               \
              typename Traits>                                             \
    struct name : InterfaceProblem<Q, O, Shape, IsGroupMode, Mask, Traits> \
    {};
INTERFACE_2026_PROBLEM(BlockFmhaFwdPagedKVPipelineProblem)
INTERFACE_2026_PROBLEM(BlockFmhaFwdSplitKVPipelineProblem)
template <typename Lse,
          typename Oacc,
          typename O,
          index_t HeadDim,
          bool IsGroupMode,
          index_t N1,
          typename Traits>
struct BlockFmhaSplitKVCombinePipelineProblem
{
    static void describe(Record&) {}
};

#define INTERFACE_2026_PIPELINE(name)                 \
    template <typename Problem_>                      \
    struct name                                       \
    {                                                 \
        using Problem                     = Problem_; \
        static constexpr const char* word = #name;    \
    };
INTERFACE_2026_PIPELINE(BlockFmhaPipelineQRKSVS)
INTERFACE_2026_PIPELINE(BlockFmhaPipelineQRKSVSAsync)
INTERFACE_2026_PIPELINE(BlockFmhaPipelineQRKSVSAsyncTrload)
INTERFACE_2026_PIPELINE(BlockFmhaFwdV3Pipeline)
INTERFACE_2026_PIPELINE(BlockFmhaFwdPagedKVPipelineQRKSVS)
INTERFACE_2026_PIPELINE(BlockFmhaFwdSplitKVPipelineQRKSVS)
INTERFACE_2026_PIPELINE(BlockFmhaFwdSplitKVCombinePipeline)

#define INTERFACE_2026_KERNEL(name)                                    \
    template <typename Pipeline, typename Epilogue>                    \
    struct name                                                        \
    {                                                                  \
        static constexpr index_t kBlockPerCu = 2;                      \
        static dim3 BlockSize() { return dim3(64); }                   \
        static void describe(Record& r)                                \
        {                                                              \
            r.line("kernel", std::string(#name "/") + Pipeline::word); \
            Pipeline::Problem::describe(r);                            \
        }                                                              \
    };
INTERFACE_2026_KERNEL(FmhaFwdKernel)
INTERFACE_2026_KERNEL(FmhaFwdV3Kernel)
INTERFACE_2026_KERNEL(FmhaFwdPagedKVKernel)
INTERFACE_2026_KERNEL(FmhaFwdSplitKVKernel)
INTERFACE_2026_KERNEL(FmhaFwdSplitKVCombineKernel)

} // namespace ck_tile

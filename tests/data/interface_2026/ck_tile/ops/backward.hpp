// The types from which backward kernels are put together, in the parameter order of CK of 2026.
// Included by the fmha.hpp beside it.
#pragma once

namespace ck_tile {

constexpr index_t min(index_t a, index_t b) { return a < b ? a : b; }

template <bool IsDropout, bool IsWarp32, bool IsStoreRandval>
struct BlockDropoutBwd
{
    static_assert(IsDropout || !IsStoreRandval);
};

template <typename Block,
          typename Waves0,
          typename Tile0,
          typename Waves1,
          typename Tile1,
          typename Waves2,
          typename Tile2,
          typename Waves3,
          typename Tile3,
          typename Waves4,
          typename Tile4,
          index_t MaxSeqLenQ>
struct TileFmhaBwdShape
{
    static constexpr index_t kM0 = Block::at(0), kN0 = Block::at(1), kMaxSeqLenQ = MaxSeqLenQ;
    static_assert(std::is_same_v<Waves0, Waves2> && std::is_same_v<Tile0, Tile2>);
    static_assert(std::is_same_v<Waves1, Waves3> && std::is_same_v<Tile1, Tile3>);
    static_assert(Waves1::product == Waves0::product && Waves4::product == Waves0::product);
    static_assert(Tile4::at(2) <= Block::at(6));
};

template <index_t PadD,
          index_t PadDv,
          BlockAttentionBiasEnum Bias,
          bool HasBiasGrad,
          index_t BlockPerCu>
struct TileFmhaBwdTraits
{
    static_assert(!HasBiasGrad || Bias == BlockAttentionBiasEnum::ELEMENTWISE_BIAS);
};
template <bool PadS, bool PadDv, index_t BlockPerCu>
struct TileFmhaBwdOGradDotOTraits
{};
template <bool PadS, bool PadD, index_t BlockPerCu>
struct TileFmhaBwdConvertQGradTraits
{};

template <typename Q,
          typename K,
          typename V,
          typename Gemm,
          typename Lse,
          typename Acc,
          typename D,
          typename Bias,
          typename RandVal,
          typename O,
          typename OGrad,
          typename QGrad,
          typename KGrad,
          typename VGrad,
          typename BiasGrad,
          typename Shape_,
          bool IsGroupMode,
          bool IsDeterministic,
          typename Mask,
          typename Dropout,
          bool UseTrLoad,
          typename Traits>
struct BlockFmhaBwdPipelineProblem
{
    using Shape                           = Shape_;
    static constexpr bool kClearsInKernel = IsGroupMode; // any rule: CK's is not known here
    static_assert(UseTrLoad || Shape::kMaxSeqLenQ == 0);
};
// LSE is of 2026: until then D was followed by the number of rows.
template <typename O,
          typename OGrad,
          typename D,
          typename Lse,
          index_t Rows,
          index_t HDim,
          bool IsGroupMode,
          typename Traits>
struct BlockFmhaBwdOGradDotOPipelineProblem
{
    static_assert(std::is_same_v<Lse, float>);
};
template <typename Acc,
          typename QGrad,
          index_t BlockSize,
          index_t Rows,
          index_t HDim,
          bool IsGroupMode,
          bool IsDeterministic,
          typename Traits>
struct BlockFmhaBwdConvertQGradPipelineProblem
{};

template <typename Problem_>
struct BlockFmhaBwdDQDKDVPipeline
{
    using Problem = Problem_;
};
template <typename Problem>
struct BlockFmhaBwdOGradDotO
{};
template <typename Problem>
struct BlockFmhaBwdConvertQGrad
{};

struct InterfaceBackwardKernel
{
    static constexpr index_t kBlockPerCu = 2;
    static dim3 GridSize() { return dim3(1); }
    static dim3 BlockSize() { return dim3(64); }
    static void describe(Record&) {}
};
template <typename Pipeline, typename KStored, typename VStored, typename QStored>
struct FmhaBwdDQDKDVKernel : InterfaceBackwardKernel
{
    struct DqAccPrezeroKernel : InterfaceBackwardKernel
    {};
    struct Kargs
    {
        const void* workspace;
        index_t batch;
        void describe(Record&) const {}
    };
    static constexpr bool kNeedsKernelPrezeroDqAcc = Pipeline::Problem::kClearsInKernel;
    static Kargs MakeDqAccPrezeroKargs(const void* workspace, index_t batch)
    {
        return {workspace, batch};
    }
};
template <typename Pipeline>
struct FmhaBwdOGradDotOKernel : InterfaceBackwardKernel
{};
template <typename Pipeline>
struct FmhaBwdConvertQGradKernel : InterfaceBackwardKernel
{};

} // namespace ck_tile

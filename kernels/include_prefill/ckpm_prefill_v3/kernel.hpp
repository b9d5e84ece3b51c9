// The kernel: one workgroup takes 256 queries of one head of one sequence.
#pragma once

#include "ck_tile/core.hpp"
#include "ckpm_prefill/launch.hpp"
#include "ckpm_prefill_v3/pipeline.hpp"

namespace ck_tile {

template <typename FmhaPipeline_>
struct FmhaBatchPrefillV3Kernel
{
    using FmhaPipeline = remove_cvref_t<FmhaPipeline_>;
    using Problem      = typename FmhaPipeline::Problem;
    using Traits       = typename Problem::Traits;
    using Kargs        = FmhaBatchPrefillKargs;
    using ODataType    = typename Problem::ODataType;

    static constexpr index_t kBlockSize  = FmhaPipeline::kBlockSize;
    static constexpr index_t kBlockPerCu = FmhaPipeline::kBlockPerCu;
    static constexpr index_t kM0         = FmhaPipeline::kM0;

    // Heads run fastest: those of a KV head are at work at the same time, and of eight heads and
    // more each keeps to its dies. Tiles run slowest, the last one first: a causal mask gives it
    // most keys, and short ones fill up what it leaves.
    CK_TILE_HOST static constexpr auto GridSize(index_t batch, index_t nhead, index_t max_seqlen_q)
    {
        return dim3(nhead, batch, integer_divide_ceil(max_seqlen_q, kM0));
    }
    CK_TILE_HOST static constexpr auto BlockSize() { return dim3(kBlockSize); }

    CK_TILE_DEVICE void operator()(Kargs kargs) const
    {
#if defined(__HIP_DEVICE_COMPILE__) && !defined(__gfx950__)
        static_assert(
            kM0 < 0,
            "V3 batch prefill needs gfx950: its wide loads into LDS, the transposing reads "
            "of LDS and v_permlane32_swap. Build it for gfx950 alone");
#else
        alignas(128) __shared__ char lds[FmhaPipeline::GetSmemSize()];
        Place at = ckpm::prefill::place_of_workgroup<Traits>(
            kargs, kM0, blockIdx.z, blockIdx.x, blockIdx.y);
        at.first = (integer_divide_ceil(at.seqlen_q, kM0) - 1) * kM0 - at.first;
        if(at.first < 0)
            return;
        using ckpm::prefill::v3::Bytes16;
        // rows past the end are the last one again, and stored nowhere
        const index_t wave = threadIdx.x / get_warp_size();
        const index_t lane = threadIdx.x % get_warp_size();
        const index_t own  = wave * 32 + lane % 32;
        const index_t row  = min(own, at.rows() - 1);
        const auto* query  = reinterpret_cast<const char*>(
            static_cast<const typename Problem::QDataType*>(kargs.q_ptr) +
            (at.token() + row) * kargs.stride_q +
            static_cast<long_index_t>(at.head) * kargs.nhead_stride_q);
        using Queries = typename FmhaPipeline::Queries;
        Queries q((ckpm::prefill::v3::LdsByte*)lds + FmhaPipeline::kTilesBytes +
                  wave * Queries::kLdsBytes);
        for(index_t i = 0; i < FmhaPipeline::Products::kSteps; ++i)
        {
            const auto* at = reinterpret_cast<const Bytes16*>(query + 64 * i + lane / 32 * 16);
            q.put(i, at[0], at[2]);
        }

        const auto result = FmhaPipeline{}(q, arguments(kargs, at), lds);
        if(own >= at.rows())
            return;
        auto total  = result.sum;
        float scale = result.v_scale * ckpm::prefill::v_descale<Traits>(kargs, at);
        if constexpr(FmhaPipeline::kHasWindow) // which is the kernel of sink logits, too
        {
            if(kargs.sink_ptr != nullptr)
                scale *= total.add_sink(static_cast<const float*>(kargs.sink_ptr)[at.head] *
                                        log2e_v<float>);
        }
        const float by = total.sum == 0.f ? 0.f : scale / total.sum;
        if constexpr(Traits::kStoreLSE)
        {
            auto* lse = static_cast<float*>(kargs.lse_ptr) + at.token() +
                        static_cast<long_index_t>(at.head) * kargs.nhead_stride_lse;
            if(lane < 32) // two lanes have one query
                lse[own] = total.lse();
        }
        auto* o = static_cast<ODataType*>(kargs.o_ptr) + (at.token() + own) * kargs.stride_o +
                  static_cast<long_index_t>(at.head) * kargs.nhead_stride_o + lane / 32 * 4;
        for(index_t i = 0; i < FmhaPipeline::kN1 / 8; ++i)
        {
            ext_vector_t<ODataType, 4> four;
            for(index_t j = 0; j < 4; ++j)
                four[j] = type_convert<ODataType>(result.out[i / 4][i % 4 * 4 + j] * by);
            *reinterpret_cast<ext_vector_t<ODataType, 4>*>(o + i / 4 * 32 + i % 4 * 8) = four;
        }
#endif
    }

private:
    using Place = ckpm::prefill::Place;

    CK_TILE_DEVICE static auto arguments(const Kargs& kargs, const Place& at)
    {
        using Element        = typename Problem::KDataType;
        const float natural  = kargs.scale_s * ckpm::prefill::qk_descale<Traits>(kargs, at);
        const float cap_base = kargs.logits_soft_cap;
        return typename FmhaPipeline::Arguments{
            ckpm::prefill::k_view<Traits, Element>(kargs, at),
            ckpm::prefill::v_view<Traits, Element>(kargs, at),
            ckpm::prefill::mask_of<typename FmhaPipeline::ScoreMask>(kargs, at),
            at.first,
            at.first + at.rows() - 1,
            natural * log2e_v<float>,
            cap_base * log2e_v<float>,
            cap_base > 0.f ? natural / cap_base : 0.f,
            ckpm::prefill::block_scales(kargs, at, kargs.k_descale_ptr),
            ckpm::prefill::block_scales(kargs, at, kargs.v_descale_ptr),
            kargs.nblock_stride_kv_block_descale};
    }
};

} // namespace ck_tile

// Batch prefill of one tile of queries: Q in registers, K and V of tile after tile through two LDS
// stages, the next stage's reads in flight while one is multiplied.
#pragma once

#include "ck_tile/core.hpp"
#include "ck_tile/ops/fmha/block/block_dropout.hpp"
#include "ck_tile/ops/fmha/pipeline/block_fmha_pipeline_qx_ks_vs_custom_policy.hpp"
#include "ckpm_prefill/k_loader.hpp"
#include "ckpm_prefill/problem.hpp"
#include "ckpm_prefill/score_bounds.hpp"
#include "ckpm_prefill/softmax.hpp"
#include "ckpm_prefill/v_loader.hpp"

#include <type_traits>
#include <utility>

namespace ck_tile {

template <typename Problem_>
struct BlockFmhaBatchPrefillPipelineQRKSVSAsync
{
    using Problem = remove_cvref_t<Problem_>;
    using Traits  = typename Problem::Traits;
    using Shape   = typename Problem::BlockFmhaShape;
    // CK's block gemms and register layouts; how K and V reach LDS is our own
    using QPolicy  = BlockFmhaPipelineQXCustomPolicy<true>;
    using PvPolicy = BlockFmhaPipelineQXKSVSCustomPolicy<true, false, 1, 1>;

    using KDataType     = typename Problem::KDataType;
    using PDataType     = typename Problem::PDataType;
    using CacheDataType = typename Problem::CacheDataType;

    static constexpr index_t kBlockSize = Problem::kBlockSize;
    static constexpr index_t kM0        = Shape::kM0;
    static constexpr index_t kN0        = Shape::kN0;
    static constexpr index_t kK0        = Shape::kK0;
    static constexpr index_t kN1        = Shape::kN1;
    static constexpr index_t kK1        = Shape::kK1;
    static constexpr index_t kHeadDim   = Shape::kQKHeaddim;

    static constexpr bool kHasMask    = Problem::FmhaMask::IsMasking;
    static constexpr bool kHasSink    = Traits::kHasSink;
    static constexpr bool kHasDropout = Traits::kHasDropout;
    static constexpr bool kHasBias  = Traits::BiasEnum == BlockAttentionBiasEnum::ELEMENTWISE_BIAS;
    static constexpr bool kHasAlibi = Traits::BiasEnum == BlockAttentionBiasEnum::ALIBI;
    static constexpr bool kHasSoftCap = Traits::kHasLogitsSoftCap;
    static constexpr bool kBlockScale =
        Traits::QScaleEnum == BlockAttentionQuantScaleEnum::KV_BLOCKSCALE;
    static constexpr bool kFp8 = std::is_same_v<KDataType, fp8_t>;
    static constexpr bool kVectorized =
        Traits::kKVMemoryLayout == BlockAttentionKVCacheMemoryLayoutEnum::VECTORIZED_LAYOUT;
    static_assert(!Problem::kUseTrLoad && Traits::kPadsHeadDims,
                  "this pipeline has no transposing loads, and pads head dims");
    static_assert(!kBlockScale || Traits::kPageBlockSize >= kN0,
                  "a tile has one scale: it must lie within a page");
    static_assert(!kFp8 || (!Traits::kStoreLSE && !kHasBias && !kHasAlibi && !kHasDropout),
                  "fp8 is for inference only");

    static constexpr index_t kBlockPerCu =
        Traits::kBlockPerCu != -1 ? Traits::kBlockPerCu : (kHeadDim <= 128 ? 2 : 1);

    static constexpr auto kPath =
        ckpm::prefill::load_path<Traits::kPageBlockSize, kN0, Traits::kKVLoadMode>();
    using KLoader = ckpm::prefill::KLoader<KDataType,
                                           CacheDataType,
                                           kN0,
                                           kHeadDim,
                                           Traits::kPageBlockSize,
                                           kPath,
                                           kVectorized,
                                           kBlockSize>;
    using VLoader = ckpm::prefill::VLoader<KDataType,
                                           CacheDataType,
                                           kN0,
                                           kN1,
                                           Traits::kPageBlockSize,
                                           kPath,
                                           kVectorized,
                                           kBlockSize>;

    // A stage has the same half of LDS in every tile. Where that takes one stage more, as of head
    // dims 192 and 128, the last of K's is empty.
    static constexpr index_t kKStages =
        KLoader::kStages + (KLoader::kStages + VLoader::kStages) % 2;
    static constexpr index_t kStages = kKStages + VLoader::kStages;

    // fp8 weights are as large as the format allows, so that small ones keep their bits: e4m3 ends
    // at 240 (FNUZ) or 448 (OCP). Sums carry the same factor, and it cancels.
    static constexpr index_t kWeightShift =
        !kFp8                                                                 ? 0
        : numeric_traits<fp8_t>::f8_interpret == fp8_interpretation::E4M3_OCP ? 8
                                                                              : 7;

    using QkGemm    = remove_cvref_t<decltype(QPolicy::template GetQKBlockGemm<Problem>())>;
    using PvGemm    = remove_cvref_t<decltype(PvPolicy::template GetKVBlockGemm<Problem>())>;
    using Scores    = remove_cvref_t<decltype(QkGemm::MakeCBlockTile())>;
    using OutTile   = remove_cvref_t<decltype(PvGemm::MakeCBlockTile())>;
    using Softmax   = ckpm::prefill::OnlineSoftmax<ckpm::prefill::RowOf<Scores>>;
    using ScoreMask = typename Problem::template ScoreMask<kHasMask, kHasSink>;

    static constexpr index_t kStageBytes = max(KLoader::Lds::kBytes, VLoader::Lds::kBytes);

    CK_TILE_DEVICE static constexpr index_t dropout_bytes()
    {
        if constexpr(kHasDropout)
            return BlockDropout::template MakeRandValLdsBlockDescriptor<QkGemm>()
                .get_element_space_size();
        else
            return 0;
    }

    CK_TILE_DEVICE static constexpr index_t GetSmemSize()
    {
        return 2 * kStageBytes + dropout_bytes();
    }

    // What a workgroup needs to know besides Q: `first` and `last` are its rows. `Sink` is a float,
    // or a function from a row to one.
    template <typename Bias, typename RandomWindow, typename Dropout, typename Sink = float>
    struct Arguments
    {
        ckpm::prefill::CacheView k, v;
        ScoreMask mask;
        index_t first, last;
        float scale;        // of raw scores into base 2, Q's and K's descales included
        float soft_cap;     // in base 2
        float soft_cap_rcp; // of raw scores into what the cap's tanh takes
        Sink sink;          // a logit in base 2, -inf for none
        const float*
            k_scales; // block scales of the head in page 0, page_scales floats from page to page
        const float* v_scales;
        index_t page_scales;
        Bias bias;           // (row, column) -> what is added in base 2
        RandomWindow random; // random bytes to be kept
        Dropout dropout;
        char* dropout_lds;
    };

    // O before its rows are divided by the sums, and the sums
    struct Result
    {
        OutTile out;
        Softmax softmax;
        float v_scale; // of `out`
    };

    // The variable that is returned is not the one that lambdas capture: clang 21 loses half of
    // such an address (LLVM pull request 154380).
    template <typename QTile, typename Args>
    CK_TILE_DEVICE Result operator()(const QTile& q, Args& args, char* lds) const
    {
        Result result;
        accumulate(result, q, args, lds);
        return result;
    }

private:
    template <typename QTile, typename Args>
    CK_TILE_DEVICE static void accumulate(Result& result, const QTile& q, Args& args, char* lds)
    {
        result.v_scale = 1.f;
        set_tile(result.out, 0.f);
        result.softmax.start(args.sink, exp2(static_cast<float>(kWeightShift)));

        const auto tiles = ckpm::prefill::key_tiles<kN0>(args.mask, args.first, args.last);
        if(tiles.count() <= 0)
            return;

        KLoader k(args.k);
        VLoader v(args.v);
        Cursor cursor{tiles, 0, 0};
        k.lookup(cursor.k_start());
        v.lookup(cursor.v_start());
        stage_read<0>(k, v, cursor);
        stage_write<0>(k, v, lds);
        stage_read<1>(k, v, cursor);
        ckpm::prefill::sync_lds();

        auto scores = QkGemm{}.MakeCBlockTile();
        auto p      = cast_tile<PDataType>(scores);
        for(index_t tile = 0; tile < tiles.count(); ++tile)
        {
            const index_t start = tiles.start_of(tile);
            float k_scale = 1.f, v_scale = 1.f;
            if constexpr(kBlockScale)
            {
                const index_t page = __builtin_amdgcn_readfirstlane(
                    ckpm::prefill::CacheReader<kPath, Traits::kPageBlockSize>::lookup(args.k,
                                                                                      start));
                k_scale = args.k_scales[static_cast<long_index_t>(page) * args.page_scales];
                v_scale = args.v_scales[static_cast<long_index_t>(page) * args.page_scales];
            }
            set_tile(scores, 0.f);
            static_for<0, kStages, 1>{}([&](auto stage) {
                stage_write<(stage + 1) % kStages>(k, v, lds + (stage + 1) % 2 * kStageBytes);
                stage_read<(stage + 2) % kStages>(k, v, cursor);
                const char* own = lds + stage % 2 * kStageBytes;
                if constexpr(stage < KLoader::kStages)
                    multiply_k<stage>(scores, q, own);
                if constexpr(stage == KLoader::kStages - 1)
                    p = weights(result, scores, args, start, k_scale, v_scale);
                if constexpr(stage >= kKStages)
                    multiply_v<stage - kKStages>(result.out, p, own);
                ckpm::prefill::sync_lds();
            });
        }
    }

    // Which tiles the next reads of K and of V are of
    struct Cursor
    {
        decltype(ckpm::prefill::key_tiles<kN0>(std::declval<ScoreMask>(), 0, 0)) tiles;
        index_t k_tile, v_tile;
        CK_TILE_DEVICE index_t k_start() const { return tiles.start_of(k_tile); }
        CK_TILE_DEVICE index_t v_start() const { return tiles.start_of(v_tile); }
    };

    // Reads a stage's part of the cache into registers; after a tile's last one, the page ids of
    // the next tile, which the next reads of K or V take. Past the last tile that one is read
    // again, without use.
    template <index_t kStage>
    CK_TILE_DEVICE static void stage_read(KLoader& k, VLoader& v, Cursor& cursor)
    {
        if constexpr(kStage < KLoader::kStages)
        {
            k.template read<kStage>();
            if constexpr(kStage == KLoader::kStages - 1)
            {
                ++cursor.k_tile;
                k.lookup(cursor.k_start());
            }
        }
        else if constexpr(kStage >= kKStages)
        {
            v.template read<kStage - kKStages>();
            if constexpr(kStage == kStages - 1)
            {
                ++cursor.v_tile;
                v.lookup(cursor.v_start());
            }
        }
    }

    template <index_t kStage>
    CK_TILE_DEVICE static void stage_write(KLoader& k, VLoader& v, char* lds)
    {
        if constexpr(kStage < KLoader::kStages)
            k.write(lds);
        else if constexpr(kStage >= kKStages)
            v.write(lds);
    }

    template <index_t kStage, typename QTile>
    CK_TILE_DEVICE static void multiply_k(Scores& scores, const QTile& q, const char* lds)
    {
        using Lds       = typename KLoader::Lds;
        const auto view = Lds::view(const_cast<char*>(lds));
        static_for<0, Lds::kColumns / kK0, 1>{}([&](auto i) {
            constexpr index_t column = kStage * Lds::kColumns + i * kK0;
            QkGemm{}(scores,
                     get_slice_tile(q, sequence<0, column>{}, sequence<kM0, column + kK0>{}),
                     make_tile_window(view,
                                      make_tuple(number<kN0>{}, number<kK0>{}),
                                      {0, static_cast<index_t>(i * kK0)}));
        });
    }

    template <index_t kStage, typename PTile>
    CK_TILE_DEVICE static void multiply_v(OutTile& out, const PTile& p, const char* lds)
    {
        using Lds       = typename VLoader::Lds;
        const auto view = Lds::view(const_cast<char*>(lds));
        static_for<0, Lds::kColumns / kK1, 1>{}([&](auto i) {
            constexpr index_t key = kStage * Lds::kColumns + i * kK1;
            PvGemm{}(out,
                     get_slice_tile(p, sequence<0, key>{}, sequence<kM0, key + kK1>{}),
                     make_tile_window(view,
                                      make_tuple(number<kN1>{}, number<kK1>{}),
                                      {0, static_cast<index_t>(i * kK1)}));
        });
    }

    // Scores that the mask hides become -inf. Few tiles of a row meet a bound, and of a causal mask
    // no tile meets the left one: each bound is looked at apart, with one comparison for a score.
    template <typename Args>
    CK_TILE_DEVICE static void apply_bounds(Scores& scores, const Args& args, index_t start)
    {
        constexpr float hidden = -numeric<float>::infinity();
        if(!args.mask.template right_sees_all<kN0>(args.first, start))
        {
            ckpm::prefill::for_each_place(
                scores, [&](auto i, index_t row, index_t column, index_t offset) {
                    const index_t end = args.mask.right_end(args.first + row) - start - column;
                    scores(i)         = offset < end ? scores[i] : hidden;
                });
        }
        if(!args.mask.left_sees_all(args.last, start))
        {
            ckpm::prefill::for_each_place(
                scores, [&](auto i, index_t row, index_t column, index_t offset) {
                    const index_t here = start + column;
                    const index_t from = args.mask.left_end(args.first + row) - here;
                    const bool sink =
                        kHasSink && offset < args.mask.sinks_end(args.first + row) - here;
                    scores(i) = offset >= from || sink ? scores[i] : hidden;
                });
        }
    }

    // Scores of a tile of keys from `start` -> weights, with all that was accumulated rescaled to
    // them.
    template <typename Args>
    CK_TILE_DEVICE static auto weights(
        Result& result, Scores& scores, Args& args, index_t start, float k_scale, float v_scale)
    {
        float scale = args.scale * k_scale;
        if constexpr(kHasSoftCap)
        {
            const float inner = args.soft_cap_rcp * k_scale;
            tile_elementwise_inout(
                [&](auto& score) { score = args.soft_cap * tanh_fast<float>(score * inner); },
                scores);
            scale = 1.f;
        }
        if constexpr(kHasBias || kHasAlibi)
        {
            ckpm::prefill::for_each_place(
                scores, [&](auto i, index_t row, index_t column, index_t offset) {
                    scores(i) =
                        scores[i] * scale + args.bias(args.first + row, start + column + offset);
                });
            scale = 1.f;
        }
        apply_bounds(scores, args, start);
        // a scale of 0 would make NaN of a masked score
        scale             = max(scale, numeric<float>::min());
        const auto factor = result.softmax.template update<kWeightShift>(scores, scale);
        if(ckpm::prefill::any_changes(factor))
            ckpm::prefill::scale_rows(result.out, factor);
        if constexpr(kBlockScale)
        {
            // `out` is kept in units of the tile's scale of V; a page whose scale is 0 counts as
            // nearly 0
            const float fresh = max(v_scale, 1e-20f);
            const float by    = result.v_scale / fresh;
            tile_elementwise_inout([&](auto& o) { o *= by; }, result.out);
            result.v_scale = fresh;
        }
        if constexpr(kHasDropout)
        {
            auto window = BlockDropout::template MakeRandvalDramWindow<QkGemm>(args.random, start);
            args.dropout.template Run<QkGemm, float, uint8_t>(
                args.dropout_lds, start, scores, window);
        }
        if constexpr(std::is_same_v<PDataType, fp16_t>)
            return impl::cast_tile_pk_fp16_fp32<PDataType>(scores);
        else
            return cast_tile<PDataType>(scores);
    }
};

} // namespace ck_tile

// The kernel: one workgroup takes a tile of queries of one head of one sequence.
#pragma once

#include "ck_tile/core.hpp"
#include "ck_tile/ops/fmha/block/block_masking.hpp"
#include "ckpm_prefill/launch.hpp"
#include "ckpm_prefill/pipeline.hpp"

namespace ck_tile {

template <typename FmhaPipeline_, typename EpiloguePipeline_>
struct FmhaBatchPrefillWithPagedKVCacheKernel
{
    using FmhaPipeline     = remove_cvref_t<FmhaPipeline_>;
    using EpiloguePipeline = remove_cvref_t<EpiloguePipeline_>;
    using Problem          = typename FmhaPipeline::Problem;
    using Traits           = typename Problem::Traits;
    using Kargs            = FmhaBatchPrefillKargs;

    using QDataType    = typename Problem::QDataType;
    using BiasDataType = typename Problem::BiasDataType;
    using ODataType    = typename Problem::ODataType;
    using Cached       = typename Problem::CacheDataType;

    static constexpr bool kMixed         = !std::is_same_v<Cached, QDataType>;
    static constexpr index_t kBlockSize  = FmhaPipeline::kBlockSize;
    static constexpr index_t kBlockPerCu = FmhaPipeline::kBlockPerCu;
    static constexpr index_t kM0         = FmhaPipeline::kM0;
    static constexpr index_t kN1         = FmhaPipeline::kN1;

    CK_TILE_HOST static constexpr auto GridSize(index_t batch, index_t nhead, index_t max_seqlen_q)
    {
        return dim3(integer_divide_ceil(max_seqlen_q, kM0), nhead, batch);
    }

    CK_TILE_HOST static constexpr auto BlockSize() { return dim3(kBlockSize); }

    CK_TILE_DEVICE void operator()(Kargs kargs) const
    {
        alignas(128) __shared__ char lds[FmhaPipeline::GetSmemSize()];

        const Place at = ckpm::prefill::place_of_workgroup<Traits>(
            kargs, kM0, blockIdx.x, blockIdx.y, blockIdx.z);
        if(at.first >= at.seqlen_q)
            return;
        auto args         = arguments(kargs, at, lds + 2 * FmhaPipeline::kStageBytes);
        const auto q      = load_q(kargs, at);
        auto result       = FmhaPipeline{}(q, args, lds);
        const auto& sums  = result.softmax;
        const float scale = result.v_scale * ckpm::prefill::v_descale<Traits, kMixed>(kargs, at);

        if constexpr(Traits::kStoreLSE)
            store_lse(kargs, at, sums);
        auto by = sums.sum;
        tile_elementwise_inout([&](auto& sum) { sum = sum == 0.f ? 0.f : scale / sum; }, by);
        ckpm::prefill::scale_rows(result.out, by);
        store_o(kargs, at, result.out);
    }

private:
    using Place = ckpm::prefill::Place;

    CK_TILE_DEVICE static auto load_q(const Kargs& kargs, const Place& at)
    {
        const auto* q = static_cast<const QDataType*>(kargs.q_ptr) + at.token() * kargs.stride_q +
                        static_cast<long_index_t>(at.head) * kargs.nhead_stride_q;
        constexpr auto lengths = make_tuple(number<kM0>{}, number<FmhaPipeline::kHeadDim>{});
        const auto view =
            pad_tensor_view(make_naive_tensor_view<address_space_enum::global>(
                                q,
                                make_tuple(at.rows(), kargs.hdim_q),
                                make_tuple(kargs.stride_q, 1),
                                number<FmhaPipeline::QPolicy::template GetAlignmentQ<Problem>()>{},
                                number<1>{}),
                            lengths,
                            sequence<true, true>{});
        return load_tile(
            make_tile_window(view,
                             lengths,
                             {0, 0},
                             FmhaPipeline::QPolicy::template MakeQRegTileDistribution<Problem>()));
    }

    CK_TILE_DEVICE static void store_o(const Kargs& kargs,
                                       const Place& at,
                                       const typename FmhaPipeline::OutTile& out)
    {
        auto* o = static_cast<ODataType*>(kargs.o_ptr) + at.token() * kargs.stride_o +
                  static_cast<long_index_t>(at.head) * kargs.nhead_stride_o;
        constexpr auto lengths = make_tuple(number<kM0>{}, number<kN1>{});
        const auto view =
            pad_tensor_view(make_naive_tensor_view<address_space_enum::global>(
                                o,
                                make_tuple(at.rows(), kargs.hdim_v),
                                make_tuple(kargs.stride_o, 1),
                                number<FmhaPipeline::PvPolicy::template GetAlignmentO<Problem>()>{},
                                number<1>{}),
                            lengths,
                            sequence<true, true>{});
        auto window = make_tile_window(view, lengths, {0, 0});
        EpiloguePipeline{}(window, out, nullptr);
    }

    CK_TILE_DEVICE static void store_lse(const Kargs& kargs,
                                         const Place& at,
                                         const typename FmhaPipeline::Softmax& sums)
    {
        auto* lse              = static_cast<float*>(kargs.lse_ptr) + at.token() +
                                 static_cast<long_index_t>(at.head) * kargs.nhead_stride_lse;
        constexpr auto lengths = make_tuple(number<kM0>{});
        const auto view        = pad_tensor_view(
            make_naive_tensor_view<address_space_enum::global>(
                lse, make_tuple(at.rows()), make_tuple(1), number<1>{}, number<1>{}),
            lengths,
            sequence<true>{});
        auto rows            = sums.origin;
        constexpr auto spans = decltype(rows)::get_distributed_spans();
        sweep_tile_span(spans[number<0>{}], [&](auto row) {
            constexpr auto i = make_tuple(row);
            // of an empty row: -inf, not the NaN of -inf + log(0) with a sink's sum beside it
            rows(i) = sums.sum[i] == 0.f ? -numeric<float>::infinity()
                                         : sums.origin[i] * log2e_rcp_v<float> + log(sums.sum[i]);
        });
        auto window = make_tile_window(view, lengths, {0});
        store_tile(window, rows);
    }

    CK_TILE_DEVICE static auto arguments(const Kargs& kargs, const Place& at, char* dropout_lds)
    {
        const index_t last = at.first + at.rows() - 1;
        const auto bias    = bias_of(kargs, at, last);
        const auto random  = random_window(kargs, at);
        const auto dropout = dropout_of(kargs, at);
        using Arguments =
            typename FmhaPipeline::template Arguments<remove_cvref_t<decltype(bias)>,
                                                      remove_cvref_t<decltype(random)>,
                                                      remove_cvref_t<decltype(dropout)>>;
        const float natural  = kargs.scale_s * ckpm::prefill::qk_descale<Traits, kMixed>(kargs, at);
        const float cap_base = kargs.logits_soft_cap;
        const float* sinks   = static_cast<const float*>(kargs.sink_ptr);
        return Arguments{
            ckpm::prefill::k_view<Traits, Cached>(kargs, at),
            ckpm::prefill::v_view<Traits, Cached>(kargs, at),
            ckpm::prefill::mask_of<typename FmhaPipeline::ScoreMask>(kargs, at),
            at.first,
            last,
            natural * log2e_v<float>,
            cap_base * log2e_v<float>,
            cap_base > 0.f ? natural / cap_base : 0.f,
            sinks == nullptr ? -numeric<float>::infinity() : sinks[at.head] * log2e_v<float>,
            ckpm::prefill::block_scales(kargs, at, kargs.k_descale_ptr),
            ckpm::prefill::block_scales(kargs, at, kargs.v_descale_ptr),
            kargs.nblock_stride_kv_block_descale,
            bias,
            random,
            dropout,
            dropout_lds};
    }

    // (row, key) -> what is added to a score in base 2
    CK_TILE_DEVICE static auto bias_of(const Kargs& kargs, const Place& at, index_t last)
    {
        if constexpr(FmhaPipeline::kHasAlibi)
        {
            const float slope = static_cast<const float*>(
                kargs.bias_ptr)[static_cast<long_index_t>(at.batch) * kargs.stride_bias + at.head];
            const bool causal = FmhaPipeline::kHasMask && kargs.window_size_left < 0 &&
                                kargs.window_size_right == 0;
            const bool top_left =
                FmhaPipeline::kHasMask &&
                kargs.mask_type ==
                    static_cast<index_t>(GenericAttentionMaskEnum::MASK_FROM_TOP_LEFT);
            return ckpm::prefill::AlibiBias{
                slope * log2e_v<float>, causal, top_left ? 0 : at.seqlen_k - at.seqlen_q};
        }
        else if constexpr(FmhaPipeline::kHasBias)
        {
            const auto* bias = static_cast<const BiasDataType*>(kargs.bias_ptr) +
                               at.query_start * kargs.stride_bias +
                               static_cast<long_index_t>(at.head) * kargs.nhead_stride_bias;
            return [=, stride = kargs.stride_bias, keys = at.seqlen_k](index_t row,
                                                                       index_t column) {
                // rows and keys past the end are the last ones again: masked, or stored nowhere
                const long_index_t place = static_cast<long_index_t>(min(row, last)) * stride;
                return type_convert<float>(bias[place + min(column, keys - 1)]) * log2e_v<float>;
            };
        }
        else
            return null_type{};
    }

    CK_TILE_DEVICE static auto random_window(const Kargs& kargs, const Place& at)
    {
        constexpr auto lengths = make_tuple(number<kM0>{}, number<FmhaPipeline::kN0>{});
        if constexpr(FmhaPipeline::kHasDropout)
        {
            auto* random    = static_cast<uint8_t*>(kargs.rand_val_ptr) +
                              at.query_start * kargs.stride_randval +
                              static_cast<long_index_t>(at.head) * kargs.nhead_stride_randval;
            const auto view = pad_tensor_view(make_naive_tensor_view<address_space_enum::global>(
                                                  random,
                                                  make_tuple(at.seqlen_q, at.seqlen_k),
                                                  make_tuple(kargs.stride_randval, 1),
                                                  number<1>{},
                                                  number<1>{}),
                                              lengths,
                                              sequence<true, true>{});
            return make_tile_window(view, lengths, {at.first, 0});
        }
        else
            return make_null_tile_window(lengths);
    }

    CK_TILE_DEVICE static auto dropout_of(const Kargs& kargs, const Place& at)
    {
        if constexpr(FmhaPipeline::kHasDropout)
        {
            const auto number_of = [&](uint64_t given) {
                return kargs.drop_by_pointer ? *reinterpret_cast<const uint64_t*>(given) : given;
            };
            return BlockDropout{at.batch,
                                at.head,
                                kargs.nhead_q,
                                number_of(kargs.drop_seed),
                                number_of(kargs.drop_offset),
                                kargs.rp_undrop,
                                kargs.keep_up_to,
                                kargs.store_randval};
        }
        else
            return NullBlockDropout{};
    }
};

} // namespace ck_tile

// Batch prefill whose keys are split among workgroups, for few queries: the kernel of the splits
// and the kernel that combines them.
//
// A workgroup takes a range of the keys of one KV head of one sequence. Its rows are the queries of
// all heads of the KV head, so K and V are read once for all of them. It writes O and the logarithm
// of the sum of weights in float32. Where a split begins depends on the sequence's own keys alone,
// and splits are combined in their order.
#pragma once

#include "ck_tile/core.hpp"
#include "ck_tile/host/kernel_launch.hpp"
#include "ck_tile/ops/epilogue/default_2d_epilogue.hpp"
#include "ckpm_prefill/launch.hpp"
#include "ckpm_prefill/pipeline.hpp"
#include "fmha_fwd.hpp"

#include <algorithm>

namespace ck_tile {

// Rows of the workspace are [sequence, split, KV head, query, head of the KV head].
struct FmhaBatchPrefillSplitKargs : FmhaBatchPrefillKargs
{
    float* o_acc;
    float* lse_acc;
    index_t split_keys, num_splits, row_tiles;
    mdiv heads; // of a KV head
};

} // namespace ck_tile

namespace ckpm::prefill {

using SplitKargs = ck_tile::FmhaBatchPrefillSplitKargs;

constexpr index_t MAX_SPLITS = 128; // a lane of the combining wave has two

// Keys of a split: `split_keys`, or more where `num_splits` of these don't reach the sequence's
// end.
CK_TILE_DEVICE index_t keys_of_split(const SplitKargs& kargs, index_t seqlen_k)
{
    constexpr index_t kStep = 128; // of the pipeline's loop
    const index_t even = ck_tile::integer_divide_ceil(seqlen_k, kargs.num_splits * kStep) * kStep;
    return ck_tile::max(kargs.split_keys, even);
}

// A sequence without keys has one split, which writes zeros.
CK_TILE_DEVICE index_t splits_of(index_t seqlen_k, index_t keys)
{
    return ck_tile::max(ck_tile::integer_divide_ceil(seqlen_k, keys), 1);
}

// The first row of a KV head of a sequence in a split's part of the workspace.
CK_TILE_DEVICE long_index_t first_row(const SplitKargs& kargs, const Place& at, index_t split)
{
    const long_index_t before = at.query_start * kargs.num_splits + split * at.seqlen_q;
    return before * kargs.nhead_q + at.kv_head * at.seqlen_q * kargs.nhead_ratio_qk;
}

} // namespace ckpm::prefill

namespace ck_tile {

template <typename FmhaPipeline_>
struct FmhaBatchPrefillSplitKernel
{
    using FmhaPipeline = remove_cvref_t<FmhaPipeline_>;
    using Problem      = typename FmhaPipeline::Problem;
    using Traits       = typename Problem::Traits;
    using Kargs        = FmhaBatchPrefillSplitKargs;
    using QDataType    = typename Problem::QDataType;
    using Cached       = typename Problem::CacheDataType;

    static constexpr bool kMixed         = !std::is_same_v<Cached, QDataType>;
    static constexpr index_t kBlockSize  = FmhaPipeline::kBlockSize;
    static constexpr index_t kBlockPerCu = FmhaPipeline::kBlockPerCu;
    static constexpr index_t kM0         = FmhaPipeline::kM0;
    static constexpr index_t kN1         = FmhaPipeline::kN1;
    static_assert(!FmhaPipeline::kHasBias && !FmhaPipeline::kHasAlibi && !FmhaPipeline::kHasDropout,
                  "their numbers are found by the rows of one head");

    // Tiles of rows run fastest: those that read the same keys are at work at the same time.
    CK_TILE_HOST static auto GridSize(const Kargs& kargs, index_t batch, index_t nhead_k)
    {
        return dim3(kargs.row_tiles * kargs.num_splits, nhead_k, batch);
    }

    CK_TILE_HOST static constexpr auto BlockSize() { return dim3(kBlockSize); }

    CK_TILE_DEVICE void operator()(Kargs kargs) const
    {
        alignas(128) __shared__ char lds[FmhaPipeline::GetSmemSize()];

        const index_t split = scalar(blockIdx.x / kargs.row_tiles);
        Place at = ckpm::prefill::place_of_workgroup<Traits>(kargs,
                                                             kM0,
                                                             blockIdx.x - split * kargs.row_tiles,
                                                             blockIdx.y * kargs.nhead_ratio_qk,
                                                             blockIdx.z);
        at.first = scalar(at.first);
        at.seqlen_q        = scalar(at.seqlen_q);
        at.kv_head         = scalar(at.kv_head);
        at.query_start     = scalar(static_cast<index_t>(at.query_start));
        const index_t rows = at.seqlen_q * kargs.nhead_ratio_qk;
        const index_t keys = scalar(ckpm::prefill::keys_of_split(kargs, at.seqlen_k));
        if(at.first >= rows || split >= ckpm::prefill::splits_of(at.seqlen_k, keys))
            return;
        auto args         = arguments(kargs, at, rows, split * keys, keys);
        const auto q      = load_q(kargs, at);
        auto result       = FmhaPipeline{}(q, args, lds);
        const float scale = result.v_scale * ckpm::prefill::v_descale<Traits, kMixed>(kargs, at);

        const long_index_t row = ckpm::prefill::first_row(kargs, at, split) + at.first;
        store_lse(kargs.lse_acc + row, rows - at.first, result.softmax);
        auto by = result.softmax.sum;
        tile_elementwise_inout([&](auto& sum) { sum = sum == 0.f ? 0.f : scale / sum; }, by);
        ckpm::prefill::scale_rows(result.out, by);
        store_o(kargs.o_acc + row * kargs.hdim_v, rows - at.first, kargs.hdim_v, result.out);
    }

private:
    using Place     = ckpm::prefill::Place;
    using ScoreMask = typename FmhaPipeline::ScoreMask;

    // What all lanes share, which LLVM doesn't see where the head dims of Q and V differ: it
    // freezes all arguments at once, and stores take no descriptor from vector registers.
    CK_TILE_DEVICE static index_t scalar(index_t shared)
    {
        return __builtin_amdgcn_readfirstlane(shared);
    }

    CK_TILE_DEVICE static auto arguments(
        const Kargs& kargs, const Place& at, index_t rows, index_t begin, index_t keys)
    {
        const index_t end   = min(begin + keys, at.seqlen_k);
        const index_t first = at.first; // of the KV head's rows; a sink is of a row of the tile
        const auto* sinks   = static_cast<const float*>(kargs.sink_ptr);
        const auto sink_of  = [=, heads = kargs.heads, head = at.head](index_t row) {
            // one split has the sink; rows past the end are stored nowhere
            if(sinks == nullptr || begin > 0)
                return -numeric<float>::infinity();
            const index_t own = min(first + row, rows - 1);
            return sinks[head + own - static_cast<index_t>(heads.div(own) * heads.get())] *
                   log2e_v<float>;
        };
        const auto random =
            make_null_tile_window(make_tuple(number<kM0>{}, number<FmhaPipeline::kN0>{}));
        using Arguments =
            typename FmhaPipeline::template Arguments<null_type,
                                                      remove_cvref_t<decltype(random)>,
                                                      NullBlockDropout,
                                                      remove_cvref_t<decltype(sink_of)>>;
        const float natural  = kargs.scale_s * ckpm::prefill::qk_descale<Traits, kMixed>(kargs, at);
        const float cap_base = kargs.logits_soft_cap;
        return Arguments{
            ckpm::prefill::k_view<Traits, Cached>(kargs, at),
            ckpm::prefill::v_view<Traits, Cached>(kargs, at),
            {ckpm::prefill::mask_of<typename ScoreMask::Whole>(kargs, at), kargs.heads, begin, end},
            at.first,
            min(at.first + kM0, rows) - 1,
            natural * log2e_v<float>,
            cap_base * log2e_v<float>,
            cap_base > 0.f ? natural / cap_base : 0.f,
            sink_of,
            ckpm::prefill::block_scales(kargs, at, kargs.k_descale_ptr),
            ckpm::prefill::block_scales(kargs, at, kargs.v_descale_ptr),
            kargs.nblock_stride_kv_block_descale,
            {},
            random,
            {},
            nullptr};
    }

    CK_TILE_DEVICE static auto load_q(const Kargs& kargs, const Place& at)
    {
        const auto* q          = static_cast<const QDataType*>(kargs.q_ptr) +
                                 at.query_start * kargs.stride_q +
                                 static_cast<long_index_t>(at.head) * kargs.nhead_stride_q;
        constexpr auto lengths = make_tuple(number<kM0>{}, number<FmhaPipeline::kHeadDim>{});
        const auto by_head     = make_naive_tensor_view<address_space_enum::global>(
            q,
            make_tuple(at.seqlen_q, kargs.nhead_ratio_qk, kargs.hdim_q),
            make_tuple(kargs.stride_q, kargs.nhead_stride_q, 1),
            number<FmhaPipeline::QPolicy::template GetAlignmentQ<Problem>()>{},
            number<1>{});
        const auto by_row = transform_tensor_view(
            by_head,
            make_tuple(make_merge_transform(make_tuple(at.seqlen_q, kargs.nhead_ratio_qk)),
                       make_pass_through_transform(kargs.hdim_q)),
            make_tuple(sequence<0, 1>{}, sequence<2>{}),
            make_tuple(sequence<0>{}, sequence<1>{}));
        return load_tile(
            make_tile_window(pad_tensor_view(by_row, lengths, sequence<true, true>{}),
                             lengths,
                             {at.first, 0},
                             FmhaPipeline::QPolicy::template MakeQRegTileDistribution<Problem>()));
    }

    CK_TILE_DEVICE static void store_o(float* o,
                                       index_t rows,
                                       index_t hdim_v,
                                       const typename FmhaPipeline::OutTile& out)
    {
        constexpr auto lengths = make_tuple(number<kM0>{}, number<kN1>{});
        const auto view        = pad_tensor_view(
            make_naive_tensor_view<address_space_enum::global>(
                o, make_tuple(rows, hdim_v), make_tuple(hdim_v, 1), number<1>{}, number<1>{}),
            lengths,
            sequence<true, true>{});
        auto window = make_tile_window(view, lengths, {0, 0});
        Default2DEpilogue<Default2DEpilogueProblem<float, float, true, true>>{}(
            window, out, nullptr);
    }

    // In base 2. Of a row that sees no key of the split: -inf.
    CK_TILE_DEVICE static void store_lse(float* lse,
                                         index_t rows,
                                         const typename FmhaPipeline::Softmax& sums)
    {
        constexpr auto lengths = make_tuple(number<kM0>{});
        const auto view =
            pad_tensor_view(make_naive_tensor_view<address_space_enum::global>(
                                lse, make_tuple(rows), make_tuple(1), number<1>{}, number<1>{}),
                            lengths,
                            sequence<true>{});
        auto logs = sums.origin;
        sweep_tile_span(decltype(logs)::get_distributed_spans()[number<0>{}], [&](auto row) {
            constexpr auto i = make_tuple(row);
            logs(i) = sums.sum[i] == 0.f ? -numeric<float>::infinity()
                                         : sums.origin[i] + __builtin_amdgcn_logf(sums.sum[i]) -
                                               static_cast<float>(FmhaPipeline::kWeightShift);
        });
        auto window = make_tile_window(view, lengths, {0});
        store_tile(window, logs);
    }
};

// Combines the splits: a wave takes a row. Each lane has the logarithms of two splits, 64 apart,
// and kColumns columns of O.
template <typename Problem_>
struct FmhaBatchPrefillSplitCombine
{
    using Problem   = remove_cvref_t<Problem_>;
    using Traits    = typename Problem::Traits;
    using Kargs     = FmhaBatchPrefillSplitKargs;
    using ODataType = typename Problem::ODataType;

    static constexpr index_t kRows       = 4; // of a workgroup
    static constexpr index_t kBlockSize  = kRows * get_warp_size();
    static constexpr index_t kBlockPerCu = 4;
    static constexpr index_t kColumns    = Problem::BlockFmhaShape::kN1 / get_warp_size();
    static constexpr index_t kAtOnce     = 16; // splits whose O is on its way
    static_assert(ckpm::prefill::MAX_SPLITS == 2 * get_warp_size());

    CK_TILE_HOST static auto GridSize(const Kargs& kargs, index_t batch, index_t max_seqlen_q)
    {
        return dim3(integer_divide_ceil(max_seqlen_q * kargs.nhead_ratio_qk, kRows),
                    kargs.nhead_q / kargs.nhead_ratio_qk,
                    batch);
    }

    CK_TILE_HOST static constexpr auto BlockSize() { return dim3(kBlockSize); }

    CK_TILE_DEVICE void operator()(Kargs kargs) const
    {
        const auto at = ckpm::prefill::place_of_workgroup<Traits>(
            kargs, kRows, blockIdx.x, blockIdx.y * kargs.nhead_ratio_qk, blockIdx.z);
        const index_t lane = threadIdx.x % get_warp_size();
        const index_t row  = __builtin_amdgcn_readfirstlane(
            at.first + static_cast<index_t>(threadIdx.x) / get_warp_size());
        if(row >= at.seqlen_q * kargs.nhead_ratio_qk)
            return;
        const index_t splits =
            ckpm::prefill::splits_of(at.seqlen_k, ckpm::prefill::keys_of_split(kargs, at.seqlen_k));
        // row `row` of the first split, and rows from one split to the next
        const long_index_t own  = ckpm::prefill::first_row(kargs, at, 0) + row;
        const long_index_t step = static_cast<long_index_t>(at.seqlen_q) * kargs.nhead_q;

        const auto log_sum = [&](index_t split) {
            return split < splits ? kargs.lse_acc[own + split * step] : -numeric<float>::infinity();
        };
        const float low = log_sum(lane), high = log_sum(lane + get_warp_size());
        const float highest =
            over_wave(ck_tile::max(low, high), [](float a, float b) { return ck_tile::max(a, b); });
        const float from    = highest == -numeric<float>::infinity() ? 0.f : highest;
        const float parts[] = {ck_tile::exp2(low - from), ck_tile::exp2(high - from)};
        const float sum = over_wave(parts[0] + parts[1], [](float a, float b) { return a + b; });
        const float by  = sum == 0.f ? 0.f : 1.f / sum;

        // lanes past the end read the last columns again: each lane has a weight that all need
        // unsigned, beside addresses that all lanes share: one register serves all loads, and no
        // load overwrites it
        const uint32_t column = ck_tile::min(static_cast<uint32_t>(lane * kColumns),
                                             static_cast<uint32_t>(kargs.hdim_v - kColumns));
        const index_t query   = kargs.heads.div(row);
        const index_t head    = at.head + row - query * kargs.nhead_ratio_qk;
        const auto* o_acc     = kargs.o_acc + own * kargs.hdim_v;
        float out[kColumns]   = {};
        for(index_t first = 0; first < splits; first += kAtOnce)
            add_splits(out,
                       o_acc,
                       column,
                       step * kargs.hdim_v,
                       first,
                       splits,
                       (first < get_warp_size() ? parts[0] : parts[1]) * by);
        if(lane * kColumns < kargs.hdim_v)
        {
            auto* o = static_cast<ODataType*>(kargs.o_ptr) +
                      (at.query_start + query) * kargs.stride_o +
                      static_cast<long_index_t>(head) * kargs.nhead_stride_o + column;
            for(index_t i = 0; i < kColumns; ++i)
                o[i] = type_convert<ODataType>(out[i]);
        }
        if constexpr(Traits::kStoreLSE)
        {
            if(lane == 0)
                static_cast<float*>(
                    kargs.lse_ptr)[static_cast<long_index_t>(head) * kargs.nhead_stride_lse +
                                   at.query_start + query] =
                    sum == 0.f ? -numeric<float>::infinity()
                               : (highest + __builtin_amdgcn_logf(sum)) * (1.f / log2e_v<float>);
        }
    }

private:
    template <typename F>
    CK_TILE_DEVICE static float over_wave(float value, F&& f)
    {
        for(index_t distance = get_warp_size() / 2; distance > 0; distance /= 2)
            value = f(value, warp_shuffle(value, get_lane_id() ^ distance));
        return value;
    }

    // Adds splits from `first` on. Past the last one, that is read again with a weight of 0.
    CK_TILE_DEVICE static void add_splits(float (&out)[kColumns],
                                          const float* o,
                                          uint32_t column,
                                          long_index_t step,
                                          index_t first,
                                          index_t splits,
                                          float weight)
    {
        using Global = const __attribute__((address_space(1))) float*;
        float parts[kAtOnce][kColumns];
        static_for<0, kAtOnce, 1>{}([&](auto i) {
            auto own = reinterpret_cast<Global>(
                reinterpret_cast<uintptr_t>(o + min(first + i, splits - 1) * step));
            asm("" : "+s"(own)); // else the compiler adds the column first, and has 16 addresses
            static_for<0, kColumns, 1>{}([&](auto j) { parts[i][j] = (own + column)[j]; });
        });
        static_for<0, kAtOnce, 1>{}([&](auto i) {
            const float by = bit_cast<float>(__builtin_amdgcn_readlane(
                bit_cast<int32_t>(weight), (first + i) % get_warp_size()));
            static_for<0, kColumns, 1>{}([&](auto j) { out[j] += by * parts[i][j]; });
        });
    }
};

} // namespace ck_tile

namespace ckpm::prefill {

// The launch of both kernels. `Kernel` is the kernel of the splits.
template <typename Kernel>
float launch_split(const ck_tile::stream_config& stream, const fmha_batch_prefill_args& args)
{
    using ck_tile::make_kernel;
    using Combine = ck_tile::FmhaBatchPrefillSplitCombine<typename Kernel::Problem>;
    struct Shared
    {
        static dim3 GridSize(index_t, index_t, index_t) { return {}; }
    };
    SplitKargs kargs{fmha_batch_prefill_create_kargs_and_grids<Shared>(args).first};
    const index_t rows = args.max_seqlen_q * kargs.nhead_ratio_qk;
    kargs.o_acc        = static_cast<float*>(args.o_acc_ptr);
    kargs.lse_acc      = static_cast<float*>(args.lse_acc_ptr);
    kargs.split_keys   = args.split_keys;
    kargs.num_splits   = ck_tile::integer_divide_ceil(std::max(args.seqlen_k, 1), args.split_keys);
    kargs.row_tiles    = ck_tile::integer_divide_ceil(rows, Kernel::kM0);
    kargs.heads        = ck_tile::mdiv(kargs.nhead_ratio_qk);
    return ck_tile::launch_kernel(
        stream,
        make_kernel<Kernel::kBlockPerCu>(Kernel{},
                                         Kernel::GridSize(kargs, args.batch, args.nhead_k),
                                         Kernel::BlockSize(),
                                         0,
                                         kargs),
        make_kernel<Combine::kBlockPerCu>(Combine{},
                                          Combine::GridSize(kargs, args.batch, args.max_seqlen_q),
                                          Combine::BlockSize(),
                                          0,
                                          kargs));
}

} // namespace ckpm::prefill

// From scores to weights, tile after tile: a row's largest score and sum so far, in base 2.
#pragma once

#include "ck_tile/core.hpp"
#include "ck_tile/ops/reduce/block/block_reduce.hpp"

#include <utility>

namespace ckpm::prefill {

using ck_tile::index_t;

// How far an element of a distributed tile lies from the thread's first one along X dimension kDim.
// A distribution is linear: each Y index counts steps of a fixed length.
template <typename Encoding, index_t kDim, index_t... kIndices>
CK_TILE_DEVICE constexpr index_t offset_in_tile(ck_tile::sequence<kIndices...>)
{
    using namespace ck_tile;
    index_t offset = 0;
    static_for<0, Encoding::NDimY, 1>{}([&](auto y) {
        constexpr index_t dim = Encoding::detail::ys_to_span_major_[y];
        if constexpr(dim == kDim)
        {
            constexpr auto lengths  = Encoding::hs_lengthss_[number<kDim>{}];
            constexpr index_t minor = Encoding::ys_to_rhs_minor_[y];
            index_t step            = 1;
            for(index_t h = minor + 1; h < lengths.size(); ++h)
                step *= lengths.at(h);
            offset += sequence<kIndices...>::at(Encoding::detail::ys_to_span_minor_[y]) * step;
        }
    });
    return offset;
}

// Calls f(indices, row, first, offset) for each element of a thread's part of a distributed tile
// [row, column]: its column is first + offset. Unrolled, `offset` is a constant, and what depends
// on row and `first` alone is computed once for a row.
template <typename Tile, typename F>
CK_TILE_DEVICE void for_each_place(Tile& tile, F&& f)
{
    using namespace ck_tile;
    constexpr auto distribution = Tile::get_tile_distribution();
    using Encoding              = typename remove_cvref_t<decltype(distribution)>::DstrEncode;
    const auto first            = distribution.calculate_index();
    constexpr auto spans        = Tile::get_distributed_spans();
    sweep_tile_span(spans[number<0>{}], [&](auto row_index) {
        constexpr index_t row = offset_in_tile<Encoding, 0>(row_index.impl_);
        sweep_tile_span(spans[number<1>{}], [&](auto column_index) {
            constexpr index_t column = offset_in_tile<Encoding, 1>(column_index.impl_);
            f(make_tuple(row_index, column_index),
              first.at(number<0>{}) + row,
              first.at(number<1>{}),
              column);
        });
    });
}

struct Larger
{
    CK_TILE_DEVICE float operator()(float a, float b) const { return ck_tile::max(a, b); }
};

struct Plus
{
    CK_TILE_DEVICE float operator()(float a, float b) const { return a + b; }
};

// One number for each row of a distributed tile
template <typename Tile>
using RowOf = ck_tile::remove_cvref_t<decltype(ck_tile::block_tile_reduce<float>(
    std::declval<const Tile&>(), ck_tile::sequence<1>{}, Plus{}, 0.f))>;

// What ALiBi adds to a score, times log2(e): slope * key under a causal mask, which differs from
// the distance by a number for each row; else -slope * distance, from the corner where the mask
// begins.
struct AlibiBias
{
    float slope; // in base 2
    bool causal;
    index_t shift; // the key on the diagonal of row 0

    CK_TILE_DEVICE float operator()(index_t row, index_t column) const
    {
        const index_t off      = row + shift - column;
        const index_t distance = causal ? column : off < 0 ? off : -off;
        return slope * static_cast<float>(distance);
    }
};

// Running maximum and sum of a tile's rows. `Row` is a distributed tile of rows.
//
// Weights are relative to a row's `origin`, which follows its largest score only when that has run
// ahead by more than SLACK: until then weights are larger than 1, O and sum need no rescaling, and
// the quotient is the same. What a row's origin does depends on no other row.
template <typename Row>
struct OnlineSoftmax
{
    static constexpr float SLACK = 8.f; // in base 2: weights of up to 256 are far from fp16's end

    Row origin; // in base 2, -inf before the first key
    Row sum;    // of the weights

    // `logit` is the score of a key that every row has besides: a sink. -inf for none.
    CK_TILE_DEVICE void start(float logit, float weight)
    {
        ck_tile::set_tile(origin, logit);
        ck_tile::set_tile(sum, logit != -ck_tile::numeric<float>::infinity() ? weight : 0.f);
    }

    // The same with a logit of each row.
    template <typename LogitOfRow>
    CK_TILE_DEVICE void start(const LogitOfRow& logit_of, float weight)
    {
        using namespace ck_tile;
        constexpr auto distribution = Row::get_tile_distribution();
        using Encoding              = typename remove_cvref_t<decltype(distribution)>::DstrEncode;
        const auto first            = distribution.calculate_index();
        sweep_tile_span(Row::get_distributed_spans()[number<0>{}], [&](auto row) {
            constexpr auto i         = make_tuple(row);
            constexpr index_t offset = offset_in_tile<Encoding, 0>(row.impl_);
            const float logit        = logit_of(first.at(number<0>{}) + offset);
            origin(i)                = logit;
            sum(i)                   = logit != -numeric<float>::infinity() ? weight : 0.f;
        });
    }

    // Takes a tile's scores (times `scale` they are in base 2) and leaves weights, times 2^kShift,
    // in their place: a shifted weight fills its format, and its origin always follows. Rescales
    // sum, and returns by how much what was accumulated must be rescaled.
    template <index_t kShift, typename Scores>
    CK_TILE_DEVICE Row update(Scores& scores, float scale)
    {
        using namespace ck_tile;
        constexpr float slack = kShift == 0 ? SLACK : 0.f;
        const Larger larger;
        const Plus plus;

        auto tile_highest =
            block_tile_reduce<float>(scores, sequence<1>{}, larger, -numeric<float>::infinity());
        block_tile_reduce_sync(tile_highest, larger, bool_constant<false>{});

        Row factor, shift;
        constexpr auto rows = Row::get_distributed_spans()[number<0>{}];
        sweep_tile_span(rows, [&](auto row) {
            constexpr auto i    = make_tuple(row);
            const float highest = tile_highest[i] * scale;
            const bool follows  = highest > origin[i] + slack;
            const float fresh   = follows ? highest : origin[i];
            // a row without a key so far: any finite origin gives weights of 0
            const float from = fresh == -numeric<float>::infinity() ? 0.f : fresh;
            factor(i)        = follows ? ck_tile::exp2(origin[i] - from) : 1.f;
            shift(i)         = from - static_cast<float>(kShift);
            origin(i)        = fresh;
        });

        constexpr auto spans = Scores::get_distributed_spans();
        sweep_tile_span(spans[number<0>{}], [&](auto row) {
            const float from = shift[make_tuple(row)];
            sweep_tile_span(spans[number<1>{}], [&](auto column) {
                constexpr auto i = make_tuple(row, column);
                scores(i)        = ck_tile::exp2(scores[i] * scale - from);
            });
        });

        auto tile_sum = block_tile_reduce<float>(scores, sequence<1>{}, plus, 0.f);
        block_tile_reduce_sync(tile_sum, plus, bool_constant<false>{});
        sweep_tile_span(rows, [&](auto row) {
            constexpr auto i = make_tuple(row);
            sum(i)           = factor[i] * sum[i] + tile_sum[i];
        });
        return factor;
    }
};

// Whether any row of the wave has a factor other than 1.
template <typename Row>
CK_TILE_DEVICE bool any_changes(const Row& factor)
{
    using namespace ck_tile;
    bool changes = false;
    sweep_tile_span(Row::get_distributed_spans()[number<0>{}],
                    [&](auto row) { changes |= factor[make_tuple(row)] != 1.f; });
    return __builtin_amdgcn_ballot_w64(changes) != 0;
}

// Multiplies each row of a tile with its factor.
template <typename Tile, typename Row>
CK_TILE_DEVICE void scale_rows(Tile& tile, const Row& factor)
{
    using namespace ck_tile;
    constexpr auto spans = Tile::get_distributed_spans();
    sweep_tile_span(spans[number<0>{}], [&](auto row) {
        const float by = factor[make_tuple(row)];
        sweep_tile_span(spans[number<1>{}], [&](auto column) {
            constexpr auto i = make_tuple(row, column);
            tile(i) *= by;
        });
    });
}

} // namespace ckpm::prefill

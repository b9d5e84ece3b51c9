// Which keys a query sees, and which tiles of keys a tile of queries must visit.
#pragma once

#include "ck_tile/core.hpp"
#include "ck_tile/ops/fmha/block/block_masking.hpp"

namespace ckpm::prefill {

using ck_tile::index_t;

// Query `row` sees key `column` if row - y < column < row + x: CK's generic mask coordinates.
// Besides, sink tokens (column < sink_size) are seen up to the right bound, where the window has a
// left bound.
template <bool kHasMask, bool kHasSink>
struct ScoreBounds
{
    static constexpr bool kMasks = kHasMask;

    index_t y, x, seqlen_q, seqlen_k, sink_size;

    CK_TILE_DEVICE bool sinks_count() const
    {
        if constexpr(kHasSink)
            return sink_size > 0 && y < seqlen_q;
        else
            return false;
    }

    // The keys of a row: [left_end(row), right_end(row)), and sink tokens: [0, sinks_end(row)).
    CK_TILE_DEVICE index_t right_end(index_t row) const
    {
        if constexpr(!kHasMask)
            return seqlen_k;
        return ck_tile::min(row + x, seqlen_k);
    }

    CK_TILE_DEVICE index_t left_end(index_t row) const { return row - y + 1; }

    CK_TILE_DEVICE index_t sinks_end(index_t row) const
    {
        return sinks_count() && row < seqlen_k ? sink_size : 0;
    }

    // Whether no query of rows from `first` has its right bound before the end of keys [start,
    // start + kN0).
    template <index_t kN0>
    CK_TILE_DEVICE bool right_sees_all(index_t first, index_t start) const
    {
        return start + kN0 <= right_end(first);
    }

    // Whether no query of rows up to `last` has its left bound after `start`.
    CK_TILE_DEVICE bool left_sees_all(index_t last, index_t start) const
    {
        if constexpr(!kHasMask)
            return true;
        return left_end(last) <= start;
    }
};

// The tiles of keys of one tile of queries: those that hold sink tokens before the window, then the
// window's. No tile lies past seqlen_k.
template <index_t kN0>
struct KeyTiles
{
    index_t sinks, window, window_start;

    CK_TILE_DEVICE index_t count() const { return sinks + window; }

    // where tile `index` starts; past the last one, where the last does
    CK_TILE_DEVICE index_t start_of(index_t index) const
    {
        const index_t tile = ck_tile::min(index, count() - 1);
        return tile < sinks ? tile * kN0 : window_start + (tile - sinks) * kN0;
    }
};

template <index_t kN0, bool kHasMask, bool kHasSink>
CK_TILE_DEVICE KeyTiles<kN0> key_tiles(const ScoreBounds<kHasMask, kHasSink>& bounds,
                                       index_t first,
                                       index_t last)
{
    if constexpr(!kHasMask)
        return {0, ck_tile::integer_divide_ceil(bounds.seqlen_k, kN0), 0};
    const index_t start = ck_tile::max(first - bounds.y + 1, 0) / kN0 * kN0;
    const index_t end   = ck_tile::min(last + bounds.x, bounds.seqlen_k);
    const index_t window =
        end > start ? ck_tile::integer_divide_ceil(end - start, kN0) : index_t{0};
    index_t sinks = 0;
    if constexpr(kHasSink)
    {
        const index_t sink_end = ck_tile::min(end, bounds.sink_size);
        if(bounds.sinks_count() && sink_end > 0)
            sinks = ck_tile::min(ck_tile::integer_divide_ceil(sink_end, kN0), start / kN0);
    }
    return {sinks, window, start};
}

// The bounds of a workgroup of a split: row is query * heads + head of the KV head, and the keys
// are [begin, end). `begin` is a multiple of kN0.
template <bool kHasMask, bool kHasSink>
struct SplitBounds
{
    static constexpr bool kMasks = kHasMask;
    using Whole                  = ScoreBounds<kHasMask, kHasSink>;

    Whole whole;
    ck_tile::mdiv heads;
    index_t begin, end;

    CK_TILE_DEVICE index_t query(index_t row) const { return heads.div(row); }

    CK_TILE_DEVICE index_t right_end(index_t row) const
    {
        if constexpr(!kHasMask)
            return end;
        return ck_tile::min(whole.right_end(query(row)), end);
    }

    CK_TILE_DEVICE index_t left_end(index_t row) const { return whole.left_end(query(row)); }

    CK_TILE_DEVICE index_t sinks_end(index_t row) const { return whole.sinks_end(query(row)); }

    template <index_t kN0>
    CK_TILE_DEVICE bool right_sees_all(index_t first, index_t start) const
    {
        return start + kN0 <= right_end(first);
    }

    CK_TILE_DEVICE bool left_sees_all(index_t last, index_t start) const
    {
        return whole.left_sees_all(query(last), start);
    }
};

// The tiles of keys of one split: those of KeyTiles that lie in it.
template <index_t kN0>
struct SplitTiles
{
    index_t sinks, window, sinks_start, window_start;

    CK_TILE_DEVICE index_t count() const { return sinks + window; }

    CK_TILE_DEVICE index_t start_of(index_t index) const
    {
        const index_t tile = ck_tile::min(index, count() - 1);
        return tile < sinks ? sinks_start + tile * kN0 : window_start + (tile - sinks) * kN0;
    }
};

template <index_t kN0, bool kHasMask, bool kHasSink>
CK_TILE_DEVICE SplitTiles<kN0> key_tiles(const SplitBounds<kHasMask, kHasSink>& bounds,
                                         index_t first,
                                         index_t last)
{
    const auto all = key_tiles<kN0>(bounds.whole, bounds.query(first), bounds.query(last));
    // tiles `from` to `to`, less those before and after the split
    const index_t begin = bounds.begin / kN0;
    const index_t end   = ck_tile::integer_divide_ceil(bounds.end, kN0);
    const auto count    = [&](index_t from, index_t to) {
        return ck_tile::max(ck_tile::min(to, end) - ck_tile::max(from, begin), 0);
    };
    const index_t window = all.window_start / kN0;
    return {count(0, all.sinks),
            count(window, window + all.window),
            bounds.begin,
            ck_tile::max(all.window_start, bounds.begin)};
}

} // namespace ckpm::prefill

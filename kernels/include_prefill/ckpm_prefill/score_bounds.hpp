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
    index_t y, x, seqlen_q, seqlen_k, sink_size;

    CK_TILE_DEVICE bool sinks_count() const
    {
        if constexpr(kHasSink)
            return sink_size > 0 && y < seqlen_q;
        else
            return false;
    }

    CK_TILE_DEVICE bool sees(index_t row, index_t column) const
    {
        if constexpr(!kHasMask)
            return column < seqlen_k;
        const bool right = column < ck_tile::min(row + x, seqlen_k);
        const bool left  = column > row - y;
        if constexpr(kHasSink)
            return right && (left || (sinks_count() && column < sink_size && row < seqlen_k));
        return right && left;
    }

    // Whether every query of rows [first, last] sees every key of [start, start + kN0).
    template <index_t kN0>
    CK_TILE_DEVICE bool sees_all(index_t first, index_t last, index_t start) const
    {
        if constexpr(!kHasMask)
            return start + kN0 <= seqlen_k;
        return start + kN0 <= ck_tile::min(first + x, seqlen_k) && start > last - y;
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

} // namespace ckpm::prefill

// K of a tile of keys, stage by stage, from the cache through registers to LDS as [key, head dim].
//
// Loads straight into LDS (global_load_lds) would save the registers and the stores. They write a
// wave's lanes side by side, so rows would lie in LDS as they lie in memory, and reads of a column
// would meet in the same banks, or take an address of their own for each step; gfx942 has them for
// single dwords alone; and the compiler sees no use of their data, so waits would be counted by
// hand.
#pragma once

#include "ckpm_prefill/cached_type.hpp"
#include "ckpm_prefill/lds_tile.hpp"
#include "ckpm_prefill/paged_cache.hpp"

namespace ckpm::prefill {

// `Cached` is K's type in the cache, T in LDS.
template <typename T,
          typename Cached,
          index_t kN0,
          index_t kHeadDim,
          index_t kPageSize,
          LoadPath kPath,
          bool kVectorized,
          index_t kBlockSize>
struct KLoader
{
    using Lds    = LdsTile<T, kN0>;
    using Reader = CacheReader<kPath, kPageSize>;
    using Chunk  = CachedChunk<T, Cached>;

    static constexpr index_t kStages = kHeadDim / Lds::kColumns;
    static constexpr index_t kReads  = STAGE_BYTES / (kBlockSize * CHUNK_BYTES); // of a thread
    static_assert(kHeadDim % Lds::kColumns == 0 &&
                  kReads * kBlockSize * CHUNK_BYTES == STAGE_BYTES);

    // Threads lie along what is contiguous in memory: a token's row, or one chunk of all tokens.
    static constexpr index_t kRowStep   = kVectorized ? 0 : kBlockSize / Lds::kChunks;
    static constexpr index_t kChunkStep = kVectorized ? kBlockSize / kN0 : 0;
    static constexpr index_t kLookups =
        kPath == LoadPath::PAGE_DESCRIPTOR || kVectorized ? 1 : kReads;

    CK_TILE_DEVICE KLoader(const CacheView& view)
        : view_(view),
          row_(kVectorized ? ck_tile::get_thread_local_1d_id() % kN0
                           : ck_tile::get_thread_local_1d_id() / Lds::kChunks),
          chunk_(kVectorized ? ck_tile::get_thread_local_1d_id() / kN0
                             : ck_tile::get_thread_local_1d_id() % Lds::kChunks)
    {}

    // Reads the page ids of the tile that starts at `start`. They are used by read() of this tile.
    CK_TILE_DEVICE void lookup(index_t start)
    {
        start_ = start;
        ck_tile::static_for<0, kLookups, 1>{}([&](auto i) {
            constexpr bool one = kPath == LoadPath::PAGE_DESCRIPTOR;
            pages_[i.value]    = Reader::lookup(view_, one ? start : token(i.value));
        });
    }

    template <index_t kStage>
    CK_TILE_DEVICE void read()
    {
        if constexpr(kStage == 0)
            reader_.enter(view_, pages_[0], live_bytes());
        ck_tile::static_for<0, kReads, 1>{}([&](auto i) {
            if constexpr(kStage == 0)
            {
                constexpr index_t lookup = kLookups == 1 ? 0 : i.value;
                const index_t slot       = Reader::slot_of(view_, token(i.value));
                const index_t row        = slot * (kVectorized ? CHUNK_BYTES : view_.token_bytes);
                places_[i.value] =
                    Reader::place(view_, pages_[lookup], row + column_offset<0>(i.value));
            }
            const index_t step = column_offset<kStage>(i.value) - column_offset<0>(i.value);
            staged_[i.value] = reader_.template read<typename Chunk::Bits>(places_[i.value] + step);
        });
    }

    CK_TILE_DEVICE void write(char* lds) const
    {
        ck_tile::static_for<0, kReads, 1>{}([&](auto i) {
            store_lds(lds,
                      Lds::offset(row_ + i.value * kRowStep, chunk_ + i.value * kChunkStep),
                      Chunk::widen(staged_[i.value]));
        });
    }

private:
    // Of a read's chunk in its token's row. Chunks past the head dim are its last one again: Q is 0
    // there.
    template <index_t kStage>
    CK_TILE_DEVICE index_t column_offset(index_t i) const
    {
        const index_t chunk = ck_tile::min(chunk_ + i * kChunkStep + kStage * Lds::kChunks,
                                           view_.row_bytes / Chunk::kBytes - 1);
        if constexpr(kVectorized && Chunk::kWidens)
            return chunk / Chunk::kInVector * Reader::tokens_of_page(view_) * CHUNK_BYTES +
                   chunk % Chunk::kInVector * Chunk::kBytes;
        return chunk * (kVectorized ? Reader::tokens_of_page(view_) * CHUNK_BYTES : Chunk::kBytes);
    }

    // Keys past the sequence's last one are that one again: masked later, and never NaN of old.
    CK_TILE_DEVICE index_t token(index_t i) const
    {
        return ck_tile::min(start_ + row_ + i * kRowStep, view_.last_token);
    }

    // Of the tile's page, from the head's first byte: linear pages live up to the sequence's last
    // token.
    CK_TILE_DEVICE index_t live_bytes() const
    {
        if constexpr(kVectorized)
            return view_.head_bytes;
        const index_t page_end = (start_ & ~(kPageSize - 1)) + kPageSize - 1;
        const index_t last     = Reader::slot_of(view_, ck_tile::min(page_end, view_.last_token));
        return last * view_.token_bytes + view_.row_bytes;
    }

    const CacheView& view_;
    index_t row_, chunk_;
    index_t start_ = 0;
    int32_t pages_[kLookups];
    typename Reader::Place places_[kReads]; // of stage 0
    typename Chunk::Bits staged_[kReads];
    Reader reader_;
};

} // namespace ckpm::prefill

// Tiles of K and V on their way from a paged cache into LDS, without a register in between.
//
// Each wave brings 8 tokens of every tile. What it has in flight at most, oldest first: the lookup
// of a page id, with block scales those of a page, a load of K, a load of V. A wait for all but
// kLoadsInFlight therefore ends when lookup and scales have come, and lets the loads fly.
//
// Lookups and loads are inline assembly: of loads into LDS the compiler would wait for all before
// the next read of LDS, and count them otherwise where it waits for a lookup.
#pragma once

#include "ckpm_prefill/paged_cache.hpp"
#include "ckpm_prefill_v3/lds_layout.hpp"

namespace ckpm::prefill::v3 {

inline constexpr int kLoadsInFlight = 2; // of K and of V

template <int kCount>
CK_TILE_DEVICE void wait_for_all_but()
{
    asm volatile("s_waitcnt vmcnt(%0)" ::"n"(kCount) : "memory");
}

// In flight, too: the same for all lanes, in a vector register. A scalar load would be counted with
// the reads of LDS, which then wait for all of each other.
CK_TILE_DEVICE float load_scale(const float* scale)
{
    float value;
    asm volatile("global_load_dword %0, %1, %2" : "=v"(value) : "v"(0), "s"(scale) : "memory");
    return value;
}

template <index_t kPageSize>
class PageStream
{
    static constexpr index_t kOwn = kTokens / 8; // tokens of a tile that a wave brings
    // 8 tokens of a wave are of one page: it has a descriptor, trimmed to the live tokens
    static constexpr bool kDescriptor = kPageSize >= kOwn;

public:
    CK_TILE_DEVICE PageStream(const CacheView& k, const CacheView& v, index_t wave, index_t lane)
        : k_(k),
          v_(v),
          first_(wave * kOwn),
          row_(wave * kOwn + lane / 8),
          k_column_(KLayout::place(row_, lane % 8) * kChunkBytes),
          v_column_(VLayout::place(row_, lane % 8) * kChunkBytes)
    {}

    // The page of the lane's token. It has come after wait_for_all_but<kLoadsInFlight>(), if no
    // other than those were issued behind it.
    CK_TILE_DEVICE int32_t lookup(index_t tile) const
    {
        const uint32_t entry =
            static_cast<uint32_t>(clamped(tile, row_)) / static_cast<uint32_t>(kPageSize);
        int32_t page;
        asm volatile("global_load_dword %0, %1, %2"
                     : "=v"(page)
                     : "v"(entry * 4), "s"(k_.pages)
                     : "memory");
        return page;
    }

    // A page id that has come, where all lanes have the same as a scalar.
    CK_TILE_DEVICE static int32_t settled(int32_t page)
    {
        if constexpr(kDescriptor)
            return __builtin_amdgcn_readfirstlane(page);
        else
            return page;
    }

    CK_TILE_DEVICE void load_k(index_t tile, int32_t page, LdsByte* to) const
    {
        load(k_, tile, page, k_column_, to);
    }

    CK_TILE_DEVICE void load_v(index_t tile, int32_t page, LdsByte* to) const
    {
        load(v_, tile, page, v_column_, to);
    }

private:
    // Tokens behind the last one are the last one again: there is always a live page to read.
    CK_TILE_DEVICE index_t clamped(index_t tile, index_t row) const
    {
        return ck_tile::min(tile * kTokens + row, k_.last_token);
    }

    CK_TILE_DEVICE void load(
        const CacheView& view, index_t tile, int32_t page, index_t column, LdsByte* to) const
    {
        // lane i writes 16 bytes at M0 + 16 * i
        const auto lds = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to)) +
                         static_cast<uint32_t>(first_ * kRowBytes);
        const char* start =
            view.base + static_cast<uint64_t>(static_cast<uint32_t>(page)) * view.page_bytes;
        if constexpr(kDescriptor)
        {
            constexpr index_t slots = kPageSize - 1;
            const index_t last =
                ck_tile::min(view.last_token - (clamped(tile, first_) & ~slots), slots);
            const auto resource = ck_tile::make_wave_buffer_resource(
                start, static_cast<uint32_t>(last * view.token_bytes + view.row_bytes));
            const index_t offset = (clamped(tile, row_) & slots) * view.token_bytes + column;
            asm volatile(
                "s_mov_b32 m0, %0\n\t"
                "s_nop 0\n\t"
                "buffer_load_dwordx4 %1, %2, 0 offen lds" ::"s"(lds),
                "v"(offset),
                "s"(resource)
                : "memory");
        }
        else
            asm volatile(
                "s_mov_b32 m0, %0\n\t"
                "s_nop 0\n\t"
                "global_load_lds_dwordx4 %1, off" ::"s"(lds),
                "v"(start + column)
                : "memory");
    }

    CacheView k_, v_;
    index_t first_, row_;
    index_t k_column_, v_column_; // bytes in the row that the lane loads
};

} // namespace ckpm::prefill::v3

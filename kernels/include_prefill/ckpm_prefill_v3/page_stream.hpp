// Tiles of K and V on their way from a paged cache into LDS, without a register in between.
//
// Each wave brings 8 tokens of every tile. What it has in flight at most, oldest first: the lookup
// of a page id, with block scales those of a page, a load of each part of K and of V. A wait for
// all but kLoadsInFlight therefore ends when lookup and scales have come, and lets the loads fly.
//
// Lookups and loads are inline assembly: of loads into LDS the compiler would wait for all before
// the next read of LDS, and count them otherwise where it waits for a lookup.
#pragma once

#include "ckpm_prefill/paged_cache.hpp"
#include "ckpm_prefill_v3/lds_layout.hpp"

namespace ckpm::prefill::v3 {

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

// kKBytes, kVBytes: of a row of K and of V
template <index_t kPageSize, index_t kKBytes, index_t kVBytes, typename Layout>
class PageStream
{
    static constexpr bool kVectorized = Layout::kVectorized;
    // 8 tokens of a wave are of one page: it has a descriptor, trimmed to the live tokens
    static constexpr bool kDescriptor = kPageSize >= kOwn;
    static_assert(!kVectorized || kPageSize >= kChunkBytes, "16 tokens of V lie in one page");

public:
    static constexpr int kLoadsInFlight = kParts<kKBytes> + kParts<kVBytes>;

    CK_TILE_DEVICE PageStream(const CacheView& k, const CacheView& v, index_t wave, index_t lane)
        : k_(k),
          v_(v),
          first_(wave * kOwn),
          row_(wave * kOwn + Layout::row(lane)),
          k_chunk_(Layout::k_chunk(wave, lane)),
          v_chunk_(Layout::v_chunk(wave, lane))
    {}

    // Where the page table names the page of the lane's token: bytes from the sequence's first
    // entry
    CK_TILE_DEVICE index_t entry(index_t tile) const
    {
        const auto token = static_cast<uint32_t>(clamped(tile, row_));
        return static_cast<index_t>(token / static_cast<uint32_t>(kPageSize) * 4);
    }

    // The page has come after wait_for_all_but<kLoadsInFlight>(), if no other than those were
    // issued after it.
    CK_TILE_DEVICE int32_t lookup(index_t entry) const
    {
        int32_t page;
        asm volatile("global_load_dword %0, %1, %2"
                     : "=v"(page)
                     : "v"(entry), "s"(k_.pages)
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

    // What loads need to know, besides where in LDS they write: of the 16 bytes that the lane
    // brings, the offset in the page, or, in pages of one token, the address
    template <index_t kLoads>
    struct InPage
    {
        ck_tile::int32x4_t page;
        index_t offset[kLoads];
    };
    template <index_t kLoads>
    struct OfToken
    {
        const char* at[kLoads];
    };
    template <index_t kLoads>
    using Source  = std::conditional_t<kDescriptor, InPage<kLoads>, OfToken<kLoads>>;
    using KSource = Source<kParts<kKBytes>>;
    using VSource = Source<kParts<kVBytes>>;

    CK_TILE_DEVICE KSource k_source(index_t tile, int32_t page) const
    {
        KSource source;
        if constexpr(kDescriptor)
            source.page = descriptor(k_, tile, page);
        ck_tile::static_for<0, kParts<kKBytes>, 1>{}([&](auto part) {
            constexpr index_t before = part * (kRowBytes / kChunkBytes);
            constexpr index_t left   = kKBytes / kChunkBytes - before;
            // lanes after the row's end load what others load; it is not read
            const index_t chunk = before + (left < 8 ? k_chunk_ % left : k_chunk_);
            if constexpr(kDescriptor)
                source.offset[part] = k_offset(tile, chunk);
            else
                source.at[part] = start_of(k_, page, chunk * kChunkBytes);
        });
        return source;
    }

    CK_TILE_DEVICE VSource v_source(index_t tile, int32_t page) const
    {
        if constexpr(kDescriptor)
        {
            VSource source{descriptor(v_, tile, page), {}};
            for(index_t part = 0; part < kParts<kVBytes>; ++part)
                source.offset[part] = v_offset(tile, v_chunk() + part * Layout::kVChunks);
            return source;
        }
        else
        {
            VSource source;
            for(index_t part = 0; part < kParts<kVBytes>; ++part)
                source.at[part] =
                    start_of(v_, page, (v_chunk() + part * Layout::kVChunks) * kChunkBytes);
            return source;
        }
    }

    // Else the compiler makes a source where it is used.
    template <index_t kLoads>
    CK_TILE_DEVICE static void settle(InPage<kLoads>& source)
    {
        asm("" : "+s"(source.page));
        for(auto& offset : source.offset)
            asm("" : "+v"(offset));
    }
    template <index_t kLoads>
    CK_TILE_DEVICE static void settle(OfToken<kLoads>& source)
    {
        for(auto& at : source.at)
            asm("" : "+v"(at));
    }

    // Each part after the one before
    template <template <index_t> typename Source_, index_t kLoads>
    CK_TILE_DEVICE void load(const Source_<kLoads>& source, LdsByte* to) const
    {
        ck_tile::static_for<0, kLoads, 1>{}(
            [&](auto part) { load_part(source, part, own(to + part * kPartBytes)); });
    }

private:
    static constexpr index_t kSlots = kPageSize - 1;

    // Tokens after the last one are the last one again: there is always a live page to read.
    CK_TILE_DEVICE index_t clamped(index_t tile, index_t row) const
    {
        return ck_tile::min(tile * kTokens + row, k_.last_token);
    }

    CK_TILE_DEVICE index_t slot(index_t tile) const { return clamped(tile, row_) & kSlots; }

    // In its page, of the 16 bytes that the lane brings
    CK_TILE_DEVICE index_t k_offset(index_t tile, index_t chunk) const
    {
        if constexpr(kVectorized)
            return (chunk * kPageSize + slot(tile)) * kChunkBytes;
        else
            return slot(tile) * k_.token_bytes + chunk * kChunkBytes;
    }
    // Where a row of V is half of kRowBytes, as with K some load what others load.
    CK_TILE_DEVICE index_t v_chunk() const
    {
        constexpr index_t chunks = kVectorized ? kVBytes : kVBytes / kChunkBytes;
        return kVBytes < kRowBytes ? v_chunk_ % chunks : v_chunk_;
    }
    CK_TILE_DEVICE index_t v_offset(index_t tile, index_t chunk) const
    {
        if constexpr(kVectorized)
            return slot(tile) / Layout::kHalfKeys * (Layout::kHalfKeys * kVBytes) +
                   chunk * kChunkBytes;
        else
            return slot(tile) * v_.token_bytes + chunk * kChunkBytes;
    }

    CK_TILE_DEVICE index_t live_bytes(const CacheView& view, index_t tile) const
    {
        if constexpr(kVectorized)
            return view.head_bytes;
        const index_t last =
            ck_tile::min(view.last_token - (clamped(tile, first_) & ~kSlots), kSlots);
        return last * view.token_bytes + view.row_bytes;
    }

    CK_TILE_DEVICE static const char* start_of(const CacheView& view, int32_t page, index_t offset)
    {
        return view.base + offset +
               static_cast<uint64_t>(static_cast<uint32_t>(page)) * view.page_bytes;
    }

    CK_TILE_DEVICE auto descriptor(const CacheView& view, index_t tile, int32_t page) const
    {
        return ck_tile::make_wave_buffer_resource(start_of(view, page, 0),
                                                  static_cast<uint32_t>(live_bytes(view, tile)));
    }

    // The wave's part of a tile in LDS
    CK_TILE_DEVICE uint32_t own(LdsByte* tile) const
    {
        return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(tile)) +
               static_cast<uint32_t>(first_ * kRowBytes);
    }

    // Lane i writes 16 bytes at M0 + 16 * i.
    template <index_t kLoads>
    CK_TILE_DEVICE static void load_part(const InPage<kLoads>& source, index_t part, uint32_t lds)
    {
        asm volatile(
            "s_mov_b32 m0, %0\n\t"
            "s_nop 0\n\t"
            "buffer_load_dwordx4 %1, %2, 0 offen lds" ::"s"(lds),
            "v"(source.offset[part]),
            "s"(source.page)
            : "memory");
    }
    template <index_t kLoads>
    CK_TILE_DEVICE static void load_part(const OfToken<kLoads>& source, index_t part, uint32_t lds)
    {
        asm volatile(
            "s_mov_b32 m0, %0\n\t"
            "s_nop 0\n\t"
            "global_load_lds_dwordx4 %1, off" ::"s"(lds),
            "v"(source.at[part])
            : "memory");
    }

    CacheView k_, v_;
    index_t first_, row_;
    index_t k_chunk_, v_chunk_; // what the lane brings of its token, or of 16 tokens
};

} // namespace ckpm::prefill::v3

// Where the tokens of one sequence and head lie in a paged cache, and how 16 bytes of them are
// read.
#pragma once

#include "ck_tile/core.hpp"
#include "ckpm_prefill/load_mode.hpp"

#include <type_traits>

namespace ckpm::prefill {

using ck_tile::index_t;
using ck_tile::int32x4_t;
using ck_tile::long_index_t;

// As a kernel's page size: each launch gives the tokens of a page, a multiple of PAGE_STEP.
// Such tokens, from a multiple of PAGE_STEP on, lie in one page.
inline constexpr index_t ANY_PAGE  = 0;
inline constexpr index_t PAGE_STEP = 16;

enum class LoadPath
{
    PAGE_DESCRIPTOR, // pages hold whole tiles: a descriptor for each page, trimmed to what lives in
                     // it
    POOL_DESCRIPTOR, // the selector has seen that one descriptor reaches the whole pool
    ADDRESS_64       // neither
};

template <index_t kPageSize, index_t kN0, ck_tile::BlockAttentionKVCacheLoadModeEnum kMode>
constexpr LoadPath load_path()
{
    if constexpr(kMode == ck_tile::BlockAttentionKVCacheLoadModeEnum::GLOBAL_LOAD_LDS)
        return LoadPath::ADDRESS_64;
    return kPageSize >= kN0 ? LoadPath::PAGE_DESCRIPTOR : LoadPath::POOL_DESCRIPTOR;
}

// K or V of one head of one sequence.
struct CacheView
{
    const char* base;          // the head's first byte in page 0
    const int32_t* pages;      // the sequence's pages
    uint32_t page_bytes;       // from page to page: a stride of int32 elements of at most 2 bytes
    index_t token_bytes;       // linear: from token to token; vectorized: unused
    index_t head_bytes;        // of the head in one page, from its first byte to its last
    index_t row_bytes;         // of one token's head dim
    index_t num_pages;         // of the pool
    index_t last_token;        // of the sequence: its length less one
    ck_tile::mdiv page_tokens; // of a page, where kernels take any
};

// Reads 8 or 16 bytes at a place that a page and an offset in it name. What is read is always a
// live token's: callers clamp tokens and columns, so no path relies on out-of-range reads giving
// zeros.
template <LoadPath kPath, index_t kPageSize>
struct CacheReader
{
    static constexpr bool kAnyPage = kPageSize == ANY_PAGE;
    static constexpr index_t kStep = kAnyPage ? PAGE_STEP : kPageSize; // of tokens of one page
    static_assert((kPageSize & (kPageSize - 1)) == 0, "pages hold a power of two of tokens");
    static_assert(!kAnyPage || kPath == LoadPath::ADDRESS_64, "pages of any size, and any pool");
#if defined(__HIP_DEVICE_COMPILE__) && !defined(__gfx90a__) && !defined(__gfx94__) && \
    !defined(__gfx950__)
    static_assert(kPageSize < 0,
                  "ckpm's batch prefill needs the buffer descriptors and the bf16 MFMA of gfx90a, "
                  "gfx942 or gfx950: build it for one of them");
#endif

    CK_TILE_DEVICE static index_t tokens_of_page(const CacheView& view)
    {
        if constexpr(kAnyPage)
            return static_cast<index_t>(view.page_tokens.get());
        else
            return kPageSize;
    }

    CK_TILE_DEVICE static index_t slot_of(const CacheView& view, index_t token)
    {
        if constexpr(kAnyPage)
            return token - static_cast<index_t>(entry_of(view, token)) * tokens_of_page(view);
        else
            return token & (kPageSize - 1);
    }

    CK_TILE_DEVICE static int32_t lookup(const CacheView& view, index_t token)
    {
        return view.pages[entry_of(view, token)];
    }

    // Before the reads of a tile: `page` is the page of all its tokens where pages hold whole
    // tiles.
    CK_TILE_DEVICE void enter(const CacheView& view,
                              [[maybe_unused]] int32_t page,
                              [[maybe_unused]] index_t live_bytes)
    {
        if constexpr(kPath == LoadPath::PAGE_DESCRIPTOR)
        {
            const int32_t own = __builtin_amdgcn_readfirstlane(page);
            resource_ = ck_tile::make_wave_buffer_resource(page_of(view, own),
                                                           static_cast<uint32_t>(live_bytes));
        }
        else if constexpr(kPath == LoadPath::POOL_DESCRIPTOR)
        {
            resource_ = ck_tile::make_wave_buffer_resource(
                view.base,
                static_cast<uint32_t>(view.num_pages - 1) * view.page_bytes +
                    static_cast<uint32_t>(view.head_bytes));
        }
    }

    // Where `offset` bytes of a page are, as read() takes it; later places of the same token are
    // further on by as many bytes.
    using Place = std::conditional_t<kPath == LoadPath::ADDRESS_64, const char*, index_t>;
    CK_TILE_DEVICE static Place place(const CacheView& view,
                                      [[maybe_unused]] int32_t page,
                                      index_t offset)
    {
        if constexpr(kPath == LoadPath::PAGE_DESCRIPTOR)
            return offset;
        else if constexpr(kPath == LoadPath::POOL_DESCRIPTOR)
            return page * static_cast<index_t>(view.page_bytes) + offset;
        else
            return page_of(view, page, offset);
    }

    template <typename Bits>
    CK_TILE_DEVICE Bits read(Place place) const
    {
        if constexpr(kPath == LoadPath::ADDRESS_64)
        {
            using Global = const __attribute__((address_space(1))) Bits*;
            return *reinterpret_cast<Global>(reinterpret_cast<uintptr_t>(place));
        }
        else if constexpr(std::is_same_v<Bits, ck_tile::int32x2_t>)
            return ck_tile::llvm_amdgcn_raw_buffer_load_i32x2(resource_, place, 0, 0);
        else
            return ck_tile::llvm_amdgcn_raw_buffer_load_i32x4(resource_, place, 0, 0);
    }

private:
    // The place of a token's page in its sequence.
    CK_TILE_DEVICE static uint32_t entry_of(const CacheView& view, index_t token)
    {
        // unsigned: the shift that the compiler makes of it needs no correction for negative tokens
        if constexpr(kAnyPage)
            return view.page_tokens.div(static_cast<uint32_t>(token));
        else
            return static_cast<uint32_t>(token) / static_cast<uint32_t>(kPageSize);
    }

    // 32 by 32 bits, plus 64: one instruction, also with an offset that is the same in every page
    CK_TILE_DEVICE static const char* page_of(const CacheView& view,
                                              int32_t page,
                                              index_t offset = 0)
    {
        return view.base + static_cast<uint32_t>(offset) +
               static_cast<uint64_t>(static_cast<uint32_t>(page)) * view.page_bytes;
    }

    int32x4_t resource_;
};

} // namespace ckpm::prefill

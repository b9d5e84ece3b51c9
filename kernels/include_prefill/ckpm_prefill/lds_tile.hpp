// A stage of K or V in LDS: rows of up to 128 bytes in chunks of 16, chunk by chunk, so that lanes
// that read neighbouring rows read neighbouring bytes. A stage has 16 KB.
#pragma once

#include "ck_tile/core.hpp"

namespace ckpm::prefill {

using ck_tile::index_t;
using ck_tile::int32x4_t;

inline constexpr index_t STAGE_BYTES = 16384;
inline constexpr index_t CHUNK_BYTES = 16;

template <typename T, index_t kRows>
struct LdsTile
{
    static constexpr index_t kVector  = CHUNK_BYTES / sizeof(T);
    static constexpr index_t kChunks  = STAGE_BYTES / (kRows * CHUNK_BYTES); // of a row
    static constexpr index_t kColumns = kChunks * kVector;
    // One row between chunks keeps lanes that write the same row off one another's banks. gfx942's
    // LDS of 64 KB has no room for it beside a second workgroup.
#if defined(__gfx950__)
    static constexpr index_t kPadRows = 1;
#else
    static constexpr index_t kPadRows = 0;
#endif
    static constexpr index_t kChunkStride = (kRows + kPadRows) * CHUNK_BYTES;
    static constexpr index_t kBytes       = kChunks * kChunkStride;

    CK_TILE_DEVICE static constexpr index_t offset(index_t row, index_t chunk)
    {
        return chunk * kChunkStride + row * CHUNK_BYTES;
    }

    // [row, column] for CK's block gemms
    CK_TILE_DEVICE static constexpr auto descriptor()
    {
        using namespace ck_tile;
        constexpr auto chunks = make_naive_tensor_descriptor(
            make_tuple(number<kChunks>{}, number<kRows>{}, number<kVector>{}),
            make_tuple(number<(kRows + kPadRows) * kVector>{}, number<kVector>{}, number<1>{}),
            number<kVector>{},
            number<1>{});
        return transform_tensor_descriptor(
            chunks,
            make_tuple(make_pass_through_transform(number<kRows>{}),
                       make_merge_transform(make_tuple(number<kChunks>{}, number<kVector>{}))),
            make_tuple(sequence<1>{}, sequence<0, 2>{}),
            make_tuple(sequence<0>{}, sequence<1>{}));
    }

    CK_TILE_DEVICE static auto view(char* lds)
    {
        return ck_tile::make_tensor_view<ck_tile::address_space_enum::lds>(
            reinterpret_cast<T*>(lds), descriptor());
    }
};

// Stores to LDS that CK's typed loads read: they may alias anything.
template <typename Bits>
CK_TILE_DEVICE void store_lds(char* lds, index_t offset, Bits bits)
{
    using Any __attribute__((may_alias))  = Bits;
    *reinterpret_cast<Any*>(lds + offset) = bits;
}

// All stores to LDS before it are seen by all loads after it, and no load is moved across.
CK_TILE_DEVICE void sync_lds()
{
    asm volatile("" ::: "memory");
    ck_tile::block_sync_lds();
    asm volatile("" ::: "memory");
}

} // namespace ckpm::prefill

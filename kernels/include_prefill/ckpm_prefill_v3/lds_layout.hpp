// Where a tile of 64 tokens lies in LDS, which of it a lane brings, and which of it a lane
// multiplies.
//
// The MFMA takes of each operand 32 bytes a lane in fp8 (32x32x64) and 16 bytes in 16 bits
// (32x32x16), of row (or column) lane % 32, half of k in either half of the wave. Its result: of
// column lane % 32 the rows 8 * (i / 4) + 4 * (lane / 32) + i % 4.
//
// Scores are K times Q transposed, so that a lane holds scores of one query, and O is V transposed
// times the weights: the weights are where they are needed, if the MFMA's k counts keys in the
// order in which the scores came. Of the products' order nothing but the order of sums depends.
#pragma once

#include "ck_tile/core.hpp"

namespace ckpm::prefill::v3 {

using ck_tile::index_t;

using Bytes8     = int32_t __attribute__((ext_vector_type(2)));
using Bytes16    = int32_t __attribute__((ext_vector_type(4)));
using Bytes32    = int32_t __attribute__((ext_vector_type(8)));
using Bytes64    = int32_t __attribute__((ext_vector_type(16)));
using Floats4    = float __attribute__((ext_vector_type(4)));
using Floats16   = float __attribute__((ext_vector_type(16)));
using LdsByte    = __attribute__((address_space(3))) char;
using LdsBytes8  = __attribute__((address_space(3))) Bytes8;
using LdsBytes16 = const __attribute__((address_space(3))) Bytes16;

inline constexpr index_t kTokens     = 64;                  // of a tile
inline constexpr index_t kOwn        = 8;                   // of these, what a wave brings
inline constexpr index_t kRowBytes   = 128;                 // of a token that one load takes
inline constexpr index_t kChunkBytes = 16;                  // what a lane loads at once
inline constexpr index_t kPartBytes  = kTokens * kRowBytes; // what one load of all waves brings

// Rows longer than kRowBytes come in parts, the last of which may be half empty.
template <index_t kBytes>
inline constexpr index_t kParts = (kBytes + kRowBytes - 1) / kRowBytes;

// A cache whose tokens are rows of elements of kElementBytes. V is transposed as it is read from
// LDS.
//
// A row's chunks change places by the row's number, so that lanes that read one column of several
// rows at once find them in different banks. Each is its own inverse: chunk <-> place.
template <index_t kElementBytes>
struct LinearLayout
{
    static constexpr bool kVectorized = false;
    static constexpr bool kFp8        = kElementBytes == 1;
    // Chunks of V from one part of its rows to the next
    static constexpr index_t kVChunks = kRowBytes / kChunkBytes;

    // The key of score i of a lane of half 0 in 32 keys; half 1 has the one kHalfKeys later.
    static constexpr index_t kHalfKeys = 4;
    CK_TILE_DEVICE static constexpr index_t key_of(index_t i) { return 8 * (i / 4) + i % 4; }

    // ds_read_b128 takes 16 rows at once, two of which fill the 64 banks
    CK_TILE_DEVICE static constexpr index_t k_place(index_t row, index_t chunk)
    {
        return chunk ^ (row >> 1 & 7);
    }
    // In fp8 the transposing read takes two chunks of rows 0 to 3 and 8 to 11, or 4 to 7 and 12 to
    // 15; in 16 bits four chunks of rows 0 to 3, or 4 to 7.
    CK_TILE_DEVICE static constexpr index_t v_place(index_t row, index_t chunk)
    {
        return kFp8 ? chunk ^ ((row & 2) | (row & 8) >> 1) : chunk ^ (row & 2) << 1;
    }

    // Which token of its wave's a lane brings, and which 16 bytes of it
    CK_TILE_DEVICE static constexpr index_t row(index_t lane) { return lane / 8; }
    CK_TILE_DEVICE static index_t k_chunk(index_t wave, index_t lane)
    {
        return k_place(wave * kOwn + row(lane), lane % 8);
    }
    CK_TILE_DEVICE static index_t v_chunk(index_t wave, index_t lane)
    {
        return v_place(wave * kOwn + row(lane), lane % 8);
    }

    // The chunk of a block of 32 columns that a lane reads
    CK_TILE_DEVICE static index_t v_chunk_of(index_t block, index_t lane)
    {
        return 2 * kElementBytes * block +
               (kFp8 ? lane / 16 % 2 : lane / 16 % 2 * 2 + lane % 4 / 2);
    }

    struct Reads
    {
        index_t k[4]; // of 16 bytes of row lane % 32, for each 32 bytes of a part
        // of 8 bytes that become rows of one column, for each 32 columns of a part
        static constexpr index_t kColumnBlocks = kRowBytes / kElementBytes / 32;
        index_t v[kColumnBlocks];

        CK_TILE_DEVICE explicit Reads(index_t lane)
        {
            const index_t row = lane % 32, half = lane / 32;
            // of the 8 rows that 16 lanes transpose, or in 16 bits of 4
            const index_t line = lane % 16 / (2 * kElementBytes);
            const index_t key  = 8 * (line / 4) + 4 * half + line % 4;
#pragma unroll
            for(index_t i = 0; i < 4; ++i)
            {
                k[i] = row * kRowBytes + k_place(row, 2 * i + half) * kChunkBytes;
                if(i < kColumnBlocks)
                    v[i] = key * kRowBytes + v_place(key, v_chunk_of(i, lane)) * kChunkBytes +
                           lane % 2 * 8;
            }
        }
    };
};

// A cache whose pages hold K as [head dim / N, token, N] and V as [token / N, head dim, N], with N
// elements in 16 bytes: V is transposed already. Keys take the MFMA's rows in the order that gives
// each half of a wave the scores of N neighbours, whose 16 bytes of V one read brings.
template <index_t kElementBytes>
struct VectorizedLayout
{
    static constexpr bool kVectorized  = true;
    static constexpr index_t kHalfKeys = kChunkBytes / kElementBytes;
    static constexpr index_t kVChunks  = kRowBytes / kElementBytes;
    CK_TILE_DEVICE static constexpr index_t key_of(index_t i)
    {
        return i / kHalfKeys * (2 * kHalfKeys) + i % kHalfKeys;
    }

    // In LDS 8 tokens' chunks follow each other, then those of the next column. Rows kHalfKeys
    // apart change columns, so that the 16 rows which ds_read_b128 takes at once fill the 64 banks.
    CK_TILE_DEVICE static constexpr index_t k_place(index_t row, index_t chunk)
    {
        return chunk ^ (row / kHalfKeys & 1);
    }

    CK_TILE_DEVICE static constexpr index_t row(index_t lane) { return lane % 8; }
    CK_TILE_DEVICE static index_t k_chunk(index_t wave, index_t lane)
    {
        return k_place(wave * kOwn, lane / 8);
    }
    // the column of a part whose 16 bytes a lane brings: in fp8 of 16 tokens, which two waves share
    CK_TILE_DEVICE static index_t v_chunk(index_t wave, index_t lane)
    {
        return wave % (kVChunks / 64) * 64 + lane;
    }

    struct Reads
    {
        index_t k[4];
        index_t v; // of kHalfKeys keys of column lane % 32

        CK_TILE_DEVICE explicit Reads(index_t lane)
        {
            const index_t half = lane / 32;
            // Row 16 b4 + 8 b3 + 4 b2 + ... of the MFMA is token 16 b2 + 8 b4 + 4 b3 + ... in fp8,
            // and 16 b4 + 8 b2 + 4 b3 + ... in 16 bits.
            const index_t token =
                kElementBytes == 1 ? (lane & 4) << 2 | (lane & 24) >> 1 | (lane & 3)
                                   : (lane & 16) | (lane & 4) << 1 | (lane & 8) >> 1 | (lane & 3);
#pragma unroll
            for(index_t i = 0; i < 4; ++i)
                k[i] = token / 8 * (8 * kRowBytes) +
                       (2 * i + k_place(token, half)) * (8 * kChunkBytes) + token % 8 * kChunkBytes;
            v = half * (kHalfKeys * kRowBytes) + lane % 32 * kChunkBytes;
        }
    };
};

} // namespace ckpm::prefill::v3

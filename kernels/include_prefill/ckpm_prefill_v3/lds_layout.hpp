// Where a tile of 64 tokens lies in LDS, which of it a lane brings, and which of it a lane
// multiplies.
//
// The 32x32x64 fp8 MFMA takes of each operand 32 bytes a lane, of row (or column) lane % 32, half
// of k in either half of the wave. Its result: of column lane % 32 the rows 8 * (i / 4) + 4 * (lane
// / 32) + i % 4.
//
// Scores are K times Q transposed, so that a lane holds scores of one query, and O is V transposed
// times the weights: the weights are where they are needed, if the MFMA's k counts keys in the
// order in which the scores came. Of the products' order nothing but the order of sums depends.
#pragma once

#include "ck_tile/core.hpp"

namespace ckpm::prefill::v3 {

using ck_tile::index_t;

using Bytes8     = int32_t __attribute__((ext_vector_type(2)));
using Bytes32    = int32_t __attribute__((ext_vector_type(8)));
using Bytes16    = int32_t __attribute__((ext_vector_type(4)));
using Floats4    = float __attribute__((ext_vector_type(4)));
using Floats16   = float __attribute__((ext_vector_type(16)));
using LdsByte    = __attribute__((address_space(3))) char;
using LdsBytes8  = __attribute__((address_space(3))) Bytes8;
using LdsBytes16 = const __attribute__((address_space(3))) Bytes16;

inline constexpr index_t kTokens     = 64;  // of a tile
inline constexpr index_t kOwn        = 8;   // of these, what a wave brings
inline constexpr index_t kRowBytes   = 128; // of a token that one load takes: in fp8, 128 columns
inline constexpr index_t kChunkBytes = 16;  // what a lane loads at once
inline constexpr index_t kPartBytes  = kTokens * kRowBytes; // what one load of all waves brings

// Rows of K longer than kRowBytes come in parts, the last of which may be half empty.
template <index_t kHeadDim>
inline constexpr index_t kParts = (kHeadDim + kRowBytes - 1) / kRowBytes;

// A cache whose tokens are rows. V is transposed as it is read from LDS.
//
// A row's chunks change places by the row's number, so that lanes that read one column of several
// rows at once find them in different banks. Each is its own inverse: chunk <-> place.
struct LinearLayout
{
    // The key of score i of a lane of half 0 in 32 keys; half 1 has the one kHalfKeys later.
    static constexpr index_t kHalfKeys = 4;
    CK_TILE_DEVICE static constexpr index_t key_of(index_t i) { return 8 * (i / 4) + i % 4; }

    // ds_read_b128 takes 16 rows at once, two of which fill the 64 banks
    CK_TILE_DEVICE static constexpr index_t k_place(index_t row, index_t chunk)
    {
        return chunk ^ (row >> 1 & 7);
    }
    // the transposing read takes two chunks of rows 0 to 3 and 8 to 11, or 4 to 7 and 12 to 15
    CK_TILE_DEVICE static constexpr index_t v_place(index_t row, index_t chunk)
    {
        return chunk ^ ((row & 2) | (row & 8) >> 1);
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

    struct Reads
    {
        index_t k[4]; // of 16 bytes of row lane % 32, for each 32 columns of a part
        index_t v[4]; // of 8 bytes that become 8 rows of one column, for each 32 columns

        CK_TILE_DEVICE explicit Reads(index_t lane)
        {
            const index_t row = lane % 32, half = lane / 32;
            const index_t line = lane % 16 / 2; // of the 8 rows that 16 lanes transpose
            const index_t key  = 8 * (line / 4) + 4 * half + line % 4;
#pragma unroll
            for(index_t i = 0; i < 4; ++i)
            {
                k[i] = row * kRowBytes + k_place(row, 2 * i + half) * kChunkBytes;
                v[i] = key * kRowBytes + v_place(key, 2 * i + lane / 16 % 2) * kChunkBytes +
                       lane % 2 * 8;
            }
        }
    };
};

// A cache whose pages hold K as [head dim / 16, token, 16] and V as [token / 16, head dim, 16]: V
// is transposed already. Keys take the MFMA's rows in the order that gives each half of a wave the
// scores of 16 neighbours, whose 16 bytes of V one read brings.
struct VectorizedLayout
{
    static constexpr index_t kHalfKeys = 16;
    CK_TILE_DEVICE static constexpr index_t key_of(index_t i) { return i; }

    // In LDS 8 tokens' chunks follow each other, then those of the next column. Rows 16 apart
    // change columns, so that the 16 rows which ds_read_b128 takes at once fill the 64 banks.
    CK_TILE_DEVICE static constexpr index_t k_place(index_t row, index_t chunk)
    {
        return chunk ^ (row >> 4 & 1);
    }

    CK_TILE_DEVICE static constexpr index_t row(index_t lane) { return lane % 8; }
    CK_TILE_DEVICE static index_t k_chunk(index_t wave, index_t lane)
    {
        return k_place(wave * kOwn, lane / 8);
    }
    // of 16 tokens that two waves share, the column whose 16 bytes a lane brings
    CK_TILE_DEVICE static index_t v_chunk(index_t wave, index_t lane)
    {
        return wave % 2 * 64 + lane;
    }

    struct Reads
    {
        index_t k[4];
        index_t v; // of 16 keys of column lane % 32

        CK_TILE_DEVICE explicit Reads(index_t lane)
        {
            const index_t half = lane / 32;
            // row 16 b4 + 8 b3 + 4 b2 + ... of the MFMA is token 16 b2 + 8 b4 + 4 b3 + ...
            const index_t token = (lane & 4) << 2 | (lane & 24) >> 1 | (lane & 3);
#pragma unroll
            for(index_t i = 0; i < 4; ++i)
                k[i] = token / 8 * (8 * kRowBytes) +
                       (2 * i + k_place(token, half)) * (8 * kChunkBytes) + token % 8 * kChunkBytes;
            v = half * (16 * kRowBytes) + lane % 32 * kChunkBytes;
        }
    };
};

} // namespace ckpm::prefill::v3

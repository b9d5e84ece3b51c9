// Where a tile of 64 tokens lies in LDS, and which of it a lane multiplies.
#pragma once

#include "ck_tile/core.hpp"

namespace ckpm::prefill::v3 {

using ck_tile::index_t;

using Bytes8    = int32_t __attribute__((ext_vector_type(2)));
using Bytes16   = int32_t __attribute__((ext_vector_type(4)));
using Floats16  = float __attribute__((ext_vector_type(16)));
using LdsByte   = __attribute__((address_space(3))) char;
using LdsBytes8 = __attribute__((address_space(3))) Bytes8;

inline constexpr index_t kTokens     = 64;  // of a tile
inline constexpr index_t kRowBytes   = 128; // of a token: a head dim of 128 in fp8
inline constexpr index_t kChunkBytes = 16;  // what a lane loads at once
inline constexpr index_t kTileBytes  = kTokens * kRowBytes;

// A row's chunks change places by the row's number, so that lanes that read one column of several
// rows at once find them in different banks. Each is its own inverse: chunk <-> place.
struct KLayout
{
    // ds_read_b128 takes 16 rows at once, two of which fill the 64 banks
    CK_TILE_DEVICE static constexpr index_t place(index_t row, index_t chunk)
    {
        return chunk ^ (row >> 1 & 7);
    }
};

struct VLayout
{
    // the transposing read takes two chunks of rows 0 to 3 and 8 to 11, or 4 to 7 and 12 to 15
    CK_TILE_DEVICE static constexpr index_t place(index_t row, index_t chunk)
    {
        return chunk ^ ((row & 2) | (row & 8) >> 1);
    }
};

// The 32x32x16 fp8 MFMA takes of each operand 8 bytes a lane: of row (or column) lane % 32, k from
// 8 * (lane / 32). Its result: of column lane % 32 the rows 8 * (i / 4) + 4 * (lane / 32) + i % 4.
//
// Scores are K times Q transposed, so that a lane holds scores of one query, and O is V transposed
// times the weights: the weights are where they are needed, if the MFMA's k counts keys in the
// order in which the scores came. Of the products' order nothing but the order of sums depends.
struct LaneReads
{
    index_t k[4]; // of 16 bytes of row lane % 32, for each 32 columns
    index_t v[4]; // of 8 bytes that become 8 rows of one column, for each 32 columns

    CK_TILE_DEVICE explicit LaneReads(index_t lane)
    {
        const index_t row = lane % 32, half = lane / 32;
        const index_t line = lane % 16 / 2; // of the 8 rows that 16 lanes transpose
        const index_t key  = 8 * (line / 4) + 4 * half + line % 4;
#pragma unroll
        for(index_t i = 0; i < 4; ++i)
        {
            k[i] = row * kRowBytes + KLayout::place(row, 2 * i + half) * kChunkBytes;
            v[i] = key * kRowBytes + VLayout::place(key, 2 * i + lane / 16 % 2) * kChunkBytes +
                   lane % 2 * 8;
        }
    }
};

// The key of score i of a lane of half 0 in 32 keys; half 1 has the one 4 behind.
CK_TILE_DEVICE constexpr index_t key_of(index_t i) { return 8 * (i / 4) + i % 4; }

} // namespace ckpm::prefill::v3

// The matrix phase of a wave: scores of a tile of keys, and what a tile of V adds to O.
#pragma once

#include "ckpm_prefill_v3/lds_layout.hpp"

namespace ckpm::prefill::v3 {

// Weights of fp8, 32 of a lane in the order of its scores
using Weights = Bytes32;

CK_TILE_DEVICE Bytes32 joined(Bytes16 low, Bytes16 high)
{
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}

// Both factors in fp8, without scales.
CK_TILE_DEVICE void mfma(Floats16& c, const Bytes32& a, const Bytes32& b)
{
    c = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(a, b, c, 0, 0, 0, 0, 0, 0);
}

// Hints to the compiler's scheduler: what comes next in the order of the code
template <int kCount>
CK_TILE_DEVICE void reads_ahead()
{
    __builtin_amdgcn_sched_group_barrier(0x100, kCount, 0); // reads of LDS
}
template <int kCount>
CK_TILE_DEVICE void products()
{
    __builtin_amdgcn_sched_group_barrier(0x008, kCount, 0); // MFMA
}

// kHeadDim: of Q and K; kColumns: of V.
template <index_t kHeadDim, index_t kColumns, typename Layout>
struct Products
{
    using Reads = typename Layout::Reads;

    static constexpr bool kVectorized = std::is_same_v<Layout, VectorizedLayout>;
    static constexpr index_t kSteps   = kHeadDim / 64; // 32 bytes of a row for each half of a wave
    static constexpr int kReadsOfK    = 4 * kSteps;
    static constexpr int kProductsOfK = 2 * kSteps;
    static constexpr int kProductsOfV = kColumns / 32;
    static constexpr int kReadsOfV    = (kVectorized ? 2 : 4) * kProductsOfV;

    using KRows = Bytes16[kReadsOfK]; // a lane's, of a tile

    CK_TILE_DEVICE static void read_k(KRows& k, const LdsByte* tile, const Reads& reads)
    {
#pragma unroll
        for(index_t i = 0; i < kReadsOfK; ++i)
            k[i] = *(LdsBytes16*)(tile + reads.k[i / 4 * 2 % 4 + i % 2] + i / 8 * kPartBytes +
                                  i / 2 % 2 * (kPartBytes / 2));
    }

    // q: of each 64 columns 32 bytes of the lane's query, 16 of either half of them
    CK_TILE_DEVICE static void multiply_k(Floats16 (&scores)[2],
                                          const Bytes32 (&q)[kSteps],
                                          const KRows& k)
    {
        for(auto& part : scores)
            part = Floats16{};
#pragma unroll
        for(index_t i = 0; i < kProductsOfK; ++i)
            mfma(scores[i % 2], joined(k[2 * i], k[2 * i + 1]), q[i / 2]);
    }

    // live: tokens of the tile, of which a last one may have fewer than 64
    template <bool kLast>
    CK_TILE_DEVICE static void multiply_v(Floats16 (&out)[kProductsOfV],
                                          const Weights& weights,
                                          const LdsByte* tile,
                                          const Reads& reads,
                                          [[maybe_unused]] index_t live)
    {
#pragma unroll
        for(index_t i = 0; i < kProductsOfV; ++i)
        {
            Bytes32 v;
            if constexpr(kVectorized)
            {
                const LdsByte* at = tile + reads.v + i * (32 * kChunkBytes);
                v                 = joined(*(LdsBytes16*)at, *(LdsBytes16*)(at + kPartBytes / 2));
                if constexpr(kLast)
                    v &= live_keys(live);
            }
            else
            {
#pragma unroll
                for(index_t keys = 0; keys < 4; ++keys)
                {
                    auto* at         = (LdsBytes8*)(tile + reads.v[i] + keys * (kPartBytes / 4));
                    const Bytes8 two = __builtin_amdgcn_ds_read_tr8_b64_v2i32(at);
                    v[2 * keys]      = two[0];
                    v[2 * keys + 1]  = two[1];
                }
            }
            mfma(out[i], v, weights);
        }
    }

    // The sum of a query's weights: the vector unit has no time for that. Of the 16x16x128 MFMA
    // lane i brings 32 bytes of column i % 16, which are the weights of query i % 32. So of the
    // four lanes of a column two have the one query, two have the other. Row 4 * j of the ones
    // takes those of parity j % 2, and is in lanes 16 * j and up of the result.
    CK_TILE_DEVICE static float sum_of(const Weights& weights, const Weights& ones)
    {
        return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(
            ones, weights, Floats4{}, 0, 0, 0, 0, 0, 0)[0];
    }
    CK_TILE_DEVICE static Weights ones_of(index_t lane)
    {
        // four times 1 in e4m3, or nothing
        const int32_t one = (lane / 4 ^ lane / 16) % 2 == 0 ? 0x38383838 : 0;
        return {one, one, one, one, one, one, one, one};
    }

    // After multiply_k() and multiply_v() of one phase, whose K has been read: V as the products go
    CK_TILE_DEVICE static void in_turn()
    {
        ck_tile::static_for<0, kProductsOfV, 1>{}([](auto) {
            products<1>();
            reads_ahead<kReadsOfV / kProductsOfV>();
        });
        products<kProductsOfK>();
    }

private:
    // Slots of 16 tokens after the last one hold anything, NaN included: 0 times NaN isn't 0. Of
    // the lane's 32 keys, 16 lie 32 after the others.
    CK_TILE_DEVICE static Bytes32 live_keys(index_t live)
    {
        const index_t own = live - static_cast<index_t>(threadIdx.x) % 64 / 32 * 16;
        Bytes32 kept;
        for(index_t word = 0; word < 8; ++word)
        {
            const index_t left  = own - word / 4 * 32 - word % 4 * 4; // live bytes of the word
            const uint32_t some = (uint32_t{1} << (left * 8 & 31)) - 1;
            kept[word] = static_cast<int32_t>(left >= 4 ? ~uint32_t{0} : left <= 0 ? 0 : some);
        }
        return kept;
    }
};

} // namespace ckpm::prefill::v3

// The matrix phase of a wave: scores of a tile of keys, and what a tile of V adds to O.
#pragma once

#include "ckpm_prefill_v3/lds_layout.hpp"

namespace ckpm::prefill::v3 {

// Weights of fp8, 32 of a lane in the order of its scores: 8 bytes for each MFMA
struct Weights
{
    int64_t of[4];
};

CK_TILE_DEVICE int64_t eight_bytes(const Bytes16& bytes, index_t half)
{
    return static_cast<int64_t>(static_cast<uint32_t>(bytes[2 * half])) |
           static_cast<int64_t>(bytes[2 * half + 1]) << 32;
}

CK_TILE_DEVICE void mfma(Floats16& c, int64_t a, int64_t b)
{
    c = __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(a, b, c, 0, 0, 0);
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

// kHeadDim: of Q and K. V has 128 columns.
template <index_t kHeadDim, typename Layout>
struct Products
{
    using Reads = typename Layout::Reads;

    static constexpr bool kVectorized = std::is_same_v<Layout, VectorizedLayout>;
    static constexpr index_t kSteps   = kHeadDim / 32; // 16 bytes of a row for each half of a wave
    static constexpr int kReadsOfK    = 2 * kSteps;
    static constexpr int kReadsOfV    = kVectorized ? 8 : 16;
    static constexpr int kProducts    = 4 * kSteps + 16;

    // q: 16 bytes of the lane's query for each 32 columns, those behind in the upper half
    CK_TILE_DEVICE static void multiply_k(Floats16 (&scores)[2],
                                          const Bytes16 (&q)[kSteps],
                                          const LdsByte* tile,
                                          const Reads& reads)
    {
        for(auto& part : scores)
            part = Floats16{};
        Bytes16 k[kSteps][2];
#pragma unroll
        for(index_t i = 0; i < kReadsOfK; ++i)
            k[i / 2][i % 2] = *(LdsBytes16*)(tile + reads.k[i / 2 % 4] + i / 8 * kPartBytes +
                                             i % 2 * (kPartBytes / 2));
        // the two halves of the keys in turn: no MFMA waits for the one before
#pragma unroll
        for(index_t i = 0; i < kSteps; ++i)
        {
            // else the compiler reads the first half of the 16 bytes apart, and then all of them
            asm("" : "+v"(k[i][0]), "+v"(k[i][1]));
#pragma unroll
            for(index_t j = 0; j < 4; ++j)
                mfma(scores[j % 2], eight_bytes(k[i][j % 2], j / 2), eight_bytes(q[i], j / 2));
        }
    }

    // live: tokens of the tile, of which a last one may have fewer than 64
    template <bool kLast>
    CK_TILE_DEVICE static void multiply_v(Floats16 (&out)[4],
                                          const Weights& weights,
                                          const LdsByte* tile,
                                          const Reads& reads,
                                          [[maybe_unused]] index_t live)
    {
        if constexpr(kVectorized)
        {
#pragma unroll
            for(index_t keys = 0; keys < 2; ++keys)
            {
                Bytes16 v[4];
#pragma unroll
                for(index_t i = 0; i < 4; ++i)
                    v[i] = *(LdsBytes16*)(tile + reads.v + i * (32 * kChunkBytes) +
                                          keys * (kPartBytes / 2));
                if constexpr(kLast)
                    keep_live(v, live - keys * 32);
                asm("" : "+v"(v[0]), "+v"(v[1]), "+v"(v[2]), "+v"(v[3]));
#pragma unroll
                for(index_t i = 0; i < 8; ++i)
                    mfma(out[i % 4], eight_bytes(v[i % 4], i / 4), weights.of[2 * keys + i / 4]);
            }
        }
        else
        {
#pragma unroll
            for(index_t keys = 0; keys < 4; ++keys)
#pragma unroll
                for(index_t i = 0; i < 4; ++i)
                {
                    auto* at     = (LdsBytes8*)(tile + reads.v[i] + keys * (kPartBytes / 4));
                    const auto v = __builtin_amdgcn_ds_read_tr8_b64_v2i32(at);
                    mfma(out[i], __builtin_bit_cast(int64_t, v), weights.of[keys]);
                }
        }
    }

    // After multiply_k() and multiply_v() of one phase: all of K is on its way before the first
    // product, and V behind it as the products go.
    CK_TILE_DEVICE static void in_turn()
    {
        reads_ahead<kReadsOfK>();
        ck_tile::static_for<0, kReadsOfV, 1>{}([](auto) {
            products<16 / kReadsOfV>();
            reads_ahead<1>();
        });
        products<kProducts - 16>();
    }

private:
    // Slots of 16 tokens behind the last one hold anything, NaN included: 0 times that is no 0.
    CK_TILE_DEVICE static void keep_live(Bytes16 (&v)[4], index_t live)
    {
        const index_t own = live - static_cast<index_t>(threadIdx.x) % 64 / 32 * 16;
        for(index_t word = 0; word < 4; ++word)
        {
            const index_t left  = own - word * 4; // live bytes of the word
            const uint32_t some = (uint32_t{1} << (left * 8 & 31)) - 1;
            const uint32_t kept = left >= 4 ? ~uint32_t{0} : left <= 0 ? 0 : some;
            for(auto& column : v)
                column[word] = static_cast<int32_t>(static_cast<uint32_t>(column[word]) & kept);
        }
    }
};

} // namespace ckpm::prefill::v3

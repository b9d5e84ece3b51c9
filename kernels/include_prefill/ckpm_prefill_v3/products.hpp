// The matrix phase of a wave: scores of a tile of keys, and what a tile of V adds to O.
#pragma once

#include "ckpm_prefill_v3/arithmetic.hpp"

namespace ckpm::prefill::v3 {

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

// Q of a wave: of each 64 bytes 32 of the lane's query, 16 of either half of them, the lower ones
// in the lower half of the wave. Where registers are few, the last kLdsSteps come from LDS for each
// tile.
template <index_t kSteps, index_t kLdsSteps>
struct Queries
{
    static constexpr index_t kOwnSteps  = kSteps - kLdsSteps;
    static constexpr index_t kHalfBytes = 64 * kChunkBytes; // of a step, all lanes
    static constexpr index_t kLdsBytes  = kLdsSteps * 2 * kHalfBytes;

    // lds: of the wave, which alone writes and reads it
    CK_TILE_DEVICE explicit Queries(LdsByte* lds) : in_lds(lds + threadIdx.x % 64 * kChunkBytes) {}
    CK_TILE_DEVICE void put(index_t step, Bytes16 low, Bytes16 high)
    {
        using Chunk = __attribute__((address_space(3))) Bytes16;
        if(step < kOwnSteps)
            own[step] = joined(low, high);
        else
        {
            *(Chunk*)half(step, 0) = low;
            *(Chunk*)half(step, 1) = high;
        }
    }
    CK_TILE_DEVICE Bytes32 of_step(index_t step) const
    {
        return step < kOwnSteps ? own[step]
                                : joined(*(LdsBytes16*)half(step, 0), *(LdsBytes16*)half(step, 1));
    }

private:
    CK_TILE_DEVICE LdsByte* half(index_t step, index_t index) const
    {
        return in_lds + (2 * (step - kOwnSteps) + index) * kHalfBytes;
    }

    LdsByte* in_lds;
    Bytes32 own[ck_tile::max(kOwnSteps, 1)];
};

// kHeadDim: of Q and K; kColumns: of V.
template <typename Element, index_t kHeadDim, index_t kColumns, typename Layout, index_t kLdsSteps>
struct Products
{
    using Arithmetic = v3::Arithmetic<Element>;
    using Weights    = typename Arithmetic::Weights;
    using Factor     = typename Arithmetic::Factor;
    using Reads      = typename Layout::Reads;

    static constexpr bool kVectorized   = Layout::kVectorized;
    static constexpr bool kFp8          = sizeof(Element) == 1;
    static constexpr index_t kStepBytes = 64; // of a row of K, 32 for each half of a wave
    static constexpr index_t kSteps     = kHeadDim * sizeof(Element) / kStepBytes;
    // Steps whose K is read before the products begin: in 16 bits, and where Q is in LDS, registers
    // are few.
    static constexpr index_t kStepsAhead = kFp8 && kLdsSteps == 0 ? kSteps : 1;
    static constexpr int kColumnBlocks   = kColumns / 32;
    static constexpr int kProductsOfK    = (kFp8 ? 2 : 4) * kSteps;
    static constexpr int kProductsOfV    = Arithmetic::kSteps * kColumnBlocks;
    static constexpr int kReadsOfV       = (kVectorized ? 1 : 2) * (kFp8 ? 2 : 1) * kProductsOfV;

    using KRows   = Bytes16[4 * kStepsAhead]; // a lane's, of a tile
    using Queries = v3::Queries<kSteps, kLdsSteps>;

    CK_TILE_DEVICE static Bytes16 read_row(const LdsByte* tile, const Reads& reads, index_t i)
    {
        return *(LdsBytes16*)(tile + reads.k[i / 4 * 2 % 4 + i % 2] + i / 8 * kPartBytes +
                              i / 2 % 2 * (kPartBytes / 2));
    }
    CK_TILE_DEVICE static void read_k(KRows& k, const LdsByte* tile, const Reads& reads)
    {
#pragma unroll
        for(index_t i = 0; i < 4 * kStepsAhead; ++i)
            k[i] = read_row(tile, reads, i);
    }

    CK_TILE_DEVICE static void multiply_k(Floats16 (&scores)[2],
                                          const Queries& q,
                                          const KRows& k,
                                          const LdsByte* tile,
                                          const Reads& reads)
    {
        for(auto& part : scores)
            part = Floats16{};
#pragma unroll
        for(index_t i = 0; i < 2 * kStepsAhead; ++i)
            Arithmetic::multiply_row(scores[i % 2], k[2 * i], k[2 * i + 1], q.of_step(i / 2));
#pragma unroll
        for(index_t i = 2 * kStepsAhead; i < 2 * kSteps; ++i)
            Arithmetic::multiply_row(scores[i % 2],
                                     read_row(tile, reads, 2 * i),
                                     read_row(tile, reads, 2 * i + 1),
                                     q.of_step(i / 2));
    }

    // live: tokens of the tile, of which a last one may have fewer than 64
    template <bool kLast>
    CK_TILE_DEVICE static void multiply_v(Floats16 (&out)[kColumnBlocks],
                                          const Weights& weights,
                                          const LdsByte* tile,
                                          const Reads& reads,
                                          [[maybe_unused]] index_t live)
    {
#pragma unroll
        for(index_t i = 0; i < kColumnBlocks; ++i)
            ck_tile::static_for<0, Arithmetic::kSteps, 1>{}([&](auto step) {
                Factor v;
                if constexpr(kVectorized)
                {
                    read_columns(v, tile + step * (2 * kOwn * kRowBytes), reads, i);
                    if constexpr(kLast)
                        v &= live_keys(live - step * 16);
                }
                else
                    read_transposed(v, tile + step * (2 * kOwn * kRowBytes), reads, i);
                Arithmetic::multiply(out[i], v, Arithmetic::template of_step<step>(weights));
            });
    }

    // After multiply_k() and multiply_v() of one phase: the rest of K, and V, as the products go
    CK_TILE_DEVICE static void in_turn()
    {
        constexpr int of_step = kProductsOfK / kSteps;
        constexpr int rest    = of_step * (kSteps - kStepsAhead);
        ck_tile::static_for<0, rest, 1>{}([](auto i) {
            constexpr int reads = // of a step of K, and of Q
                kStepsAhead + i / of_step < Queries::kOwnSteps ? 4 : 6;
            constexpr int done = reads * (i % of_step) / of_step;
            constexpr int due  = reads * (i % of_step + 1) / of_step;
            products<1>();
            reads_ahead<due - done>();
        });
        ck_tile::static_for<0, kProductsOfV, 1>{}([](auto) {
            products<1>();
            reads_ahead<kReadsOfV / kProductsOfV>();
        });
        products<kProductsOfK - rest>();
    }

private:
    // V of the vectorized layout: kHalfKeys keys of column lane % 32 a read
    CK_TILE_DEVICE static void read_columns(Factor& v,
                                            const LdsByte* tile,
                                            const Reads& reads,
                                            index_t block)
    {
        const LdsByte* at = tile + reads.v;
        if constexpr(kFp8)
        {
            at += block % 4 * (32 * kChunkBytes) + block / 4 * kPartBytes;
            v = joined(*(LdsBytes16*)at, *(LdsBytes16*)(at + kPartBytes / 2));
        }
        else
            v = *(LdsBytes16*)(at + block % 2 * (32 * kChunkBytes) + block / 2 * kPartBytes);
    }

    // V of linear pages: 8 keys a read of column lane % 32, in 16 bits 4
    CK_TILE_DEVICE static void read_transposed(Factor& v,
                                               const LdsByte* tile,
                                               const Reads& reads,
                                               index_t block)
    {
        constexpr index_t blocks = Reads::kColumnBlocks;
        constexpr index_t count  = sizeof(Factor) / sizeof(Bytes8);
        const LdsByte* at        = tile + reads.v[block % blocks] + block / blocks * kPartBytes;
#pragma unroll
        for(index_t i = 0; i < count; ++i)
        {
            const Bytes8 two = transposed((LdsBytes8*)(at + i * (kFp8 ? 2 : 1) * kOwn * kRowBytes));
            v[2 * i]         = two[0];
            v[2 * i + 1]     = two[1];
        }
    }
    CK_TILE_DEVICE static Bytes8 transposed(LdsBytes8* at)
    {
        if constexpr(kFp8)
            return __builtin_amdgcn_ds_read_tr8_b64_v2i32(at);
        else
        {
            using Shorts4 = int16_t __attribute__((ext_vector_type(4)));
            using Lds     = __attribute__((address_space(3))) Shorts4;
            return __builtin_bit_cast(Bytes8, __builtin_amdgcn_ds_read_tr16_b64_v4i16((Lds*)at));
        }
    }

    // Slots of a chunk after the last token hold anything, NaN included: 0 times NaN isn't 0. Of
    // the keys of a lane in fp8, 16 lie 32 after the others.
    CK_TILE_DEVICE static Factor live_keys(index_t live)
    {
        constexpr index_t bytes = sizeof(Element);
        const index_t own =
            live - static_cast<index_t>(threadIdx.x) % 64 / 32 * (kChunkBytes / bytes);
        Factor kept;
        for(index_t word = 0; word < static_cast<index_t>(sizeof(Factor) / 4); ++word)
        {
            // live bytes of the word
            const index_t left  = own * bytes - word / 4 * 32 - word % 4 * 4;
            const uint32_t some = (uint32_t{1} << (left * 8 & 31)) - 1;
            kept[word] = static_cast<int32_t>(left >= 4 ? ~uint32_t{0} : left <= 0 ? 0 : some);
        }
        return kept;
    }
};

} // namespace ckpm::prefill::v3

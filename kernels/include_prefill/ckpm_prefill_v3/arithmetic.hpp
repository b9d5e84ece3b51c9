// The products and the weights of each data type.
//
// Weights are 2 to the power of kShift as large, relative to a score at the origin (softmax.hpp),
// and the origin follows the largest score once a tile's weights of a query add up to too much.
#pragma once

#include "ckpm_prefill_v3/lds_layout.hpp"

namespace ckpm::prefill::v3 {

CK_TILE_DEVICE Bytes32 joined(Bytes16 low, Bytes16 high)
{
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}

// A lane's number and that of the lane 32 away
struct Halves
{
    float lower, upper;
};

CK_TILE_DEVICE Halves both_halves(float x)
{
    const auto bits     = __builtin_bit_cast(uint32_t, x);
    const auto both     = __builtin_amdgcn_permlane32_swap(bits, bits, false, false);
    const uint32_t low  = both[0]; // a bit cast of an element would read the vector's first one
    const uint32_t high = both[1];
    return {__builtin_bit_cast(float, low), __builtin_bit_cast(float, high)};
}

template <typename Element>
struct Arithmetic;

// Of e4m3. Weights have three bits down to 2^-6, 2^-12 of that of a score at the origin, and the
// conversion makes NaN of what is more than 464 (MODE.FP16_OVFL is 0), 2^2.8 above it.
template <>
struct Arithmetic<ck_tile::fp8_t>
{
    using Weights                   = Bytes32; // 32 of a lane in the order of its scores
    static constexpr float kShift   = 6.f;
    static constexpr index_t kSteps = 1; // MFMAs for 64 keys
    using Factor                    = Bytes32;

    CK_TILE_DEVICE static bool is_too_much(float sum) { return sum != sum; }

    // Both factors without scales
    CK_TILE_DEVICE static void multiply(Floats16& c, const Factor& a, const Factor& b)
    {
        c = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(a, b, c, 0, 0, 0, 0, 0, 0);
    }
    // 64 bytes of rows of K and Q
    CK_TILE_DEVICE static void multiply_row(Floats16& c,
                                            Bytes16 low,
                                            Bytes16 high,
                                            const Bytes32& q)
    {
        multiply(c, joined(low, high), q);
    }
    template <index_t kStep>
    CK_TILE_DEVICE static const Factor& of_step(const Weights& weights)
    {
        return weights;
    }

    CK_TILE_DEVICE static void put(Weights& weights, index_t i, const float (&w)[4])
    {
        // both halves are written, the lower one first: the old weights cost no zeroing
        const int32_t lower = __builtin_amdgcn_cvt_pk_fp8_f32(w[0], w[1], weights[i / 4], false);
        weights[i / 4]      = __builtin_amdgcn_cvt_pk_fp8_f32(w[2], w[3], lower, true);
    }

    // The sum of a query's weights: the vector unit has no time for that. Of the 16x16x128 MFMA
    // lane i brings 32 bytes of column i % 16, which are the weights of query i % 32. So of the
    // four lanes of a column two have the one query, two have the other. Row 4 * j of the ones
    // takes those of parity j % 2, and is in lanes 16 * j and up of the result.
    struct Ones
    {
        Weights ones;

        CK_TILE_DEVICE explicit Ones(index_t lane)
        {
            // four times 1 in e4m3, or nothing
            const int32_t one = (lane / 4 ^ lane / 16) % 2 == 0 ? 0x38383838 : 0;
            ones              = {one, one, one, one, one, one, one, one};
        }
        // Else each product makes eight registers of one.
        CK_TILE_DEVICE void settle() { asm("" : "+v"(ones)); }

        CK_TILE_DEVICE float sum_of(const Weights& weights) const
        {
            return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(
                ones, weights, Floats4{}, 0, 0, 0, 0, 0, 0)[0];
        }
    };
};

// Of fp16 and bf16. The matrix unit takes four times as long for a tile as in fp8, and the vector
// unit has time for the sum. In fp16 a weight is at most 65504, and has all bits down to 2^-14.
// bf16 has float's range: weights are so small that no sum of them with V overflows which V alone
// doesn't.
template <typename Half>
struct Arithmetic16
{
    using Factor                    = Bytes16;
    using Two                       = Half __attribute__((ext_vector_type(2)));
    using Eight                     = Half __attribute__((ext_vector_type(8)));
    static constexpr bool kBf16     = std::is_same_v<Half, __bf16>;
    static constexpr float kShift   = kBf16 ? -24.f : 9.f;
    static constexpr index_t kSteps = 4;

    struct Weights
    {
        Bytes64 bits;
        float sums[2]; // of weights before they were rounded: two chains, of which neither waits
    };

    // 64 weights of a score at the origin are not
    CK_TILE_DEVICE static bool is_too_much(float sum)
    {
        return !(sum < (kBf16 ? 0x1p-12f : 65504.f));
    }

    CK_TILE_DEVICE static void multiply(Floats16& c, const Factor& a, const Factor& b)
    {
        const auto first  = __builtin_bit_cast(Eight, a);
        const auto second = __builtin_bit_cast(Eight, b);
        if constexpr(kBf16)
            c = __builtin_amdgcn_mfma_f32_32x32x16_bf16(first, second, c, 0, 0, 0);
        else
            c = __builtin_amdgcn_mfma_f32_32x32x16_f16(first, second, c, 0, 0, 0);
    }
    CK_TILE_DEVICE static void multiply_row(Floats16& c,
                                            Bytes16 low,
                                            Bytes16 high,
                                            const Bytes32& q)
    {
        multiply(c, low, __builtin_shufflevector(q, q, 0, 1, 2, 3));
        multiply(c, high, __builtin_shufflevector(q, q, 4, 5, 6, 7));
    }
    template <index_t kStep>
    CK_TILE_DEVICE static Factor of_step(const Weights& weights)
    {
        constexpr index_t i = 4 * kStep;
        return __builtin_shufflevector(weights.bits, weights.bits, i, i + 1, i + 2, i + 3);
    }

    CK_TILE_DEVICE static void put(Weights& weights, index_t i, const float (&w)[4])
    {
        for(index_t j = 0; j < 2; ++j)
        {
            weights.bits[i / 2 + j] = packed(w[2 * j], w[2 * j + 1]);
            float sum               = w[2 * j] + w[2 * j + 1];
            asm("" : "+v"(sum)); // else two of them are packed, and wait for the matrix unit
            weights.sums[j] = i == 0 ? sum : weights.sums[j] + sum;
            asm("" : "+v"(weights.sums[j]));
        }
    }

    struct Ones
    {
        CK_TILE_DEVICE explicit Ones(index_t) {}
        CK_TILE_DEVICE void settle() {}

        CK_TILE_DEVICE float sum_of(const Weights& weights) const
        {
            const Halves halves = both_halves(weights.sums[0] + weights.sums[1]);
            return halves.lower + halves.upper;
        }
    };

private:
    CK_TILE_DEVICE static int32_t packed(float first, float second)
    {
        using Floats2 = float __attribute__((ext_vector_type(2)));
        return __builtin_bit_cast(int32_t, __builtin_convertvector(Floats2{first, second}, Two));
    }
};

template <>
struct Arithmetic<ck_tile::bf16_t> : Arithmetic16<__bf16>
{};
template <>
struct Arithmetic<ck_tile::fp16_t> : Arithmetic16<_Float16>
{};

} // namespace ckpm::prefill::v3

// 2^x on 64 lanes of f32.
#pragma once

#include "isa/operands.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace emu {
// Vectors as GCC and clang have them for every instruction set: with -frounding-math no compiler
// makes vector code of a loop that converts between float and double.
constexpr unsigned EXP_LANES = 8;
using Doubles                = double __attribute__((vector_size(8 * EXP_LANES)));
using Longs                  = int64_t __attribute__((vector_size(8 * EXP_LANES)));
using Floats                 = float __attribute__((vector_size(4 * EXP_LANES)));

// How many of them at once: as many as there are registers for.
#if defined(EMU_PLAIN)
inline constexpr unsigned EXP_VECTORS = 1;
#elif defined(__AVX512F__)
inline constexpr unsigned EXP_VECTORS = 8;
#else
inline constexpr unsigned EXP_VECTORS = 4;
#endif

// 1.5 * 2^52: adding it leaves the nearest integer in the low bits.
inline constexpr double EXP_MAGIC = 6755399441055744.0;
// (2^f - 1) / f on [-1/2, 1/2], interpolated at Chebyshev's points; before it the 1 of 1 + f *
// p(f).
inline constexpr double EXP_SERIES[] = {1.0,
                                        0.6931471805568324,
                                        0.24022650695888503,
                                        0.055504109063258665,
                                        0.00961812913523614,
                                        0.0013333478473685416,
                                        0.00015403475186530786,
                                        1.5303700711365693e-05,
                                        1.325080551750225e-06};

// Keeps the compiler from moving what makes a value: GCC would make one vector's power after the
// other's, each of whose steps waits for the one before it.
EMU_INLINE void made_here([[maybe_unused]] Doubles& value)
{
#if defined(__AVX512F__) && !defined(EMU_PLAIN)
    asm("" : "+v"(value));
#endif
}

// x = 2^x in double, with a relative error below 2^-38. Of several vectors at once: the steps of
// one wait for each other.
template <unsigned Count>
EMU_INLINE void exp2_of(Doubles (&x)[Count])
{
    Doubles shifted[Count], f[Count], sum[Count];
    for(unsigned i = 0; i < Count; ++i)
    {
        shifted[i] = x[i] + EXP_MAGIC;
        f[i]       = x[i] - (shifted[i] - EXP_MAGIC);
        sum[i]     = f[i] * EXP_SERIES[8] + EXP_SERIES[7];
    }
    for(int term = 6; term >= 0; --term)
        for(unsigned i = 0; i < Count; ++i)
        {
            sum[i] = sum[i] * f[i] + EXP_SERIES[term];
            made_here(sum[i]);
        }
    for(unsigned i = 0; i < Count; ++i)
    {
        const Longs exponent = std::bit_cast<Longs>(shifted[i]) - std::bit_cast<int64_t>(EXP_MAGIC);
        x[i]                 = sum[i] * std::bit_cast<Doubles>((exponent + 1023) << 52);
    }
}

#if defined(__AVX512F__) && !defined(EMU_PLAIN)
// In whole vectors; of the general form GCC makes halves and blends.
EMU_INLINE Doubles exp2_argument(Floats x)
{
    const __m256 inside = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-200.0f)), _mm256_set1_ps(200.0f));
    return _mm512_cvtps_pd(inside);
}
EMU_INLINE Floats exp2_result(Floats x, Doubles power)
{
    const __mmask8 kept = _mm256_cmp_ps_mask(x, _mm256_set1_ps(-126.0f), _CMP_NLT_UQ);
    const __m256 value  = _mm256_maskz_mov_ps(kept, _mm512_cvtpd_ps(power));
    return _mm256_mask_add_ps(value, _mm256_cmp_ps_mask(x, x, _CMP_UNORD_Q), x, x);
}
#else
inline Doubles exp2_argument(Floats x)
{
    const Floats inside = x > 200.0f ? Floats{} + 200.0f : x > -200.0f ? x : Floats{} - 200.0f;
    return __builtin_convertvector(inside, Doubles);
}
inline Floats exp2_result(Floats x, Doubles power)
{
    const Floats value   = __builtin_convertvector(power, Floats);
    const Floats flushed = x < -126.0f ? Floats{} : value;
    return x != x ? x + x : flushed;
}
#endif

// The transcendental instructions flush subnormals in every MODE (LLVM's AMDGPU lowering of
// exp2, log2, rcp, rsq and sqrt scales around that). Their documented error is 1 ulp; here they are
// rounded once from double.
inline void exp2_row(const uint32_t* from, uint32_t* to)
{
    constexpr unsigned COUNT = EXP_VECTORS;
    for(unsigned l = 0; l < LANES; l += COUNT * EXP_LANES)
    {
        Floats x[COUNT];
        Doubles power[COUNT];
        std::memcpy(x, from + l, sizeof x);
        for(unsigned i = 0; i < COUNT; ++i)
            power[i] = exp2_argument(x[i]);
        exp2_of(power);
        for(unsigned i = 0; i < COUNT; ++i)
        {
            const Floats result = exp2_result(x[i], power[i]);
            std::memcpy(to + l + i * EXP_LANES, &result, sizeof result);
        }
    }
}
} // namespace emu

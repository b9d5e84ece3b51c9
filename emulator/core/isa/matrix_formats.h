// Formats of the factors of a matrix instruction: where a value lies in a lane's registers, and the
// value as f32 (i8: as i32), which holds all of them exactly.
#pragma once

#include "isa/float_formats.h"
#include "isa/operands.h"
#include "isa/scaled_formats.h"

#include <array>
#include <cstring>
#include <type_traits>

namespace emu {
// Formats: values a dword, and widening of value `e` of a run of dwords to f32. For the exact sums
// also (of the formats of gfx942): bits of the mantissa, exponent of the least normal number, and
// how many products are added at a time.
struct F32
{
    using Value                         = float;
    static constexpr unsigned PER_DWORD = 1;
    static constexpr unsigned GROUP     = 0; // one at a time, each sum rounded
    static void widen(const Wave& w, const uint32_t* from, unsigned, float* to, unsigned count)
    {
        const bool kept = mode::INPUTS_F32.of(w.mode);
        for(unsigned i = 0; i < count; ++i)
            to[i] = as_float(kept || from[i] & 0x7f800000 ? from[i] : from[i] & 0x80000000);
    }
};

// gfx942's xf32: an f32 of whose mantissa the matrix unit takes 10 bits.
struct Xf32
{
    using Value                         = float;
    static constexpr unsigned PER_DWORD = 1;
    static constexpr unsigned GROUP     = 4;
    static constexpr int MANTISSA = 10, LEAST = -126;
    static void widen(const Wave&, const uint32_t* from, unsigned, float* to, unsigned count)
    {
        for(unsigned i = 0; i < count; ++i)
            to[i] = as_float(from[i] & ~0x1fffu);
    }
};

struct Bf16
{
    using Value                         = float;
    static constexpr unsigned PER_DWORD = 2;
    static constexpr unsigned GROUP     = 8;
    static constexpr int MANTISSA = 7, LEAST = -126;
    static void widen(const Wave&, const uint32_t* from, unsigned part, float* to, unsigned count)
    {
        for(unsigned i = 0; i < count; i += SEVERAL)
        {
            auto words = lanes_at<Words>(from + i);
            words      = part == 0 ? words << 16 : words & 0xffff0000;
            std::memcpy(to + i, &words, sizeof words);
        }
    }
};

struct F16
{
    using Value                         = float;
    static constexpr unsigned PER_DWORD = 2;
    static constexpr unsigned GROUP     = 8;
    static constexpr int MANTISSA = 10, LEAST = -14;
    static void widen(const Wave&, const uint32_t* from, unsigned part, float* to, unsigned count)
    {
#ifdef __AVX512F__
        for(unsigned i = 0; i < count; i += 16)
        {
            const __m512i both = _mm512_loadu_si512(from + i);
            _mm512_store_ps(to + i,
                            _mm512_cvtph_ps(_mm512_cvtepi32_epi16(part == 0 ? both : _mm512_srli_epi32(both, 16))));
        }
#else
        for(unsigned i = 0; i < count; ++i)
            to[i] = f16_to_f32(from[i] >> 16 * part & 0xffff);
#endif
    }
};

template <typename Old, typename New, int Mantissa>
struct Byte
{
    using Value                         = float;
    static constexpr unsigned PER_DWORD = 4;
    static constexpr unsigned GROUP     = 16;
    static constexpr int MANTISSA = Mantissa, LEAST = 1 - Old::BIAS;
    static void widen(const Wave& w, const uint32_t* from, unsigned part, float* to, unsigned count)
    {
        for(unsigned i = 0; i < count; i += SEVERAL)
        {
            const Words bytes = lanes_at<Words>(from + i) >> 8 * part & 0xff;
            const Words bits  = w.group->arch == 950 ? New::to_f32_bits(bytes) : Old::to_f32_bits(bytes);
            std::memcpy(to + i, &bits, sizeof bits);
        }
    }
};
using Fp8 = Byte<Fp8Fnuz, Fp8Ocp, 3>;
using Bf8 = Byte<Bf8Fnuz, Bf8Ocp, 2>;

struct I8
{
    using Value                         = int32_t;
    static constexpr unsigned PER_DWORD = 4;
    static void widen(const Wave&, const uint32_t* from, unsigned part, int32_t* to, unsigned count)
    {
        for(unsigned i = 0; i < count; ++i)
            to[i] = static_cast<int8_t>(from[i] >> 8 * part);
    }
};

// Formats of 6 and 4 bits, without gaps, across the boundaries of registers.
template <typename Format>
struct SubByte
{
    using Value                    = float;
    static constexpr unsigned BITS = Format::BITS, CODES = 1u << BITS;

    static std::array<float, CODES> decoded()
    {
        std::array<float, CODES> values;
        for(uint32_t code = 0; code < CODES; ++code)
            values[code] = as_float(convert_scaled<Format, ScaledF32>(code, false, 0, false));
        return values;
    }

    static void lanes(const Wave& w, uint16_t code, unsigned e, float* to)
    {
        static const auto VALUES = decoded();
        const unsigned first = BITS * e, last = first + BITS - 1;
        const uint32_t *low = w.v[code + first / 32], *high = w.v[code + last / 32];
        for(unsigned l = 0; l < LANES; ++l)
        {
            const uint64_t both = uint64_t{high[l]} << 32 | low[l];
            to[l]               = VALUES[both >> first % 32 & (CODES - 1)];
        }
    }
};
using Fp6 = SubByte<ScaledFp6>;
using Bf6 = SubByte<ScaledBf6>;
using Fp4 = SubByte<ScaledFp4>;

// Matrix instructions round to nearest even and keep subnormals in every MODE; gfx90a takes them for
// zeros where factors are f16 or bf16, and leaves none (AMD, "MI200 MFMA behavior specifics").
template <typename Format>
uint32_t matrix_mode(const Wave& w)
{
    constexpr bool HALVES = std::is_same_v<Format, F16> || std::is_same_v<Format, Bf16>;
    return HALVES && is_gfx90a(w) ? MXCSR_NEAREST | MXCSR_INPUTS_ARE_ZERO | MXCSR_FLUSH : MXCSR_NEAREST;
}

// Of f16 the host has no subnormals once they are f32.
[[gnu::noinline, gnu::cold]] inline void flush_f16_values(float* values, unsigned count)
{
    for(unsigned i = 0; i < count; ++i)
        values[i] = std::fabs(values[i]) < 0x1p-14f ? std::copysign(0.0f, values[i]) : values[i];
}
template <typename Format>
void flush_factors(const Wave& w, typename Format::Value* values, unsigned count)
{
    if constexpr(std::is_same_v<Format, F16>)
        if(is_gfx90a(w)) [[unlikely]]
            flush_f16_values(values, count);
}

// Value `e` of every lane, of those in the registers from `code` on.
template <typename Format>
void lane_values(const Wave& w, uint16_t code, unsigned e, typename Format::Value* to)
{
    if constexpr(requires { Format::PER_DWORD; })
        Format::widen(w, w.v[code + e / Format::PER_DWORD], e % Format::PER_DWORD, to, LANES);
    else
        Format::lanes(w, code, e, to);
    flush_factors<Format>(w, to, LANES);
}
} // namespace emu

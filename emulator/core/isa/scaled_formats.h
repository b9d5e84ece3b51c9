// Floating-point formats of CDNA4's v_cvt_scalef32_*: from and to a power of two of them.
//
// The ISA document's pseudocode names the conversions (f32_to_fp6_scale and so on) without defining
// them. Rounding, overflow and the use of random bits are those of the host functions in HIP's
// header amd_hip_ocp_host.hpp, which AMD keeps equal to gfx950.
#pragma once

#include <bit>
#include <cstdint>

namespace emu {
// Exponent of a scale as the instructions take it from an f32; 255 makes every result a NaN.
inline constexpr uint32_t SCALE_NAN  = 255;
inline constexpr int SCALE_BIAS      = 127;
inline constexpr unsigned F32_FIELDS = 23; // bits of an f32's mantissa

// A finite magnitude: significand * 2^(exponent - 23) with 2^23 <= significand < 2^24, or zero.
struct Magnitude
{
    uint32_t significand;
    int exponent;
};

// Of a magnitude `units` * 2^exponent.
inline Magnitude normalised(uint32_t units, int exponent)
{
    if(units == 0)
        return {0, 0};
    const int shift = std::countl_zero(units) - 8;
    return {units << shift, exponent + static_cast<int>(F32_FIELDS) - shift};
}

// A format by its fields. Special has the meaning of the highest codes: as in IEEE 754, one NaN and
// no infinity (e4m3 of OCP), or numbers all of them (the formats of 4 and 6 bits).
enum class Special
{
    Ieee,
    OneNan,
    None
};

template <unsigned ExponentBits, unsigned MantissaBits, Special Top>
struct ScaledFormat
{
    static constexpr unsigned BITS = 1 + ExponentBits + MantissaBits, MANTISSA = MantissaBits;
    static constexpr int BIAS      = (1 << (ExponentBits - 1)) - 1,
                         LEAST     = 1 - BIAS; // exponent of the least normal
    static constexpr uint32_t SIGN = 1u << (BITS - 1), ALL = SIGN - 1, INFINITE = ALL & ~((1u << MantissaBits) - 1),
                              LARGEST = Top == Special::Ieee     ? INFINITE - 1
                                        : Top == Special::OneNan ? ALL - 1
                                                                 : ALL;

    // What a NaN becomes, and a value too large. Formats without either have the largest number.
    static constexpr uint32_t NAN_CODE  = Top == Special::Ieee ? INFINITE | 1u << (MantissaBits - 1) : ALL;
    static constexpr uint32_t OVERFLOWN = Top == Special::Ieee ? INFINITE : ALL;

    static bool is_nan(uint32_t magnitude)
    {
        return Top != Special::None && magnitude > LARGEST && !is_infinite(magnitude);
    }
    static bool is_infinite(uint32_t magnitude) { return Top == Special::Ieee && magnitude == INFINITE; }

    static Magnitude split(uint32_t magnitude)
    {
        const uint32_t field = magnitude >> MantissaBits, low = magnitude & ((1u << MantissaBits) - 1);
        const int exponent = field == 0 ? LEAST : static_cast<int>(field) - BIAS;
        return normalised(field == 0 ? low : low | 1u << MantissaBits, exponent - static_cast<int>(MantissaBits));
    }

    // The code of a magnitude, rounded to nearest even; above LARGEST if it is too large. With
    // `noise`, these bits are added below the last place instead, as they stand in a mantissa of
    // `width` bits, and the sum is cut.
    static uint32_t join(Magnitude value, const uint32_t* noise, unsigned width)
    {
        if(value.significand == 0)
            return 0;
        if(value.exponent > BIAS + 1)
            return ALL + 1;
        const int below      = value.exponent < LEAST ? LEAST - value.exponent : 0;
        const unsigned shift = F32_FIELDS - MantissaBits + static_cast<unsigned>(below);
        uint32_t code        = 0;
        if(noise != nullptr)
        {
            const uint32_t added = *noise >> (32 - width + MantissaBits) << (F32_FIELDS - width);
            code = ((below < 32 ? value.significand >> below : 0) + added) >> (F32_FIELDS - MantissaBits);
        }
        else if(shift == 0)
        {
            code = value.significand;
        }
        else if(shift <= 25)
        {
            const uint32_t half = 1u << (shift - 1), rest = value.significand & ((1u << shift) - 1);
            code = value.significand >> shift;
            code += rest > half || (rest == half && (code & 1)) ? 1 : 0;
        }
        // The implicit bit of a normal number adds one to the exponent.
        if(below == 0)
            code += static_cast<uint32_t>(value.exponent - LEAST) << MantissaBits;
        return code;
    }
};

using ScaledF32  = ScaledFormat<8, 23, Special::Ieee>;
using ScaledF16  = ScaledFormat<5, 10, Special::Ieee>;
using ScaledBf16 = ScaledFormat<8, 7, Special::Ieee>;
using ScaledFp8  = ScaledFormat<4, 3, Special::OneNan>;
using ScaledBf8  = ScaledFormat<5, 2, Special::Ieee>;
using ScaledFp6  = ScaledFormat<2, 3, Special::None>;
using ScaledBf6  = ScaledFormat<3, 2, Special::None>;
using ScaledFp4  = ScaledFormat<2, 1, Special::None>;

// `code` of From as To, times 2^power. `saturate`: what is too large, and an infinity, becomes
// LARGEST. Power: the scale's exponent less its bias for widening, negative for narrowing.
template <typename From, typename To>
uint32_t convert_scaled(uint32_t code, bool nan_scale, int power, bool saturate, const uint32_t* noise = nullptr)
{
    const uint32_t sign = code & From::SIGN ? To::SIGN : 0, magnitude = code & From::ALL;
    if(nan_scale || From::is_nan(magnitude))
        return sign | To::NAN_CODE;
    const uint32_t top = saturate ? To::LARGEST : To::OVERFLOWN;
    if(From::is_infinite(magnitude))
        return sign | top;
    Magnitude value = From::split(magnitude);
    value.exponent += power;
    const uint32_t joined = To::join(value, noise, From::MANTISSA);
    return sign | (joined > To::LARGEST ? top : joined);
}
} // namespace emu

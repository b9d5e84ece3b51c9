// Small floating-point formats: f16, bf16, fp8 (e4m3) and bf8 (e5m2), to and from f32.
//
// gfx942 has the FNUZ encodings of fp8 and bf8 (one zero, one NaN 0x80, no infinity, bias one
// higher), gfx950 the OCP ones (CDNA3 and CDNA4 ISA documents, "FP8 and BF8 formats").
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace emu {
// MODE's rounding field.
enum class Round : uint32_t
{
    Nearest,
    Up,
    Down,
    Zero
};

inline float bf16_to_f32(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

// Round to nearest even; a NaN stays a quiet NaN.
inline uint32_t f32_to_bf16(uint32_t bits)
{
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
    return (bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded;
}

// Exact. Written without branches so that the compiler vectorises loops over it, and without float
// arithmetic on subnormals so that the host's mode does not matter.
inline uint32_t f16_to_f32_bits(uint32_t half)
{
    const uint32_t sign = (half & 0x8000) << 16, magnitude = half & 0x7fff;
    const uint32_t normal  = (magnitude << 13) + (112u << 23);
    const uint32_t special = (magnitude << 13) | 0x7f800000;
    // A subnormal is magnitude * 2^-24: convert the integer, then lower the exponent by 24.
    const uint32_t converted = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)));
    const uint32_t subnormal = magnitude == 0 ? 0 : converted - (24u << 23);
    const uint32_t value     = magnitude >= 0x7c00 ? special : magnitude >= 0x0400 ? normal : subnormal;
    return sign | value;
}

inline float f16_to_f32(uint32_t half) { return std::bit_cast<float>(f16_to_f32_bits(half)); }

// Whether a magnitude with `remainder` below its last place rounds up. `half_way` is half of that
// place.
inline bool rounds_up(Round round, bool negative, bool odd, uint32_t remainder, uint32_t half_way)
{
    switch(round)
    {
        case Round::Nearest: return remainder > half_way || (remainder == half_way && odd);
        case Round::Up: return remainder != 0 && !negative;
        case Round::Down: return remainder != 0 && negative;
        default: return false;
    }
}

// `saturate`: what is too large, but not infinite, becomes the largest number in every rounding.
inline uint32_t f32_to_f16(uint32_t bits, Round round, bool saturate = false)
{
    const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if(magnitude > 0x7f800000)
        return sign | 0x7e00 | (magnitude >> 13 & 0x1ff);
    if(magnitude == 0x7f800000)
        return sign | 0x7c00;
    const bool negative = sign != 0;
    uint32_t shift = 13, value = magnitude - (112u << 23);
    if(magnitude < (113u << 23))
    {
        // subnormal result
        const uint32_t exponent = magnitude >> 23;
        const uint32_t steps    = 126 - exponent; // 14 and up
        if(steps > 31)
            return sign | static_cast<uint32_t>(magnitude != 0 && rounds_up(round, negative, false, 1, 2));
        value = (magnitude & 0x7fffff) | (exponent == 0 ? 0u : 0x800000u);
        shift = steps;
    }
    uint32_t result          = value >> shift;
    const uint32_t remainder = value & ((1u << shift) - 1);
    if(rounds_up(round, negative, result & 1, remainder, 1u << (shift - 1)))
        ++result;
    if(result >= 0x7c00)
    {
        const bool to_infinity =
            round == Round::Nearest || (round == Round::Up && !negative) || (round == Round::Down && negative);
        result = to_infinity && !saturate ? 0x7c00 : 0x7bff;
    }
    return sign | result;
}

// f32 rounded to odd: truncated toward zero, then the last bit set, so that a second rounding can't
// tie wrongly.
inline uint32_t f64_to_odd_f32(double value)
{
    const float near = static_cast<float>(value);
    uint32_t bits    = std::bit_cast<uint32_t>(near);
    if(std::isfinite(near) && static_cast<double>(near) != value)
    {
        if(std::fabs(static_cast<double>(near)) > std::fabs(value))
            --bits;
        bits |= 1;
    }
    return bits;
}

// frexp of an f16, f32 or f64 by its bits: a mantissa in [0.5, 1) with the sign, and the exponent; 0
// for what is zero, infinite or NaN. The host's own takes subnormals for zeros where MODE has f32 flushed.
template <typename Bits>
struct Frexp
{
    static constexpr int WIDTH = 8 * sizeof(Bits), FRACTION = WIDTH == 16 ? 10 : WIDTH == 32 ? 23 : 52;
    static constexpr int BELOW_ONE = (1 << (WIDTH - FRACTION - 2)) - 2; // the exponent's field of 0.5
    static constexpr Bits SIGN = Bits(Bits{1} << (WIDTH - 1)), ONE = Bits(Bits{1} << FRACTION);

    Bits mantissa;
    int exponent = 0;

    explicit Frexp(Bits bits) : mantissa(bits)
    {
        const Bits magnitude = bits & Bits(SIGN - 1);
        if(magnitude == 0 || magnitude >= SIGN - ONE)
            return;
        const int up    = magnitude < ONE ? std::countl_zero(magnitude) - (WIDTH - 1 - FRACTION) : 0;
        const int field = up != 0 ? 1 - up : static_cast<int>(magnitude >> FRACTION);
        exponent        = field - BELOW_ONE;
        mantissa = Bits((bits & SIGN) | (Bits(magnitude << up) & Bits(ONE - 1)) | Bits(Bits{BELOW_ONE} << FRACTION));
    }
};

// A subnormal becomes a zero of its sign.
inline uint32_t flush_f16(uint32_t half) { return (half & 0x7c00) == 0 ? half & 0x8000 : half; }

inline bool is_nan_f16(uint32_t half) { return (half & 0x7fff) > 0x7c00; }
inline bool is_signalling_f16(uint32_t half) { return is_nan_f16(half) && !(half & 0x200); }

// The greater, or with Max false the smaller, by bits: a conversion to f32 would quieten a
// signalling NaN. With MODE.IEEE that one wins, as a quiet one; else a NaN loses (ISA document,
// v_min_f16 and v_max_f16).
template <bool Max>
inline uint32_t extreme_f16(bool ieee, uint32_t a, uint32_t b)
{
    // Ordered as the values are, with -0 below +0.
    const auto order = [](uint32_t x) {
        return x & 0x8000 ? -1 - static_cast<int32_t>(x & 0x7fff) : static_cast<int32_t>(x);
    };
    uint32_t result = (Max ? order(a) > order(b) : order(a) < order(b)) ? a : b;
    result          = is_nan_f16(b) ? a : result;
    result          = is_nan_f16(a) ? b : result;
    result          = ieee && is_signalling_f16(b) ? b | 0x200 : result;
    return ieee && is_signalling_f16(a) ? a | 0x200 : result;
}

// One of the 8-bit formats.
template <unsigned ExponentBits, unsigned MantissaBits, bool Fnuz>
struct Float8
{
    static constexpr int BIAS          = (1 << (ExponentBits - 1)) - (Fnuz ? 0 : 1);
    static constexpr uint32_t MANTISSA = (1u << MantissaBits) - 1, EXPONENT = (1u << ExponentBits) - 1;
    // Largest finite magnitude. OCP e4m3 loses only its all-ones code to NaN; OCP e5m2 is like
    // IEEE.
    static constexpr uint32_t MAX = Fnuz ? 0x7f : (ExponentBits == 4 ? 0x7e : 0x7b);

    // Exact. Of one byte, or of several as a vector.
    template <typename Word>
    static Word to_f32_bits(Word byte)
    {
        const Word zero{}, one = zero + 1, nan = zero + 0x7fc00000;
        const Word sign = (byte & 0x80) << 24, magnitude = byte & 0x7f;
        const Word mantissa = magnitude & MANTISSA;
        const Word normal   = (magnitude << (23 - MantissaBits)) + ((127u - BIAS) << 23);
        // The leading one of a subnormal becomes the implicit bit.
        const Word up        = MantissaBits - (mantissa >= 2 ? one : zero) - (mantissa >= 4 ? one : zero);
        const Word tail      = (mantissa << up & MANTISSA) << (23 - MantissaBits);
        const Word subnormal = mantissa == 0 ? zero : ((128u - BIAS) - up) << 23 | tail;
        const Word finite    = sign | (magnitude > MANTISSA ? normal : subnormal);
        if(Fnuz)
            return byte == 0x80 ? nan : finite;
        const Word infinite = ExponentBits == 5 ? zero + 0x7f800000 : nan;
        const Word special  = sign | (magnitude == 0x7c ? infinite : nan);
        return magnitude > MAX ? special : finite;
    }

    // Round to nearest even. `saturate`: too large becomes MAX, else NaN or infinity as the format
    // has it. Of one lane's bits, or of several as a vector.
    template <typename Word>
    static Word from_f32_bits(Word bits, bool saturate)
    {
        const Word zero{}, sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
        const Word field = magnitude >> 23, least = zero + (128u - BIAS); // of a normal result
        const Word value = (magnitude & 0x7fffff) | (field != 0 ? zero + 0x800000 : zero);
        const Word shift = (field < least ? least - field : zero) + (23 - MantissaBits);
        const Word by = shift < 31 ? shift : zero + 31, one = zero + 1, half_way = one << (by - 1);
        const Word kept = value >> by, remainder = value & ((one << by) - 1);
        const auto up = (remainder > half_way) | ((remainder == half_way) & ((kept & 1) != 0));
        // The implicit bit of a normal number adds one to the exponent.
        const Word exponent = field < least ? zero : (field - least) << MantissaBits;
        const Word rounded  = kept + (up ? one : zero) + exponent;
        return coded(magnitude, sign, rounded, saturate);
    }

    // Stochastic rounding: the bits of `noise` are added below the last place.
    static uint32_t from_f32_bits(uint32_t bits, bool saturate, uint32_t noise)
    {
        const uint32_t sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
        const int exponent   = static_cast<int>(magnitude >> 23) - 127 + BIAS;
        const uint32_t value = (magnitude & 0x7fffff) | (magnitude >> 23 ? 0x800000u : 0u);
        uint32_t shift       = 23 - MantissaBits;
        if(exponent < 1)
            shift += static_cast<uint32_t>(1 - exponent);
        uint32_t result = shift <= 25 ? (value + (noise >> (32 - shift))) >> shift : 0;
        if(exponent >= 1)
            result += static_cast<uint32_t>(exponent - 1) << MantissaBits;
        return coded(magnitude, sign, result, saturate);
    }

private:
    // The code of a rounded magnitude, or of what `magnitude`, in f32, is instead of a number.
    template <typename Word>
    static Word coded(Word magnitude, Word sign, Word rounded, bool saturate)
    {
        const Word zero{};
        const Word nan      = Fnuz ? zero + 0x80 : sign | 0x7f;
        const Word overflow = Fnuz ? zero + 0x80 : sign | (ExponentBits == 5 ? 0x7c : 0x7f);
        const Word beyond   = saturate ? sign | MAX : overflow;
        Word result         = rounded > MAX ? beyond : sign | rounded;
        if(Fnuz)
            result = rounded == 0 ? zero : result;
        return magnitude > 0x7f800000 ? nan : result;
    }
};

using Fp8Fnuz = Float8<4, 3, true>;
using Bf8Fnuz = Float8<5, 2, true>;
using Fp8Ocp  = Float8<4, 3, false>;
using Bf8Ocp  = Float8<5, 2, false>;
} // namespace emu

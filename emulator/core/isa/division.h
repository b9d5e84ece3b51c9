// Divisions by v_div_scale, v_rcp, v_div_fmas and v_div_fixup: what f32 and f64 have in common.
//
// The manuals' listings do not divide: they scale results always up, by 2^32 and 2^64. The rules
// here are those of AMD's emulator rocjitsu, whose authors compared them with a gfx1100 and a
// gfx1201 (ROCm/rocm-systems, pull request 11613). LLVM's expansion of a division needs them.
#pragma once

#include "isa/float_formats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

namespace emu {
template <typename T>
struct DivisionFormat
{
    using Bits                    = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    static constexpr int FRACTION = std::numeric_limits<T>::digits - 1, BIAS = std::numeric_limits<T>::max_exponent - 1;
    // v_div_scale: exponents that are FAR apart, a numerator up to SMALL, a denominator whose
    // inverse is subnormal from LARGE on. It scales by 2^POWER or by 2^-POWER.
    static constexpr int FAR = sizeof(T) == 4 ? 96 : 768, SMALL = sizeof(T) == 4 ? 24 : 53, LARGE = 2 * BIAS - 1,
                         POWER = sizeof(T) == 4 ? 64 : 128;

    static Bits fraction(T x) { return std::bit_cast<Bits>(x) & ((Bits{1} << FRACTION) - 1); }
    static int exponent(T x) { return static_cast<int>(std::bit_cast<Bits>(x) >> FRACTION & (2 * BIAS + 1)); }
};

// S0, the denominator or the numerator, scaled where v_div_fmas would lose precision. `flag`:
// v_div_fmas scales its result.
template <typename T>
T div_scale(T s0, T denominator, T numerator, bool& flag)
{
    using F       = DivisionFormat<T>;
    const int top = F::exponent(numerator), bottom = F::exponent(denominator), apart = top - bottom;
    flag                      = apart >= F::FAR || apart <= -F::FAR;
    const bool is_denominator = std::bit_cast<typename F::Bits>(s0) == std::bit_cast<typename F::Bits>(denominator);
    if(numerator == 0 || denominator == 0)
        return std::numeric_limits<T>::quiet_NaN();
    if(apart >= F::FAR)
        return is_denominator ? std::ldexp(s0, F::POWER) : s0;
    if(bottom >= F::LARGE)
        return flag && !is_denominator ? s0 : std::ldexp(s0, -F::POWER);
    if(apart <= -F::FAR)
        return is_denominator ? s0 : std::ldexp(s0, F::POWER);
    return bottom == 0 || top <= F::SMALL ? std::ldexp(s0, F::POWER) : s0;
}

// Finite: significand * 2^exponent.
__extension__ typedef unsigned __int128 Significand;
struct Exact
{
    bool negative;
    Significand significand;
    int exponent;

    // Places without a 1 above it.
    int room() const
    {
        const auto high = static_cast<uint64_t>(significand >> 64);
        return high != 0 ? std::countl_zero(high) : 64 + std::countl_zero(static_cast<uint64_t>(significand));
    }
};

template <typename T>
Exact exact(T x)
{
    using F                     = DivisionFormat<T>;
    const typename F::Bits unit = typename F::Bits{1} << F::FRACTION;
    const int exponent          = F::exponent(x);
    return {std::signbit(x), F::fraction(x) | (exponent != 0 ? unit : 0),
            (exponent != 0 ? exponent : 1) - F::BIAS - F::FRACTION};
}

// Shifted right; what falls off leaves a 1 in the last place.
inline Significand shift_right_odd(Significand value, int by)
{
    if(by >= 128)
        return value != 0;
    return value >> by | ((value >> by << by) != value);
}

// Of numbers that are not zero, with enough places for one rounding of the sum.
inline Exact exact_sum(Exact a, Exact b)
{
    // Two free places: for the carry and a sum's sign.
    for(Exact* part : {&a, &b})
    {
        const int room = part->room() - 2;
        part->significand <<= room;
        part->exponent -= room;
    }
    if(a.exponent < b.exponent || (a.exponent == b.exponent && a.significand < b.significand))
        std::swap(a, b);
    b.significand = shift_right_odd(b.significand, a.exponent - b.exponent);
    a.significand += a.negative == b.negative ? b.significand : -b.significand;
    return a;
}

// (a * b + c) * 2^power, rounded once, by `round` and the host's mode of subnormal results.
// Subnormal operands count.
template <typename T>
T scaled_fma(T a, T b, T c, int power, Round round)
{
    using F = DivisionFormat<T>;
    if(!std::isfinite(a) || !std::isfinite(b) || !std::isfinite(c))
        return std::fma(a, b, c);
    const Exact x = exact(a), y = exact(b), addend = exact(c);
    const Exact product = {x.negative != y.negative, x.significand * y.significand, x.exponent + y.exponent};
    Exact sum           = product.significand == 0 ? addend : product;
    if(product.significand != 0 && addend.significand != 0)
        sum = exact_sum(product, addend);
    if(sum.significand == 0)
    {
        const bool negative = product.negative == addend.negative ? addend.negative : round == Round::Down;
        return negative ? -T{0} : T{0};
    }
    sum.exponent += power;
    const int leading = sum.exponent + 127 - sum.room(), unit = std::max(leading, 1 - F::BIAS) - F::FRACTION;
    // Two places more, for the rounding.
    const int shift     = unit - 2 - sum.exponent;
    Significand rounded = shift > 0 ? shift_right_odd(sum.significand, shift) : sum.significand << -shift;
    const auto rest     = static_cast<uint32_t>(rounded & 3);
    rounded             = rounded >> 2;
    rounded += rounds_up(round, sum.negative, rounded & 1, rest, 2);
    const auto size = static_cast<T>(static_cast<uint64_t>(rounded));
    return std::ldexp(sum.negative ? -size : size, unit);
}

// The scale of v_div_fmas where v_div_scale set the flag follows from its addend, the quotient.
template <typename T>
T div_fmas(T a, T b, T c, bool flag, Round round, bool keeps_subnormals)
{
    using F = DivisionFormat<T>;
    if(!flag && keeps_subnormals)
        return std::fma(a, b, c);
    return scaled_fma(a, b, c, !flag ? 0 : F::exponent(c) > F::BIAS ? F::POWER : -F::POWER, round);
}

// Signs, zeros, infinities and NaN of a quotient, and what is below the least number. A NaN or an
// infinity among the steps of finite operands stands for a quotient that is too large.
template <typename T>
T div_fixup(T quotient, T denominator, T numerator)
{
    using F              = DivisionFormat<T>;
    constexpr T INFINITE = std::numeric_limits<T>::infinity(), LEAST = std::numeric_limits<T>::min();
    constexpr T LARGEST = std::numeric_limits<T>::max();
    const T sign        = std::copysign(T{1}, denominator) * std::copysign(T{1}, numerator);
    const auto quiet    = [](T x) {
        const auto bits = std::bit_cast<typename F::Bits>(x) | typename F::Bits{1} << (F::FRACTION - 1);
        return std::bit_cast<T>(bits);
    };
    if(std::isnan(numerator))
        return quiet(numerator);
    if(std::isnan(denominator))
        return quiet(denominator);
    if((denominator == 0 && numerator == 0) || (std::isinf(denominator) && std::isinf(numerator)))
        return -std::numeric_limits<T>::quiet_NaN();
    if(denominator == 0 || std::isinf(numerator))
        return std::copysign(INFINITE, sign);
    if(std::isinf(denominator) || numerator == 0)
        return std::copysign(T{0}, sign);
    if(F::exponent(numerator) - F::exponent(denominator) < -(F::BIAS + F::FRACTION))
        return sign * LEAST * LEAST; // 0 or the least, as MODE rounds
    return std::isfinite(quotient) ? std::copysign(quotient, sign) : sign * LARGEST * LARGEST;
}
} // namespace emu

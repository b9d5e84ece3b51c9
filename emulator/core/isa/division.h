// Divisions by v_div_scale, v_rcp, v_div_fmas and v_div_fixup: what f32 and f64 have in common.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace emu {
inline int exponent_of(float x) { return static_cast<int>(std::bit_cast<uint32_t>(x) >> 23 & 0xff); }
inline int exponent_of(double x) { return static_cast<int>(std::bit_cast<uint64_t>(x) >> 52 & 0x7ff); }

// S0, the denominator or the numerator, scaled by 2^Power where v_div_fmas would lose precision:
// exponents that are Far apart, a numerator with an exponent up to Small, results below the normal
// numbers. `flag`: v_div_fmas scales its result.
template <int Far, int Small, int Power, typename T>
T div_scale(T s0, T denominator, T numerator, bool tiny_inverse, bool tiny_quotient, bool& flag)
{
    const int top = exponent_of(numerator), bottom = exponent_of(denominator);
    const auto is     = [&](const T& x) { return std::memcmp(&s0, &x, sizeof x) == 0; };
    const auto scaled = [&](bool up) { return up ? std::ldexp(s0, Power) : s0; };
    if(numerator == 0 || denominator == 0)
        return static_cast<T>(NAN);
    const bool far = top - bottom >= Far;
    flag           = far || (bottom != 0 && tiny_quotient);
    if(far || (flag && tiny_inverse))
        return scaled(is(denominator));
    if(bottom == 0)
        return scaled(true);
    if(tiny_inverse)
        return std::ldexp(s0, -Power);
    return scaled(tiny_quotient ? is(numerator) : top <= Small);
}
} // namespace emu

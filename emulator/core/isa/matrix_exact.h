// Sums of products as gfx942's matrix unit makes them, after MMA-Sim (arXiv 2511.10909).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace emu {
// Significands are integers, scaled by a power of two.

// significand * 2^(exponent - MANTISSA) of the format; subnormal ones have the exponent of the
// least normal number.
struct Operand
{
    int64_t significand;
    int exponent;
};

inline constexpr int ZERO_EXPONENT = -126; // of a zero, in every format

template <int Mantissa, int Least>
Operand split(float value)
{
    if(value == 0.0f || !std::isfinite(value))
        return {0, ZERO_EXPONENT};
    const int exponent = std::max(std::ilogb(value), Least);
    return {static_cast<int64_t>(std::ldexp(static_cast<double>(value), Mantissa - exponent)), exponent};
}

// value * 2^-by: towards zero, and towards minus infinity.
inline int64_t cut(int64_t value, int by)
{
    const int64_t size = value < 0 ? -value : value;
    const int64_t kept = by <= 0 ? size << -by : by < 63 ? size >> by : 0;
    return value < 0 ? -kept : kept;
}
inline int64_t lower(int64_t value, int by) { return value >> std::min(by, 63); }

inline constexpr int SUM_BITS   = 24,
                     TOTAL_BITS = 31; // below the binary point of the greatest exponent

struct Sum
{
    int64_t units; // 2^(exponent - SUM_BITS)
    int exponent;
};

// Products first, first + Step, ..: all cut at the same place below the greatest of them.
template <unsigned Count, unsigned Step, int Mantissas>
Sum add_products(const Operand* products)
{
    int greatest = products[0].exponent;
    for(unsigned i = Step; i < Count; i += Step)
        greatest = std::max(greatest, products[i].exponent);
    int64_t units = 0;
    for(unsigned i = 0; i < Count; i += Step)
        units += cut(products[i].significand, Mantissas - SUM_BITS + greatest - products[i].exponent);
    return {units, greatest};
}

// One group of products and the addend. Sum and addend are lowered to the place of the greater,
// added, and rounded once, to nearest even.
template <unsigned Count, int Mantissas>
float add_group(const Operand* products, float addend)
{
    constexpr bool SMALL = Count == 16; // formats of 8 bits: even and odd products by themselves
    Sum sum              = add_products<Count, SMALL ? 2 : 1, Mantissas>(products);
    if constexpr(SMALL)
    {
        const Sum odd      = add_products<Count - 1, 2, Mantissas>(products + 1);
        const int greatest = std::max(sum.exponent, odd.exponent);
        sum = {lower(sum.units, greatest - sum.exponent) + lower(odd.units, greatest - odd.exponent), greatest};
    }
    const Operand last   = split<23, -126>(addend);
    const int greatest   = std::max(sum.exponent, last.exponent);
    constexpr int BEHIND = TOTAL_BITS - SUM_BITS;
    int64_t total        = lower(sum.units << BEHIND, greatest - sum.exponent);
    if(!SMALL || last.exponent >= greatest - SUM_BITS - 1)
        total += lower(last.significand << (SUM_BITS - 23), greatest - last.exponent) << BEHIND;
    return static_cast<float>(std::ldexp(static_cast<double>(total), greatest - TOTAL_BITS));
}

// What infinities and NaNs make of a sum; products of bf16 beyond f32 count as infinities. Zero if
// all is finite.
inline float special_sum(const float* a, const float* b, unsigned count, float addend)
{
    constexpr double BEYOND = 0x1p128;
    double sum              = std::isfinite(addend) ? 0.0 : static_cast<double>(addend);
    bool infinite           = sum != 0.0;
    for(unsigned i = 0; i < count; ++i)
    {
        const double product = static_cast<double>(a[i]) * static_cast<double>(b[i]);
        if(std::isfinite(product))
            continue;
        sum += product;
        infinite = true;
    }
    for(unsigned i = 0; i < count && !infinite; ++i)
    {
        const double product = static_cast<double>(a[i]) * static_cast<double>(b[i]);
        if(std::fabs(product) >= BEYOND)
            sum += std::copysign(static_cast<double>(INFINITY), product);
    }
    return static_cast<float>(sum);
}

// addend + a[0] * b[0] + a[step] * b[step] + ..., K products.
template <unsigned K, typename FormatA, typename FormatB>
float exact_sum(const float* a, const float* b, unsigned step, float addend)
{
    constexpr unsigned GROUP = std::min(K, FormatA::GROUP);
    for(unsigned k = 0; k < K; k += GROUP)
    {
        float left[GROUP], right[GROUP];
        Operand products[GROUP];
        for(unsigned i = 0; i < GROUP; ++i)
        {
            left[i]         = a[(k + i) * step];
            right[i]        = b[(k + i) * step];
            const Operand x = split<FormatA::MANTISSA, FormatA::LEAST>(left[i]);
            const Operand y = split<FormatB::MANTISSA, FormatB::LEAST>(right[i]);
            products[i]     = {x.significand * y.significand, x.exponent + y.exponent};
        }
        const float special = special_sum(left, right, GROUP, addend);
        addend = special != 0.0f ? special : add_group<GROUP, FormatA::MANTISSA + FormatB::MANTISSA>(products, addend);
    }
    return addend;
}
} // namespace emu

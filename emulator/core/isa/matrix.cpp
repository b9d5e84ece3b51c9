#include "isa/matrix.h"

#include <algorithm>

namespace emu {

LaneMap own_lanes()
{
    LaneMap map;
    for(unsigned l = 0; l < LANES; ++l)
        map.from[l] = static_cast<uint8_t>(l);
    return map;
}

LaneMap broadcast_lanes(uint32_t control)
{
    const unsigned size  = LANES >> matrix_control::CBSZ.of(control);
    const unsigned first = size * matrix_control::ABID.of(control);
    LaneMap map;
    for(unsigned l = 0; l < LANES; ++l)
        map.from[l] = static_cast<uint8_t>((l % size + first) % LANES);
    return map;
}

LaneMap permuted_lanes(uint32_t control)
{
    const unsigned pattern = matrix_control::BLGP.of(control);
    LaneMap map            = own_lanes();
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(pattern == 3)
            map.from[l] = static_cast<uint8_t>((l + 16) % LANES);
        else if(pattern == 1 || pattern == 2)
            map.from[l] = static_cast<uint8_t>(l % 32 + 32 * (pattern - 1));
        else if(pattern >= 4)
            map.from[l] = static_cast<uint8_t>(l % 16 + 16 * (pattern - 4));
    }
    return map;
}

namespace {

constexpr uint32_t NEAREST_EVEN = 0x1f80;

} // namespace

MatrixRounding::MatrixRounding(const Wave& w) : before_(w.mxcsr)
{
    if(before_ != NEAREST_EVEN)
        load_host_mode(NEAREST_EVEN);
}

MatrixRounding::~MatrixRounding()
{
    if(before_ != NEAREST_EVEN)
        load_host_mode(before_);
}

void add_products(const Wave& w, const MatrixShape& s, const float* a, const float* b, float* sums)
{
    double exact[32] = {};
    const bool clamp = mode::FP16_OVFL.of(w.mode);
    for(unsigned j = 0; clamp && j < s.n; ++j)
    {
        exact[j] = static_cast<double>(sums[j]);
        for(unsigned k = 0; k < s.k; ++k)
            exact[j] += static_cast<double>(a[k * s.n]) * static_cast<double>(b[k * s.n + j]);
    }
    for(unsigned k = 0; k < s.k; ++k)
        for(unsigned j = 0; j < s.n; ++j)
            sums[j] = std::fma(a[k * s.n], b[k * s.n + j], sums[j]);
    for(unsigned j = 0; clamp && j < s.n; ++j)
        sums[j] = in_range(sums[j], exact[j]);
}

void add_products(
    const Wave& w, const MatrixShape& s, const int32_t* a, const int32_t* b, uint32_t* sums)
{
    if(!mode::FP16_OVFL.of(w.mode)) [[likely]]
    {
        for(unsigned k = 0; k < s.k; ++k)
            for(unsigned j = 0; j < s.n; ++j)
                sums[j] += static_cast<uint32_t>(a[k * s.n] * b[k * s.n + j]);
        return;
    }
    for(unsigned j = 0; j < s.n; ++j)
    {
        int64_t sum = static_cast<int32_t>(sums[j]);
        for(unsigned k = 0; k < s.k; ++k)
            sum += a[k * s.n] * b[k * s.n + j];
        sums[j] = static_cast<uint32_t>(
            std::clamp<int64_t>(sum,
                                std::numeric_limits<int32_t>::min(),
                                std::numeric_limits<int32_t>::max()));
    }
}

} // namespace emu

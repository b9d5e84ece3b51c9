// Vectors of f32 as wide as the instruction set has them, with a fused multiply-add that rounds
// once.
#pragma once

#include "isa/operands.h"

#include <cmath>

namespace emu {
#if defined(__AVX512F__)
using Vector             = __m512;
constexpr unsigned WIDTH = 16;
inline Vector load(const float* from) { return _mm512_load_ps(from); }
inline void store(float* to, Vector value) { _mm512_store_ps(to, value); }
inline Vector all(float value) { return _mm512_set1_ps(value); }
inline Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
#elif defined(__AVX2__) && defined(__FMA__)
using Vector             = __m256;
constexpr unsigned WIDTH = 8;
inline Vector load(const float* from) { return _mm256_load_ps(from); }
inline void store(float* to, Vector value) { _mm256_store_ps(to, value); }
inline Vector all(float value) { return _mm256_set1_ps(value); }
inline Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
#else
struct Vector
{
    float d[4];
};
constexpr unsigned WIDTH = 4;
inline Vector load(const float* from) { return {{from[0], from[1], from[2], from[3]}}; }
inline void store(float* to, const Vector& value)
{
    for(unsigned i = 0; i < WIDTH; ++i)
        to[i] = value.d[i];
}
inline Vector all(float value) { return {{value, value, value, value}}; }
inline Vector fma(const Vector& a, const Vector& b, const Vector& c)
{
    Vector result;
    for(unsigned i = 0; i < WIDTH; ++i)
        result.d[i] = std::fma(a.d[i], b.d[i], c.d[i]);
    return result;
}
#endif

// D = a * b + c on 64 lanes. `to` may be any of the sources.
inline void fma_row(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* to)
{
    const auto* x = reinterpret_cast<const float*>(a);
    const auto* y = reinterpret_cast<const float*>(b);
    const auto* z = reinterpret_cast<const float*>(c);
    for(unsigned l = 0; l < LANES; l += WIDTH)
        store(reinterpret_cast<float*>(to) + l, fma(load(x + l), load(y + l), load(z + l)));
}
} // namespace emu

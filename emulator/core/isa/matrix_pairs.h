// MFMA of bf16 by the host's own instruction for it, vdpbf16ps: two products a lane, which it adds
// one after the other, each sum rounded once to nearest even. That is what mfma_plain does (see
// ops/matrix.cpp), in half as many instructions, with two exceptions:
//
// - It adds the product of the high halves first: the halves are exchanged here beforehand.
// - It takes subnormals for zeros and makes no subnormals. So the factors must be zero or of
//   exponents from LEAST_FACTOR on, that is, products are multiples of 2^-126, and C of exponents
//   from LEAST_ADDEND on, for the same: then every sum is a multiple of that, too, and no
//   subnormal. Upper bounds keep infinities away, and NaNs, whose bits it might choose otherwise.
#pragma once

#include "isa/operands.h"

namespace emu {
#if defined(__AVX512F__) && !defined(EMU_PLAIN)
#define EMU_PAIRS 1
// Not part of the instruction set that this is compiled for: HOST_ADDS_PAIRS is true if the
// processor has it.
#define EMU_PAIRS_TARGET __attribute__((target("avx512bf16")))
#endif

// Whether this host has the instruction and it does what is said above.
extern const bool HOST_ADDS_PAIRS;

#ifdef EMU_PAIRS

// Biased exponents. Factors have seven bits after the point: 71 + 71 - 2 * (127 + 7) = -126.
// And 32 products below 2^112 added to a sum below 2^121 stay finite.
constexpr uint32_t LEAST_FACTOR = 71, MOST_FACTOR = 182, LEAST_ADDEND = 24, MOST_ADDEND = 247;

// Whether numbers are in their bounds, of many vectors at once.
class PairBounds
{
public:
    EMU_INLINE void add_factors(__m512i both)
    {
        const __m512i twice = _mm512_add_epi16(both, both); // without its sign
        least_              = _mm512_min_epu16(least_, _mm512_sub_epi16(twice, _mm512_set1_epi16(1)));
        most_               = _mm512_max_epu16(most_, twice);
    }
    // Zeros are out of bounds here: sums are rarely that.
    EMU_INLINE void add_addends(__m512i bits)
    {
        const __m512i least = _mm512_set1_epi32(LEAST_ADDEND << 24);
        above_              = _mm512_max_epu32(above_, _mm512_sub_epi32(_mm512_add_epi32(bits, bits), least));
    }
    EMU_INLINE bool kept() const
    {
        const __m512i least = _mm512_set1_epi16(static_cast<int16_t>((LEAST_FACTOR << 8) - 1)),
                      most  = _mm512_set1_epi16(static_cast<int16_t>((MOST_FACTOR + 1) << 8)),
                      range = _mm512_set1_epi32((MOST_ADDEND + 1 - LEAST_ADDEND) << 24);
        return _mm512_cmplt_epu16_mask(least_, least) == 0 && _mm512_cmpge_epu16_mask(most_, most) == 0 &&
               _mm512_cmpge_epu32_mask(above_, range) == 0;
    }

private:
    __m512i least_ = _mm512_set1_epi32(-1), most_ = _mm512_setzero_si512(), above_ = _mm512_setzero_si512();
};

// Sum of a lane and two products: of the row's halves, the same for all lanes, and the column's.
EMU_INLINE EMU_PAIRS_TARGET __m512 add_pair(__m512 sum, const uint32_t& row, __m512i column)
{
    // GCC 12 would load the row's halves by an instruction of its own.
    asm("vdpbf16ps %1%{1to16%}, %2, %0" : "+v"(sum) : "m"(row), "v"(column));
    return sum;
}

// D = A * B + C with N rows and columns and E values of A and of B a lane. False, with nothing
// done: numbers are out of bounds.
template <unsigned N, unsigned E>
EMU_PAIRS_TARGET bool multiply_pairs(Wave& w, const MicroOp* op)
{
    constexpr unsigned BLOCKS = LANES / N, DWORDS = E / 2, PAIRS = BLOCKS * DWORDS;
    constexpr unsigned VECTORS = N / 16, ROWS = 16 / VECTORS, REGISTERS = N * N / LANES;
    const uint16_t addend = op->src[2].code;
    alignas(64) uint32_t a[PAIRS][N], b[PAIRS][N];
    PairBounds bounds;
    for(unsigned d = 0; d < DWORDS; ++d)
        for(unsigned l = 0; l < LANES; l += 16)
        {
            const unsigned pair = l / N * DWORDS + d;
            const __m512i left  = _mm512_load_si512(w.v[op->src[0].code + d] + l),
                          right = _mm512_load_si512(w.v[op->src[1].code + d] + l);
            bounds.add_factors(left);
            bounds.add_factors(right);
            _mm512_store_si512(a[pair] + l % N, _mm512_rol_epi32(left, 16));
            _mm512_store_si512(b[pair] + l % N, _mm512_rol_epi32(right, 16));
        }
    const uint32_t constant = addend < SCALAR ? 0 : scalar_value(w, op, addend);
    if(constant != 0)
        bounds.add_addends(_mm512_set1_epi32(static_cast<int>(constant)));
    for(unsigned r = 0; addend < SCALAR && r < REGISTERS; ++r)
        for(unsigned l = 0; l < LANES; l += 16)
            bounds.add_addends(_mm512_load_si512(w.v[addend + r] + l));
    if(!bounds.kept()) [[unlikely]]
        return false;
    for(unsigned first = 0; first < N; first += ROWS)
    {
        unsigned place[ROWS]; // of the rows, in dwords from the first register
        __m512 sum[ROWS][VECTORS];
        for(unsigned i = 0; i < ROWS; ++i)
        {
            const unsigned row = first + i, r = N == 32 ? row / 8 * 4 + row % 4 : row % 4;
            place[i] = r * LANES + row / 4 % BLOCKS * N;
            for(unsigned v = 0; v < VECTORS; ++v)
                sum[i][v] = addend < SCALAR ? _mm512_load_ps(&w.v[addend][0] + place[i] + 16 * v)
                                            : _mm512_set1_ps(as_float(constant));
        }
        for(unsigned pair = 0; pair < PAIRS; ++pair)
            for(unsigned v = 0; v < VECTORS; ++v)
            {
                const __m512i column = _mm512_load_si512(b[pair] + 16 * v);
                for(unsigned i = 0; i < ROWS; ++i)
                    sum[i][v] = add_pair(sum[i][v], a[pair][first + i], column);
            }
        for(unsigned i = 0; i < ROWS; ++i)
            for(unsigned v = 0; v < VECTORS; ++v)
                _mm512_store_ps(&w.v[op->dst][0] + place[i] + 16 * v, sum[i][v]);
    }
    return true;
}

#endif
} // namespace emu

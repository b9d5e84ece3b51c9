// What matrix instructions have in common beside the fast kernels of ops/matrix.cpp: layouts of
// the factors and of the result for any shape, the broadcast patterns, and sums row by row.
//
// CDNA3 and CDNA4 ISA documents, section 7 ("Matrix arithmetic"): with B blocks of n rows (columns)
// lane l holds row l % n of block l / n % B, and of k those of its group l / (n * B).
#pragma once

#include "isa/matrix_exact.h"
#include "isa/matrix_formats.h"
#include "isa/registry.h"

#include <cmath>
#include <limits>

namespace emu {
// n is of rows and columns alike; `items` values of A or B a lane; `run` of these in a row are
// neighbours in k: 16 bytes where a lane holds 32 bytes, else all.
struct MatrixShape
{
    unsigned n, k, blocks, items, run;

    constexpr unsigned groups() const { return LANES / (n * blocks); }
    constexpr unsigned k_of(unsigned group, unsigned e) const { return run * (group + e / run * groups()) + e % run; }
};

constexpr MatrixShape shape_of(unsigned n, unsigned k, unsigned blocks, unsigned run = 0)
{
    const unsigned items = n * k * blocks / LANES;
    return {n, k, blocks, items, run == 0 ? items : run};
}

// A factor, [block][k][row or column].
inline constexpr unsigned MOST_ITEMS = 32;
template <typename Value>
struct alignas(64) Factor
{
    Value d[LANES * MOST_ITEMS];
};

// The lane whose values each lane multiplies.
struct LaneMap
{
    uint8_t from[LANES];
};
LaneMap own_lanes();
// Of A, with blocks of n lanes: of 2^CBSZ neighbours all have block number ABID of theirs (AMD's
// matrix_instruction_calculator). The ISA documents have other blocks, unless all have the same one.
LaneMap broadcast_lanes(uint32_t control, unsigned n);
LaneMap permuted_lanes(uint32_t control); // of B: BLGP

// MicroOp::control of the instructions that have these fields
// (emulator/ckpm_emulator/lowering/lower.py).
namespace matrix_control {
inline constexpr Field CBSZ{0, 3}, ABID{3, 4}, BLGP{7, 3};
} // namespace matrix_control

template <MatrixShape S, typename Format>
void gather(const Wave& w, uint16_t code, const LaneMap& lanes, typename Format::Value* to)
{
    alignas(64) typename Format::Value values[LANES];
    for(unsigned e = 0; e < S.items; ++e)
    {
        lane_values<Format>(w, code, e, values);
        for(unsigned l = 0; l < LANES; ++l)
        {
            const unsigned block = l / S.n % S.blocks, k = S.k_of(l / (S.n * S.blocks), e);
            to[(block * S.k + k) * S.n + l % S.n] = values[lanes.from[l]];
        }
    }
}

// Where a row of a block of D lies: a register and n lanes of it, from `lane` on.
struct RowPlace
{
    unsigned item, lane;
};

// Four rows at a time lie in four registers. A register holds `row_groups` of these of each of
// `in_register` blocks.
constexpr RowPlace place_of(const MatrixShape& s, unsigned block, unsigned row)
{
    const unsigned in_register = s.n == 4 ? 16 : 1, row_groups = LANES / in_register / s.n;
    const unsigned below = block / in_register * (s.n / (4 * row_groups)) + row / (4 * row_groups);
    return {row % 4 + 4 * below, s.n * (row / 4 % row_groups + row_groups * (block % in_register))};
}

inline constexpr unsigned MOST_RESULTS = 32; // registers

// `add(block, row, sums)` adds the products to a row of C, n dwords. D is written at the end, since
// its registers may be those of a factor.
template <MatrixShape S, typename Add>
void each_row(Wave& w, const MicroOp* op, uint16_t addend, Add&& add)
{
    alignas(64) uint32_t result[MOST_RESULTS][LANES];
    for(unsigned block = 0; block < S.blocks; ++block)
        for(unsigned row = 0; row < S.n; ++row)
        {
            const RowPlace place = place_of(S, block, row);
            uint32_t* const sums = result[place.item] + place.lane;
            for(unsigned j = 0; j < S.n; ++j)
                sums[j] = addend < SCALAR ? w.v[addend + place.item][place.lane + j] : scalar_value(w, op, addend);
            add(block, row, sums);
        }
    std::memcpy(w.v[op->dst], result, S.n * S.n * S.blocks * sizeof(uint32_t));
}

// MODE.FP16_OVFL: what is too large becomes the largest number. `exact`: the sum in double.
inline float in_range(float sum, double exact)
{
    constexpr double MOST = static_cast<double>(std::numeric_limits<float>::max());
    const bool beyond     = !std::isfinite(sum) && std::isfinite(exact);
    return beyond ? static_cast<float>(std::clamp(exact, -MOST, MOST)) : sum;
}

// One product after the other, each sum rounded: `depth` of them for each of N columns. `a` and `b`
// as in Factor.
template <unsigned N>
void add_products(const Wave& w, unsigned depth, const float* a, const float* b, float* sums)
{
    alignas(64) float sum[N];
    std::memcpy(sum, sums, sizeof sum);
    for(unsigned k = 0; k < depth; ++k)
        for(unsigned j = 0; j < N; ++j)
            sum[j] = std::fma(a[k * N], b[k * N + j], sum[j]);
    for(unsigned j = 0; mode::FP16_OVFL.of(w.mode) && j < N; ++j)
    {
        auto exact = static_cast<double>(sums[j]);
        for(unsigned k = 0; k < depth; ++k)
            exact += static_cast<double>(a[k * N]) * static_cast<double>(b[k * N + j]);
        sum[j] = in_range(sum[j], exact);
    }
    std::memcpy(sums, sum, sizeof sum);
}

// Of i8: the sum wraps, but MODE.FP16_OVFL keeps it in its range.
template <unsigned N>
void add_products(const Wave& w, unsigned depth, const int32_t* a, const int32_t* b, uint32_t* sums)
{
    alignas(64) int32_t sum[N] = {}; // at most 2^21
    for(unsigned k = 0; k < depth; ++k)
        for(unsigned j = 0; j < N; ++j)
            sum[j] += a[k * N] * b[k * N + j];
    for(unsigned j = 0; j < N; ++j)
    {
        constexpr int64_t LEAST = std::numeric_limits<int32_t>::min(), MOST = std::numeric_limits<int32_t>::max();
        const int64_t exact = int64_t{static_cast<int32_t>(sums[j])} + sum[j];
        sums[j] = static_cast<uint32_t>(mode::FP16_OVFL.of(w.mode) ? std::clamp(exact, LEAST, MOST) : exact);
    }
}

// D = A * B + C of any shape, with the broadcast patterns: slower than ops/matrix.cpp's kernels.
template <unsigned N, unsigned K, unsigned Blocks, typename FormatA, typename FormatB>
const MicroOp* multiply(Wave& w, const MicroOp* op)
{
    using Value             = typename FormatA::Value;
    constexpr MatrixShape S = shape_of(N, K, Blocks);
    if constexpr(Blocks > 2)
    {
        const unsigned size = matrix_control::CBSZ.of(op->control);
        if(w.group->open_rules && size != 0 && 1u << size < Blocks)
            raise_unknown(w, op, "sources disagree on which blocks of A a broadcast (cbsz) to some of them reads");
    }
    const HostMode mode(w.mxcsr, matrix_mode<FormatA>(w));
    Factor<Value> a, b;
    gather<S, FormatA>(w, op->src[0].code, broadcast_lanes(op->control, N), a.d);
    gather<S, FormatB>(w, op->src[1].code, permuted_lanes(op->control), b.d);
    each_row<S>(w, op, op->src[2].code, [&](unsigned block, unsigned row, uint32_t* sums) {
        const Value *left = a.d + block * K * N + row, *right = b.d + block * K * N;
        if constexpr(std::is_same_v<Value, float>)
        {
            float* const floats = reinterpret_cast<float*>(sums);
            if constexpr(FormatA::GROUP != 0)
                if(w.group->exact_mfma)
                {
                    for(unsigned j = 0; j < N; ++j)
                        floats[j] = exact_sum<K, FormatA, FormatB>(left, right + j, N, floats[j]);
                    return;
                }
            add_products<N>(w, K, left, right, floats);
        }
        else
        {
            add_products<N>(w, K, left, right, sums);
        }
    });
    return advance(op);
}

// v_mfma_f32_*_f8f6f4 with any formats (ops/matrix_small.cpp).
template <unsigned N>
const MicroOp* mfma_small(Wave& w, const MicroOp* op);
} // namespace emu

// MFMA: D = A * B + C on small matrices spread over the wave (CDNA3 and CDNA4 ISA documents,
// section "Matrix arithmetic"): instructions with one block, whose plain forms are what attention
// and GEMM kernels run. Other files have those with several blocks, scaled and sparse ones.
//
// EXEC is ignored. With N rows (columns) a block of lanes, lane l holds row (column) l % N of A (B)
// and the E values of k from E * (l / N). Register r of a 32x32 result holds row 8 * (r / 4) + 4 *
// (l / 32) + r % 4, of a 16x16 result row 4 * (l / 16) + r, column l % N each.
//
// Numerics: operands are widened to f32 exactly, products are exact there for 16-bit and 8-bit
// formats, sums are f32 in the order of k, rounded to nearest even. Subnormals are kept, but for
// f32 factors as MODE has it, and with f16 and bf16 on gfx90a (matrix_mode). The hardware adds several products before
// rounding, in an order that AMD does not document: results differ from it by at most one rounding a step. Option
// exact_mfma: sums as in MMA-Sim (arXiv 2511.10909), a model of CDNA3 that its authors found equal bit for bit. Its
// sums of f32 operands are those computed here without the option. It does not cover CDNA4.
#include "isa/matrix.h"

#include "isa/matrix_pairs.h"
#include "isa/vectors.h"

#include <algorithm>

namespace emu {
namespace {
// Matrix operand as f32, [k][row or column].
template <unsigned N, unsigned E, typename Format>
void widen_operand(const Wave& w, const MicroOp* op, unsigned i, float (*to)[N])
{
    const uint16_t code = op->src[i].code;
    for(unsigned e = 0; e < E; ++e)
    {
        const uint32_t* row = w.v[code + e / Format::PER_DWORD];
        for(unsigned block = 0; block < LANES / N; ++block)
            Format::widen(w, row + block * N, e % Format::PER_DWORD, to[E * block + e], N);
    }
    flush_factors<Format>(w, to[0], E * LANES);
}

template <unsigned N, unsigned E, typename FormatA, typename FormatB>
const MicroOp* mfma_plain(Wave& w, const MicroOp* op)
{
    constexpr unsigned K = E * LANES / N, BLOCKS = LANES / N, REGISTERS = N * N / LANES;
    constexpr unsigned VECTORS = N / WIDTH;
    // Eight sums at a time, or sixteen where there are 32 vector registers.
    constexpr unsigned ROWS = (FAST && WIDTH == 16 ? 16 : 8) / std::min(VECTORS, 4u);
    const HostMode mode(w.mxcsr, matrix_mode<FormatA>(w));
    alignas(64) float a[K][N], b[K][N];
    widen_operand<N, E, FormatA>(w, op, 0, a);
    widen_operand<N, E, FormatB>(w, op, 1, b);
    const uint16_t addend = op->src[2].code;
    alignas(64) float constant[N];
    if(addend >= SCALAR)
        for(unsigned i = 0; i < N; ++i)
            constant[i] = as_float(scalar_value(w, op, addend));
    for(unsigned first = 0; first < N; first += ROWS)
    {
        float* home[ROWS];
        Vector sum[ROWS][VECTORS];
        for(unsigned i = 0; i < ROWS; ++i)
        {
            const unsigned row = first + i, block = row / 4 % BLOCKS;
            const unsigned r = N == 32 ? row / 8 * 4 + row % 4 : row % 4;
            home[i]          = reinterpret_cast<float*>(w.v[op->dst + r]) + block * N;
            const float* from =
                addend < SCALAR ? reinterpret_cast<const float*>(w.v[addend + r]) + block * N : constant;
            for(unsigned v = 0; v < VECTORS; ++v)
                sum[i][v] = load(from + v * WIDTH);
        }
        for(unsigned k = 0; k < K; ++k)
        {
            for(unsigned v = 0; v < VECTORS; ++v)
            {
                const Vector column = load(b[k] + v * WIDTH);
                for(unsigned i = 0; i < ROWS; ++i)
                    sum[i][v] = fma(all(a[k][first + i]), column, sum[i][v]);
            }
        }
        for(unsigned i = 0; i < ROWS; ++i)
            for(unsigned v = 0; v < VECTORS; ++v)
                store(home[i] + v * WIDTH, sum[i][v]);
    }
    static_assert(REGISTERS * LANES == N * N);
    return advance(op);
}

// Broadcast patterns, MODE.FP16_OVFL and the option exact_mfma are for the general way.
bool is_plain(const Wave& w, const MicroOp* op)
{
    return op->control == 0 && !w.group->exact_mfma && !mode::FP16_OVFL.of(w.mode);
}

template <unsigned N, unsigned E, typename FormatA, typename FormatB>
const MicroOp* mfma(Wave& w, const MicroOp* op)
{
#ifdef EMU_PAIRS
    if constexpr(std::is_same_v<FormatA, Bf16>)
        if(HOST_ADDS_PAIRS && is_plain(w, op) && multiply_pairs<N, E>(w, op)) [[likely]]
            return advance(op);
#endif
    if(is_plain(w, op)) [[likely]]
        return mfma_plain<N, E, FormatA, FormatB>(w, op);
    return multiply<N, E * LANES / N, 1, FormatA, FormatB>(w, op);
}

// Formats of 8 bits. Which k a value has is the same in A and B, so that it doesn't matter here.
template <unsigned N>
const MicroOp* mfma_f8f6f4(Wave& w, const MicroOp* op)
{
    if(mode::FP16_OVFL.of(w.mode)) [[unlikely]]
        return mfma_small<N>(w, op);
    switch(op->control)
    {
        case 0: return mfma_plain<N, 32, Fp8, Fp8>(w, op);
        case 1: return mfma_plain<N, 32, Bf8, Fp8>(w, op);
        case 8: return mfma_plain<N, 32, Fp8, Bf8>(w, op);
        case 9: return mfma_plain<N, 32, Bf8, Bf8>(w, op);
        default: return mfma_small<N>(w, op);
    }
}

constexpr Entry ENTRIES[] = {
    {"v_mfma_f32_32x32x2_f32", mfma<32, 1, F32, F32>},       {"v_mfma_f32_16x16x4_f32", mfma<16, 1, F32, F32>},
    {"v_mfma_f32_32x32x4_xf32", mfma<32, 2, Xf32, Xf32>},    {"v_mfma_f32_16x16x8_xf32", mfma<16, 2, Xf32, Xf32>},
    {"v_mfma_f32_32x32x8_f16", mfma<32, 4, F16, F16>},       {"v_mfma_f32_16x16x16_f16", mfma<16, 4, F16, F16>},
    {"v_mfma_f32_32x32x8_bf16", mfma<32, 4, Bf16, Bf16>},    {"v_mfma_f32_16x16x16_bf16", mfma<16, 4, Bf16, Bf16>},
    {"v_mfma_f32_32x32x16_f16", mfma<32, 8, F16, F16>},      {"v_mfma_f32_16x16x32_f16", mfma<16, 8, F16, F16>},
    {"v_mfma_f32_32x32x16_bf16", mfma<32, 8, Bf16, Bf16>},   {"v_mfma_f32_16x16x32_bf16", mfma<16, 8, Bf16, Bf16>},
    {"v_mfma_f32_32x32x16_fp8_fp8", mfma<32, 8, Fp8, Fp8>},  {"v_mfma_f32_32x32x16_fp8_bf8", mfma<32, 8, Fp8, Bf8>},
    {"v_mfma_f32_32x32x16_bf8_fp8", mfma<32, 8, Bf8, Fp8>},  {"v_mfma_f32_32x32x16_bf8_bf8", mfma<32, 8, Bf8, Bf8>},
    {"v_mfma_f32_16x16x32_fp8_fp8", mfma<16, 8, Fp8, Fp8>},  {"v_mfma_f32_16x16x32_fp8_bf8", mfma<16, 8, Fp8, Bf8>},
    {"v_mfma_f32_16x16x32_bf8_fp8", mfma<16, 8, Bf8, Fp8>},  {"v_mfma_f32_16x16x32_bf8_bf8", mfma<16, 8, Bf8, Bf8>},
    {"v_mfma_f32_32x32x64_f8f6f4", mfma_f8f6f4<32>},         {"v_mfma_f32_16x16x128_f8f6f4", mfma_f8f6f4<16>},
    {"v_mfma_i32_32x32x16_i8", multiply<32, 16, 1, I8, I8>}, {"v_mfma_i32_16x16x32_i8", multiply<16, 32, 1, I8, I8>},
    {"v_mfma_i32_32x32x32_i8", multiply<32, 32, 1, I8, I8>}, {"v_mfma_i32_16x16x64_i8", multiply<16, 64, 1, I8, I8>},
};
} // namespace

std::span<const Entry> matrix_entries() { return ENTRIES; }
} // namespace emu

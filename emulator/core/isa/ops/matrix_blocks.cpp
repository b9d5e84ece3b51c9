// MFMA with several blocks, each a product of its own, and those of f64 (CDNA3 ISA document,
// section "Matrix arithmetic").
#include "isa/matrix.h"

namespace emu {
namespace {
// An f64 of a lane: of two registers from `code` on, or an inline constant, which the core holds as
// 32 bits.
double f64_at(const Wave& w, const MicroOp* op, uint16_t code, unsigned lane)
{
    constexpr uint16_t FIRST_FLOAT = SCALAR + 240, INVERSE_TWO_PI = SCALAR + 248;
    if(code < SCALAR)
        return std::bit_cast<double>(uint64_t{w.v[code + 1][lane]} << 32 | w.v[code][lane]);
    if(code == INVERSE_TWO_PI)
        return 0.15915494309189532;
    if(code >= FIRST_FLOAT)
        return static_cast<double>(as_float(scalar_value(w, op, code)));
    return std::bit_cast<double>(scalar_pair(w, op, code));
}

// Lane j + N * (b + Blocks * k) holds A[b][j][k] and B[b][k][j]; of D and C register pair r of lane
// j + N * (i % 4 + 4 * b) holds row i = 4 * r + i % 4. Field neg, in place of BLGP, negates A, B or
// C.
template <unsigned N, unsigned Blocks>
const MicroOp* mfma_f64(Wave& w, const MicroOp* op)
{
    constexpr unsigned K = 4, PAIRS = N * N * Blocks / LANES;
    const HostMode mode(w.mxcsr, MXCSR_NEAREST);
    const uint32_t negated = matrix_control::BLGP.of(op->control);
    const double sign_a = negated & 1 ? -1.0 : 1.0, sign_b = negated & 2 ? -1.0 : 1.0,
                 sign_c = negated & 4 ? -1.0 : 1.0;
    double result[PAIRS][LANES];
    for(unsigned r = 0; r < PAIRS; ++r)
        for(unsigned lane = 0; lane < LANES; ++lane)
        {
            const unsigned j = lane % N, block = lane / N / 4, i = 4 * r + lane / N % 4;
            const uint16_t addend = op->src[2].code;
            const auto c          = static_cast<uint16_t>(addend < SCALAR ? addend + 2 * r : addend);
            double sum            = sign_c * f64_at(w, op, c, lane);
            for(unsigned k = 0; k < K; ++k)
            {
                const unsigned first = N * (block + Blocks * k);
                sum                  = std::fma(sign_a * f64_at(w, op, op->src[0].code, first + i),
                                                sign_b * f64_at(w, op, op->src[1].code, first + j), sum);
            }
            result[r][lane] = sum;
        }
    for(unsigned r = 0; r < PAIRS; ++r)
        for(unsigned lane = 0; lane < LANES; ++lane)
        {
            const auto bits                = std::bit_cast<uint64_t>(result[r][lane]);
            w.v[op->dst + 2 * r][lane]     = static_cast<uint32_t>(bits);
            w.v[op->dst + 2 * r + 1][lane] = static_cast<uint32_t>(bits >> 32);
        }
    return advance(op);
}

constexpr Entry ENTRIES[] = {
    {"v_mfma_f32_32x32x1_2b_f32", multiply<32, 1, 2, F32, F32>},
    {"v_mfma_f32_16x16x1_4b_f32", multiply<16, 1, 4, F32, F32>},
    {"v_mfma_f32_4x4x1_16b_f32", multiply<4, 1, 16, F32, F32>},
    {"v_mfma_f32_32x32x4_2b_f16", multiply<32, 4, 2, F16, F16>},
    {"v_mfma_f32_16x16x4_4b_f16", multiply<16, 4, 4, F16, F16>},
    {"v_mfma_f32_4x4x4_16b_f16", multiply<4, 4, 16, F16, F16>},
    {"v_mfma_f32_32x32x4_2b_bf16", multiply<32, 4, 2, Bf16, Bf16>},
    {"v_mfma_f32_16x16x4_4b_bf16", multiply<16, 4, 4, Bf16, Bf16>},
    {"v_mfma_f32_4x4x4_16b_bf16", multiply<4, 4, 16, Bf16, Bf16>},
    {"v_mfma_i32_32x32x4_2b_i8", multiply<32, 4, 2, I8, I8>},
    {"v_mfma_i32_16x16x4_4b_i8", multiply<16, 4, 4, I8, I8>},
    {"v_mfma_i32_4x4x4_16b_i8", multiply<4, 4, 16, I8, I8>},
    {"v_mfma_f64_16x16x4_f64", mfma_f64<16, 1>},
    {"v_mfma_f64_4x4x4_4b_f64", mfma_f64<4, 4>},
};
} // namespace

std::span<const Entry> block_matrix_entries() { return ENTRIES; }
} // namespace emu

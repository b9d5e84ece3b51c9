// CDNA4's MFMA whose factors have any formats of 8, 6 and 4 bits, and those with a scale for every
// 32 values of k (ISA document, sections 7.1.5 and 7.2).
//
// A lane holds 32 values of a row (column): of formats of 8 bits 16 neighbours in k and 16 others,
// else 32 neighbours. Scales are exponents as in an f32; 255 makes the products NaN. Lane row + n *
// block holds the scale of the row's 32 values of k from 32 * block on. With scales the sum is
// double and rounded once at the end; AMD does not document the hardware's order.
#include "isa/matrix.h"

namespace emu {
namespace {
// MicroOp::control: which formats, and which byte of the scales' registers.
constexpr Field FORMAT_A{0, 3}, FORMAT_B{3, 3}, BYTE_A{6, 2}, BYTE_B{8, 2};

// By the number that the fields CBSZ and BLGP have for a format.
template <unsigned N>
void gather_small(const Wave& w, uint16_t code, unsigned format, Factor<float>& to)
{
    constexpr MatrixShape BYTES = shape_of(N, 2048 / N, 1, 16), OTHERS = shape_of(N, 2048 / N, 1);
    const LaneMap lanes = own_lanes();
    switch(format)
    {
        case 0: gather<BYTES, Fp8>(w, code, lanes, to.d); break;
        case 1: gather<BYTES, Bf8>(w, code, lanes, to.d); break;
        case 2: gather<OTHERS, Fp6>(w, code, lanes, to.d); break;
        case 3: gather<OTHERS, Bf6>(w, code, lanes, to.d); break;
        default: gather<OTHERS, Fp4>(w, code, lanes, to.d); break;
    }
}

constexpr unsigned BLOCK = 32;

// 2^(scale - 127) of each lane. Of constants and scalar registers the exponent of an f32 counts.
void scales_of(const Wave& w, const MicroOp* op, uint16_t code, unsigned byte, double* scales)
{
    for(unsigned l = 0; l < LANES; ++l)
    {
        const uint32_t word     = code < SCALAR ? w.v[code][l] >> 8 * byte : scalar_value(w, op, code) >> 23;
        const uint32_t exponent = word & 0xff;
        scales[l] = exponent == SCALE_NAN ? std::numeric_limits<double>::quiet_NaN()
                                          : std::bit_cast<double>(uint64_t{exponent - SCALE_BIAS + 1023} << 52);
    }
}

// `values` times the scale of their 32 of k.
void scale(const Factor<float>& values, const double* scales, unsigned n, Factor<double>& to)
{
    for(unsigned at = 0; at < LANES * MOST_ITEMS; ++at)
        to.d[at] = static_cast<double>(values.d[at]) * scales[at % n + n * (at / n / BLOCK)];
}

template <unsigned N>
const MicroOp* mfma_scaled(Wave& w, const MicroOp* op)
{
    constexpr MatrixShape S = shape_of(N, 2048 / N, 1);
    const HostMode mode(w.mxcsr, MXCSR_NEAREST);
    Factor<float> values;
    Factor<double> a, b;
    double scales[LANES];
    gather_small<N>(w, op->src[0].code, FORMAT_A.of(op->control), values);
    scales_of(w, op, op->extra[0], BYTE_A.of(op->control), scales);
    scale(values, scales, N, a);
    gather_small<N>(w, op->src[1].code, FORMAT_B.of(op->control), values);
    scales_of(w, op, op->extra[1], BYTE_B.of(op->control), scales);
    scale(values, scales, N, b);
    const bool clamp = mode::FP16_OVFL.of(w.mode);
    each_row<S>(w, op, op->src[2].code, [&](unsigned, unsigned row, uint32_t* sums) {
        double exact[N];
        for(unsigned j = 0; j < N; ++j)
            exact[j] = static_cast<double>(as_float(sums[j]));
        for(unsigned k = 0; k < S.k; ++k)
            for(unsigned j = 0; j < N; ++j)
                exact[j] = std::fma(a.d[k * N + row], b.d[k * N + j], exact[j]);
        for(unsigned j = 0; j < N; ++j)
        {
            const auto rounded = static_cast<float>(exact[j]);
            sums[j]            = as_bits(clamp ? in_range(rounded, exact[j]) : rounded);
        }
    });
    return advance(op);
}

constexpr Entry ENTRIES[] = {
    {"v_mfma_scale_f32_32x32x64_f8f6f4", mfma_scaled<32>},
    {"v_mfma_scale_f32_16x16x128_f8f6f4", mfma_scaled<16>},
};
} // namespace

template <unsigned N>
const MicroOp* mfma_small(Wave& w, const MicroOp* op)
{
    constexpr MatrixShape S = shape_of(N, 2048 / N, 1);
    const HostMode mode(w.mxcsr, MXCSR_NEAREST);
    Factor<float> a, b;
    gather_small<N>(w, op->src[0].code, FORMAT_A.of(op->control), a);
    gather_small<N>(w, op->src[1].code, FORMAT_B.of(op->control), b);
    each_row<S>(w, op, op->src[2].code, [&](unsigned, unsigned row, uint32_t* sums) {
        add_products<N>(w, S.k, a.d + row, b.d, reinterpret_cast<float*>(sums));
    });
    return advance(op);
}
template const MicroOp* mfma_small<16>(Wave&, const MicroOp*);
template const MicroOp* mfma_small<32>(Wave&, const MicroOp*);

std::span<const Entry> small_matrix_entries() { return ENTRIES; }
} // namespace emu

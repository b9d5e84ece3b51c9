// V_SMFMAC: D = D + A * B, where of four neighbours in k at most two values of A are not zero
// (CDNA3 and CDNA4 ISA documents, section "Sparse matrices").
//
// A lane holds the stored values of consecutive k; two bits for each, low ones first, in the
// register that is the last source say which of its four it is. MicroOp::control is the bit where
// those of the instruction start (CBSZ, ABID). B is dense: of a lane's 32 bytes 16 are neighbours
// in k and 16 others. Sums as in ops/matrix.cpp, in the order in which the values are stored.
#include "isa/matrix.h"

namespace emu {
namespace {
template <unsigned N, unsigned K, typename FormatA, typename FormatB>
const MicroOp* smfmac(Wave& w, const MicroOp* op)
{
    using Value             = typename FormatA::Value;
    constexpr unsigned RUN  = std::min(4 * FormatB::PER_DWORD, N * K / LANES);
    constexpr MatrixShape A = shape_of(N, K / 2, 1), B = shape_of(N, K, 1, RUN);
    if(w.group->exact_mfma)
        raise_unknown(w, op, "exact_mfma has no model of the sums of sparse matrix instructions");
    const HostMode mode(w.mxcsr, MXCSR_NEAREST);
    Factor<Value> a, b;
    gather<A, FormatA>(w, op->src[0].code, own_lanes(), a.d);
    gather<B, FormatB>(w, op->src[1].code, own_lanes(), b.d);
    Row indices;
    for(unsigned l = 0; l < LANES; ++l)
        indices.d[l] = w.v[op->src[2].code][l] >> op->control;
    each_row<A>(w, op, op->dst, [&](unsigned, unsigned row, uint32_t* sums) {
        alignas(64) Value left[K / 2 * N], right[K / 2 * N];
        for(unsigned stored = 0; stored < A.k; ++stored)
        {
            const unsigned e = stored % A.items, lane = row + N * (stored / A.items);
            const unsigned k = stored / 2 * 4 + (indices.d[lane] >> 2 * e & 3);
            left[stored * N] = a.d[stored * N + row];
            for(unsigned j = 0; j < N; ++j)
                right[stored * N + j] = b.d[k * N + j];
        }
        if constexpr(std::is_same_v<Value, float>)
            add_products<N>(w, A.k, left, right, reinterpret_cast<float*>(sums));
        else
            add_products<N>(w, A.k, left, right, sums);
    });
    return advance(op);
}

constexpr Entry ENTRIES[] = {
    {"v_smfmac_f32_16x16x32_f16", smfmac<16, 32, F16, F16>},
    {"v_smfmac_f32_32x32x16_f16", smfmac<32, 16, F16, F16>},
    {"v_smfmac_f32_16x16x64_f16", smfmac<16, 64, F16, F16>},
    {"v_smfmac_f32_32x32x32_f16", smfmac<32, 32, F16, F16>},
    {"v_smfmac_f32_16x16x32_bf16", smfmac<16, 32, Bf16, Bf16>},
    {"v_smfmac_f32_32x32x16_bf16", smfmac<32, 16, Bf16, Bf16>},
    {"v_smfmac_f32_16x16x64_bf16", smfmac<16, 64, Bf16, Bf16>},
    {"v_smfmac_f32_32x32x32_bf16", smfmac<32, 32, Bf16, Bf16>},
    {"v_smfmac_i32_16x16x64_i8", smfmac<16, 64, I8, I8>},
    {"v_smfmac_i32_32x32x32_i8", smfmac<32, 32, I8, I8>},
    {"v_smfmac_i32_16x16x128_i8", smfmac<16, 128, I8, I8>},
    {"v_smfmac_i32_32x32x64_i8", smfmac<32, 64, I8, I8>},
    {"v_smfmac_f32_16x16x64_fp8_fp8", smfmac<16, 64, Fp8, Fp8>},
    {"v_smfmac_f32_16x16x64_fp8_bf8", smfmac<16, 64, Fp8, Bf8>},
    {"v_smfmac_f32_16x16x64_bf8_fp8", smfmac<16, 64, Bf8, Fp8>},
    {"v_smfmac_f32_16x16x64_bf8_bf8", smfmac<16, 64, Bf8, Bf8>},
    {"v_smfmac_f32_32x32x32_fp8_fp8", smfmac<32, 32, Fp8, Fp8>},
    {"v_smfmac_f32_32x32x32_fp8_bf8", smfmac<32, 32, Fp8, Bf8>},
    {"v_smfmac_f32_32x32x32_bf8_fp8", smfmac<32, 32, Bf8, Fp8>},
    {"v_smfmac_f32_32x32x32_bf8_bf8", smfmac<32, 32, Bf8, Bf8>},
    {"v_smfmac_f32_16x16x128_fp8_fp8", smfmac<16, 128, Fp8, Fp8>},
    {"v_smfmac_f32_16x16x128_fp8_bf8", smfmac<16, 128, Fp8, Bf8>},
    {"v_smfmac_f32_16x16x128_bf8_fp8", smfmac<16, 128, Bf8, Fp8>},
    {"v_smfmac_f32_16x16x128_bf8_bf8", smfmac<16, 128, Bf8, Bf8>},
    {"v_smfmac_f32_32x32x64_fp8_fp8", smfmac<32, 64, Fp8, Fp8>},
    {"v_smfmac_f32_32x32x64_fp8_bf8", smfmac<32, 64, Fp8, Bf8>},
    {"v_smfmac_f32_32x32x64_bf8_fp8", smfmac<32, 64, Bf8, Fp8>},
    {"v_smfmac_f32_32x32x64_bf8_bf8", smfmac<32, 64, Bf8, Bf8>},
};
} // namespace

std::span<const Entry> sparse_matrix_entries() { return ENTRIES; }
} // namespace emu

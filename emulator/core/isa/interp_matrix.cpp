// MFMA: D = A * B + C on small matrices spread over the wave (CDNA3 and CDNA4 ISA documents,
// section "Matrix arithmetic").
//
// EXEC is ignored. With N rows (columns) a block of lanes, lane l holds row (column) l % N of A (B)
// and the E values of k from E * (l / N). Register r of a 32x32 result holds row 8 * (r / 4) + 4 *
// (l / 32) + r % 4, of a 16x16 result row 4 * (l / 16) + r, column l % N each.
//
// Numerics: operands are widened to f32 exactly, products are exact there for 16-bit and 8-bit
// formats, sums are f32 in the order of k, rounded to nearest even. Subnormals are kept whatever
// MODE says (gfx940 on; the matrix units of gfx90a flushed those of f16 and bf16). The hardware
// adds several products before rounding, in an order that AMD does not document: results differ
// from it by at most one rounding a step. Option exact_mfma: sums as in MMA-Sim (arXiv 2511.10909),
// a model of CDNA3 that its authors found equal bit for bit. Of f32 operands it says the same as is
// done here without the option; of CDNA4 it says nothing.
#include "isa/float_formats.h"
#include "isa/operands.h"
#include "isa/registry.h"
#include "isa/vectors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace emu {

namespace {

// Formats: values a dword, and widening of value `e` of a run of dwords to f32. For the exact sums
// also (of the formats of gfx942): bits of the mantissa, exponent of the least normal number, and
// how many products are added at a time.
struct F32
{
    static constexpr unsigned PER_DWORD = 1;
    static constexpr unsigned GROUP     = 0; // one at a time, each sum rounded
    static void widen(const Wave&, const uint32_t* from, unsigned, float* to, unsigned count)
    {
        for(unsigned i = 0; i < count; ++i)
            to[i] = as_float(from[i]);
    }
};

struct Bf16
{
    static constexpr unsigned PER_DWORD = 2;
    static constexpr unsigned GROUP     = 8;
    static constexpr int MANTISSA = 7, LEAST = -126;
    static void widen(const Wave&, const uint32_t* from, unsigned part, float* to, unsigned count)
    {
        for(unsigned i = 0; i < count; i += SEVERAL)
        {
            auto words = lanes_at<Words>(from + i);
            words      = part == 0 ? words << 16 : words & 0xffff0000;
            std::memcpy(to + i, &words, sizeof words);
        }
    }
};

struct F16
{
    static constexpr unsigned PER_DWORD = 2;
    static constexpr unsigned GROUP     = 8;
    static constexpr int MANTISSA = 10, LEAST = -14;
    static void widen(const Wave&, const uint32_t* from, unsigned part, float* to, unsigned count)
    {
#ifdef __AVX512F__
        for(unsigned i = 0; i < count; i += 16)
        {
            const __m512i both = _mm512_loadu_si512(from + i);
            _mm512_store_ps(to + i,
                            _mm512_cvtph_ps(_mm512_cvtepi32_epi16(
                                part == 0 ? both : _mm512_srli_epi32(both, 16))));
        }
#else
        for(unsigned i = 0; i < count; ++i)
            to[i] = f16_to_f32(from[i] >> 16 * part & 0xffff);
#endif
    }
};

template <typename Old, typename New, int Mantissa>
struct Byte
{
    static constexpr unsigned PER_DWORD = 4;
    static constexpr unsigned GROUP     = 16;
    static constexpr int MANTISSA = Mantissa, LEAST = 1 - Old::BIAS;
    static void widen(const Wave& w, const uint32_t* from, unsigned part, float* to, unsigned count)
    {
        for(unsigned i = 0; i < count; i += SEVERAL)
        {
            const Words bytes = lanes_at<Words>(from + i) >> 8 * part & 0xff;
            const Words bits =
                w.group->arch == 950 ? New::to_f32_bits(bytes) : Old::to_f32_bits(bytes);
            std::memcpy(to + i, &bits, sizeof bits);
        }
    }
};
using Fp8 = Byte<Fp8Fnuz, Fp8Ocp, 3>;
using Bf8 = Byte<Bf8Fnuz, Bf8Ocp, 2>;

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
}

template <unsigned N>
constexpr unsigned row_of(unsigned r, unsigned block)
{
    return N == 32 ? 8 * (r / 4) + 4 * block + r % 4 : 4 * block + r;
}

// ---- Exact sums: significands as integers, scaled by a power of two.

// significand * 2^(exponent - MANTISSA) of the format; subnormal ones have the exponent of the
// least normal number.
struct Operand
{
    int64_t significand;
    int exponent;
};

constexpr int ZERO_EXPONENT = -126; // of a zero, in every format

template <int Mantissa, int Least>
Operand split(float value)
{
    if(value == 0.0f || !std::isfinite(value))
        return {0, ZERO_EXPONENT};
    const int exponent = std::max(std::ilogb(value), Least);
    return {static_cast<int64_t>(std::ldexp(static_cast<double>(value), Mantissa - exponent)),
            exponent};
}

// value * 2^-by: towards zero, and towards minus infinity.
int64_t cut(int64_t value, int by)
{
    const int64_t size = value < 0 ? -value : value;
    const int64_t kept = by <= 0 ? size << -by : by < 63 ? size >> by : 0;
    return value < 0 ? -kept : kept;
}
int64_t lower(int64_t value, int by) { return value >> std::min(by, 63); }

constexpr int SUM_BITS = 24, TOTAL_BITS = 31; // below the binary point of the greatest exponent

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
        units +=
            cut(products[i].significand, Mantissas - SUM_BITS + greatest - products[i].exponent);
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
        sum                = {
            lower(sum.units, greatest - sum.exponent) + lower(odd.units, greatest - odd.exponent),
            greatest};
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
float special_sum(const float* a, const float* b, unsigned count, float addend)
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

template <unsigned N, unsigned E, typename FormatA, typename FormatB>
void mfma_exact(Wave& w, const MicroOp* op)
{
    constexpr unsigned K = E * LANES / N, GROUP = std::min(K, FormatA::GROUP);
    alignas(64) float a[K][N], b[K][N];
    widen_operand<N, E, FormatA>(w, op, 0, a);
    widen_operand<N, E, FormatB>(w, op, 1, b);
    const uint16_t addend = op->src[2].code;
    for(unsigned r = 0; r < N * N / LANES; ++r)
        for(unsigned lane = 0; lane < LANES; ++lane)
        {
            const unsigned row = row_of<N>(r, lane / N), column = lane % N;
            float sum =
                as_float(addend < SCALAR ? w.v[addend + r][lane] : scalar_value(w, op, addend));
            for(unsigned k = 0; k < K; k += GROUP)
            {
                float left[GROUP], right[GROUP];
                Operand products[GROUP];
                for(unsigned i = 0; i < GROUP; ++i)
                {
                    left[i]         = a[k + i][row];
                    right[i]        = b[k + i][column];
                    const Operand x = split<FormatA::MANTISSA, FormatA::LEAST>(left[i]);
                    const Operand y = split<FormatB::MANTISSA, FormatB::LEAST>(right[i]);
                    products[i]     = {x.significand * y.significand, x.exponent + y.exponent};
                }
                const float special = special_sum(left, right, GROUP, sum);
                sum = special != 0.0f
                          ? special
                          : add_group<GROUP, FormatA::MANTISSA + FormatB::MANTISSA>(products, sum);
            }
            w.v[op->dst + r][lane] = as_bits(sum);
        }
}

template <unsigned N, unsigned E, typename FormatA, typename FormatB>
const MicroOp* mfma(Wave& w, const MicroOp* op)
{
    constexpr unsigned K = E * LANES / N, BLOCKS = LANES / N, REGISTERS = N * N / LANES;
    constexpr unsigned VECTORS = N / WIDTH;
    // Eight sums at a time, or sixteen where there are 32 vector registers.
    constexpr unsigned ROWS = (FAST && WIDTH == 16 ? 16 : 8) / std::min(VECTORS, 4u);
    const bool other_mode      = w.mxcsr != 0x1f80;
    if(other_mode) [[unlikely]]
        load_host_mode(0x1f80);
    if constexpr(FormatA::GROUP != 0)
        if(w.group->exact_mfma) [[unlikely]]
        {
            mfma_exact<N, E, FormatA, FormatB>(w, op);
            load_host_mode(w.mxcsr);
            return advance(op);
        }
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
            const unsigned r  = N == 32 ? row / 8 * 4 + row % 4 : row % 4;
            home[i]           = reinterpret_cast<float*>(w.v[op->dst + r]) + block * N;
            const float* from = addend < SCALAR
                                    ? reinterpret_cast<const float*>(w.v[addend + r]) + block * N
                                    : constant;
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
    if(other_mode) [[unlikely]]
        load_host_mode(w.mxcsr);
    return advance(op);
}

// i8 operands, i32 sums that wrap.
template <unsigned N, unsigned E>
const MicroOp* mfma_i8(Wave& w, const MicroOp* op)
{
    constexpr unsigned K = E * LANES / N, BLOCKS = LANES / N;
    int32_t a[K][N], b[K][N];
    for(unsigned e = 0; e < E; ++e)
        for(unsigned l = 0; l < LANES; ++l)
        {
            a[E * (l / N) + e][l % N] =
                static_cast<int8_t>(w.v[op->src[0].code + e / 4][l] >> 8 * (e % 4));
            b[E * (l / N) + e][l % N] =
                static_cast<int8_t>(w.v[op->src[1].code + e / 4][l] >> 8 * (e % 4));
        }
    const uint16_t addend = op->src[2].code;
    for(unsigned r = 0; r < N * N / LANES; ++r)
        for(unsigned block = 0; block < BLOCKS; ++block)
        {
            const unsigned row = row_of<N>(r, block);
            for(unsigned column = 0; column < N; ++column)
            {
                const unsigned lane = block * N + column;
                uint32_t sum =
                    addend < SCALAR ? w.v[addend + r][lane] : scalar_value(w, op, addend);
                for(unsigned k = 0; k < K; ++k)
                    sum += static_cast<uint32_t>(a[k][row] * b[k][column]);
                w.v[op->dst + r][lane] = sum;
            }
        }
    return advance(op);
}

// Formats of 8 bits alone: cbsz names A's and blgp B's, 0 fp8 and 1 bf8.
template <unsigned N>
const MicroOp* mfma_f8f6f4(Wave& w, const MicroOp* op)
{
    switch(op->control)
    {
        case 0: return mfma<N, 32, Fp8, Fp8>(w, op);
        case 1: return mfma<N, 32, Bf8, Fp8>(w, op);
        case 2: return mfma<N, 32, Fp8, Bf8>(w, op);
        default: return mfma<N, 32, Bf8, Bf8>(w, op);
    }
}

constexpr Entry ENTRIES[] = {
    {"v_mfma_f32_32x32x2_f32", mfma<32, 1, F32, F32>},
    {"v_mfma_f32_16x16x4_f32", mfma<16, 1, F32, F32>},
    {"v_mfma_f32_32x32x8_f16", mfma<32, 4, F16, F16>},
    {"v_mfma_f32_16x16x16_f16", mfma<16, 4, F16, F16>},
    {"v_mfma_f32_32x32x8_bf16", mfma<32, 4, Bf16, Bf16>},
    {"v_mfma_f32_16x16x16_bf16", mfma<16, 4, Bf16, Bf16>},
    {"v_mfma_f32_32x32x16_f16", mfma<32, 8, F16, F16>},
    {"v_mfma_f32_16x16x32_f16", mfma<16, 8, F16, F16>},
    {"v_mfma_f32_32x32x16_bf16", mfma<32, 8, Bf16, Bf16>},
    {"v_mfma_f32_16x16x32_bf16", mfma<16, 8, Bf16, Bf16>},
    {"v_mfma_f32_32x32x16_fp8_fp8", mfma<32, 8, Fp8, Fp8>},
    {"v_mfma_f32_32x32x16_fp8_bf8", mfma<32, 8, Fp8, Bf8>},
    {"v_mfma_f32_32x32x16_bf8_fp8", mfma<32, 8, Bf8, Fp8>},
    {"v_mfma_f32_32x32x16_bf8_bf8", mfma<32, 8, Bf8, Bf8>},
    {"v_mfma_f32_16x16x32_fp8_fp8", mfma<16, 8, Fp8, Fp8>},
    {"v_mfma_f32_16x16x32_fp8_bf8", mfma<16, 8, Fp8, Bf8>},
    {"v_mfma_f32_16x16x32_bf8_fp8", mfma<16, 8, Bf8, Fp8>},
    {"v_mfma_f32_16x16x32_bf8_bf8", mfma<16, 8, Bf8, Bf8>},
    {"v_mfma_f32_32x32x64_f8f6f4", mfma_f8f6f4<32>},
    {"v_mfma_f32_16x16x128_f8f6f4", mfma_f8f6f4<16>},
    {"v_mfma_i32_32x32x16_i8", mfma_i8<32, 8>},
    {"v_mfma_i32_16x16x32_i8", mfma_i8<16, 8>},
    {"v_mfma_i32_32x32x32_i8", mfma_i8<32, 16>},
    {"v_mfma_i32_16x16x64_i8", mfma_i8<16, 16>},
};

} // namespace

std::span<const Entry> matrix_entries() { return ENTRIES; }

} // namespace emu

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
// adds several products before rounding, in an order it does not document: results differ from it
// by at most one rounding a step.
#include "isa/float_formats.h"
#include "isa/operands.h"
#include "isa/registry.h"

#include <cmath>

namespace emu {

namespace {

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

// Formats: values a dword, and widening of value `e` of a run of dwords to f32.
struct F32
{
    static constexpr unsigned PER_DWORD = 1;
    static void widen(const Wave&, const uint32_t* from, unsigned, float* to, unsigned count)
    {
        for(unsigned i = 0; i < count; ++i)
            to[i] = as_float(from[i]);
    }
};

struct Bf16
{
    static constexpr unsigned PER_DWORD = 2;
    static void widen(const Wave&, const uint32_t* from, unsigned part, float* to, unsigned count)
    {
        if(part == 0)
            for(unsigned i = 0; i < count; ++i)
                to[i] = as_float(from[i] << 16);
        else
            for(unsigned i = 0; i < count; ++i)
                to[i] = as_float(from[i] & 0xffff0000);
    }
};

struct F16
{
    static constexpr unsigned PER_DWORD = 2;
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

template <typename Old, typename New>
struct Byte
{
    static constexpr unsigned PER_DWORD = 4;
    struct Table
    {
        float value[256];
    };
    template <typename Format>
    static const Table& table()
    {
        static const Table made = [] {
            Table t;
            for(uint32_t i = 0; i < 256; ++i)
                t.value[i] = as_float(Format::to_f32_bits(i));
            return t;
        }();
        return made;
    }
    static void widen(const Wave& w, const uint32_t* from, unsigned part, float* to, unsigned count)
    {
        const Table& values = w.group->arch == 950 ? table<New>() : table<Old>();
        for(unsigned i = 0; i < count; ++i)
            to[i] = values.value[from[i] >> 8 * part & 0xff];
    }
};
using Fp8 = Byte<Fp8Fnuz, Fp8Ocp>;
using Bf8 = Byte<Bf8Fnuz, Bf8Ocp>;

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

template <unsigned N, unsigned E, typename FormatA, typename FormatB>
const MicroOp* mfma(Wave& w, const MicroOp* op)
{
    constexpr unsigned K = E * LANES / N, BLOCKS = LANES / N, REGISTERS = N * N / LANES;
    constexpr unsigned VECTORS = N / WIDTH;
    constexpr unsigned ROWS    = VECTORS >= 4 ? 2 : VECTORS == 2 ? 4 : 8; // eight sums at a time
    const bool other_mode      = w.mxcsr != 0x1f80;
    if(other_mode) [[unlikely]]
        load_host_mode(0x1f80);
    alignas(64) float a[K][N], b[K][N];
    widen_operand<N, E, FormatA>(w, op, 0, a);
    widen_operand<N, E, FormatB>(w, op, 1, b);
    const uint16_t addend = op->src[2].code;
    alignas(64) float constant[N];
    if(addend >= SCALAR)
        for(unsigned i = 0; i < N; ++i)
            constant[i] = as_float(scalar_value(w, op, addend));
    // ROWS rows that are neighbours in the matrix lie in ROWS registers of one block (four
    // registers hold four rows).
    static_assert(ROWS <= 8);
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
    {"v_mfma_i32_32x32x16_i8", mfma_i8<32, 8>},
    {"v_mfma_i32_16x16x32_i8", mfma_i8<16, 8>},
    {"v_mfma_i32_32x32x32_i8", mfma_i8<32, 16>},
    {"v_mfma_i32_16x16x64_i8", mfma_i8<16, 16>},
};

} // namespace

std::span<const Entry> matrix_entries() { return ENTRIES; }

} // namespace emu

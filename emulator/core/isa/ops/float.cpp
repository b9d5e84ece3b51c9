// f32 vector arithmetic: VOP1, VOP2, VOP3 (CDNA3 ISA document, sections 12.7 to 12.11).
#include "isa/division.h"
#include "isa/exp2.h"
#include "isa/map.h"
#include "isa/registry.h"
#include "isa/vectors.h"

#include <cmath>
#include <cstring>

namespace emu {
namespace {
using Integers = int32_t __attribute__((vector_size(4 * SEVERAL)));

// Of one lane's bits, or of Words; then the answer is a mask for each lane.
template <typename Word>
auto is_nan(Word a)
{
    return (a & 0x7fffffff) > 0x7f800000;
}
template <typename Word>
auto is_signalling(Word a)
{
    return is_nan(a) & ((a & 0x400000) == 0);
}

// Integers in the order of the floats, in which +0 is greater than -0.
template <typename Word>
Word ordered(Word a)
{
    return a ^ ((0 - (a >> 31)) | 0x80000000);
}

#if defined(__AVX512F__) && !defined(EMU_PLAIN)
// The greatest or least of vectors without NaNs: as signed integers, after negative numbers got the
// order of their magnitudes turned round. False: there is a NaN.
Words turned(Words a) { return a ^ (std::bit_cast<Words>(std::bit_cast<Integers>(a) >> 31) >> 1); }
template <bool Max, typename... More>
bool extreme_number(Words& result, const More&... numbers)
{
    constexpr int NANS = 0x81;
    if((_mm512_fpclass_ps_mask(std::bit_cast<__m512>(numbers), NANS) | ...) != 0) [[unlikely]]
        return false;
    __m512i most = _mm512_set1_epi32(Max ? INT32_MIN : INT32_MAX);
    ((most = Max ? _mm512_max_epi32(most, std::bit_cast<__m512i>(turned(numbers)))
                 : _mm512_min_epi32(most, std::bit_cast<__m512i>(turned(numbers)))),
     ...);
    result = turned(std::bit_cast<Words>(most));
    return true;
}
#else
template <bool Max, typename... More>
bool extreme_number(Words&, const More&...)
{
    return false;
}
#endif

// The greater, or with Max false the smaller. With MODE.IEEE a signalling NaN wins, as a quiet one;
// else a NaN loses.
template <bool Max, typename Word>
Word extreme(bool ieee, Word a, Word b)
{
    if constexpr(std::is_same_v<Word, Words>)
        if(Words found; extreme_number<Max>(found, a, b))
            return found;
    const auto first = Max ? ordered(a) > ordered(b) : ordered(a) < ordered(b);
    Word result      = first ? a : b;
    result           = is_nan(b) ? a : result;
    result           = is_nan(a) ? b : result;
    if(ieee)
    {
        result = is_signalling(b) ? b | 0x400000 : result;
        result = is_signalling(a) ? a | 0x400000 : result;
    }
    return result;
}

template <bool Max, typename Word>
Word extreme3(bool ieee, Word a, Word b, Word c)
{
    if constexpr(std::is_same_v<Word, Words>)
        if(Words found; extreme_number<Max>(found, a, b, c))
            return found;
    return extreme<Max>(ieee, extreme<Max>(ieee, a, b), c);
}

uint32_t median(bool ieee, uint32_t a, uint32_t b, uint32_t c)
{
    if(is_nan(a) || is_nan(b) || is_nan(c))
        return extreme3<false>(ieee, a, b, c);
    const uint32_t most = extreme3<true>(ieee, a, b, c);
    if(as_float(most) == as_float(a))
        return extreme<true>(ieee, b, c);
    if(as_float(most) == as_float(b))
        return extreme<true>(ieee, a, c);
    return extreme<true>(ieee, a, b);
}

bool is_subnormal(float x) { return (as_bits(x) & 0x7f800000) == 0; }
float signed_zero(float x) { return as_float(as_bits(x) & 0x80000000); }

float rcp_f32(float x)
{
    const float value  = static_cast<float>(1.0 / static_cast<double>(x));
    const float finite = is_subnormal(value) ? signed_zero(value) : value;
    return is_subnormal(x) ? as_float((as_bits(x) & 0x80000000) | 0x7f800000) : finite;
}

float log2_f32(float x)
{
    if(is_subnormal(x))
        return -INFINITY;
    return static_cast<float>(std::log2(static_cast<double>(x)));
}

float sqrt_f32(float x)
{
    return is_subnormal(x) ? signed_zero(x) : static_cast<float>(std::sqrt(static_cast<double>(x)));
}

float rsq_f32(float x)
{
    if(is_subnormal(x))
        return as_float((as_bits(x) & 0x80000000) | 0x7f800000);
    return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x)));
}

// The argument counts turns: 1.0 is 2 pi.
float sine(float turns, bool cosine)
{
    if(!std::isfinite(turns))
        return NAN;
    if(std::fabs(turns) > 256.0f)
        return cosine ? 1.0f : 0.0f; // ISA document, v_sin_f32: out of range is an angle of 0
    const double angle = (static_cast<double>(turns) - std::rint(static_cast<double>(turns))) * 6.283185307179586;
    return static_cast<float>(cosine ? std::cos(angle) : std::sin(angle));
}

float fract(float x)
{
    if(std::isinf(x))
        return NAN;
    const float part = x - std::floor(x);
    if(part == 0.0f)
        return 0.0f; // in every rounding mode (rocm-systems: a gfx1201)
    return part >= 1.0f ? as_float(0x3f7fffff) : part;
}

uint32_t frexp_exponent(uint32_t bits) { return static_cast<uint32_t>(Frexp(bits).exponent); }

float legacy_product(float a, float b) { return a == 0.0f || b == 0.0f ? 0.0f : a * b; }

const MicroOp* v_div_scale_f32(Wave& w, const MicroOp* op)
{
    Row b0, b1, b2, out;
    const uint32_t *a = source_row(w, op, 0, b0), *b = source_row(w, op, 1, b1), *c = source_row(w, op, 2, b2);
    uint64_t scaled = 0;
    for(unsigned l = 0; l < LANES; ++l)
    {
        const float s0 = as_float(a[l]), denominator = as_float(b[l]), numerator = as_float(c[l]);
        bool flag = false;
        out.d[l]  = as_bits(div_scale(s0, denominator, numerator, flag));
        scaled |= uint64_t{flag} << l;
    }
    commit(w, op, out.d);
    w.set_pair(op->scalar_dst - SCALAR, scaled & w.exec());
    return advance(op);
}

// VCC has the lanes that v_div_scale_f32 scaled. Subnormal factors and addends count in every MODE.
const MicroOp* v_div_fmas_f32(Wave& w, const MicroOp* op)
{
    Row b0, b1, b2, out;
    const uint32_t *a = source_row(w, op, 0, b0), *b = source_row(w, op, 1, b1), *c = source_row(w, op, 2, b2);
    const uint64_t scaled = w.pair(VCC);
    const auto round      = static_cast<Round>(mode::ROUND_F32.of(w.mode));
    const bool keeps      = mode::INPUTS_F32.of(w.mode);
    for(unsigned l = 0; l < LANES; ++l)
        out.d[l] = as_bits(div_fmas(as_float(a[l]), as_float(b[l]), as_float(c[l]), scaled >> l & 1, round, keeps));
    return commit_f32(w, op, out);
}

float ldexp_f32(float x, uint32_t exponent)
{
    const int e = static_cast<int32_t>(exponent);
    return std::ldexp(x, e > 1000 ? 1000 : e < -1000 ? -1000 : e);
}

const MicroOp* v_ldexp_f32(Wave& w, const MicroOp* op)
{
    Row out;
    map_lanes<2>(w, op, out.d, [](uint32_t a, uint32_t b) { return as_bits(ldexp_f32(as_float(a), b)); });
    return commit_f32(w, op, out);
}

// The transcendental unit does not take MODE's rounding.
template <auto F>
const MicroOp* transcendental(Wave& w, const MicroOp* op)
{
    const HostMode mode(w.mxcsr, w.mxcsr & ~MXCSR_ROUND.mask());
    return map_f32<1, F>(w, op);
}

const MicroOp* v_exp_f32(Wave& w, const MicroOp* op)
{
    Row b0, buffer;
    uint32_t* const out = target_row(w, op, buffer);
    const uint32_t* a   = source_row(w, op, 0, b0);
    const HostMode mode(w.mxcsr, w.mxcsr & ~MXCSR_ROUND.mask());
    exp2_row(a, out);
    return commit_f32(w, op, out, buffer);
}

// GCC makes no vector code of a loop over std::fma with -frounding-math.
const MicroOp* v_fma_f32(Wave& w, const MicroOp* op)
{
    Row b0, b1, b2, buffer;
    uint32_t* const out = target_row(w, op, buffer);
    const uint32_t *a = source_row(w, op, 0, b0), *b = source_row(w, op, 1, b1), *c = source_row(w, op, 2, b2);
    fma_row(a, b, c, out);
    return commit_f32(w, op, out, buffer);
}

#define F1(NAME, ...) {NAME, map_f32<1, ([](float a) -> float { return __VA_ARGS__; })>}
#define T1(NAME, ...) {NAME, transcendental<([](float a) -> float { return __VA_ARGS__; })>}
#define F2(NAME, ...) {NAME, map_f32<2, ([](float a, float b) -> float { return __VA_ARGS__; })>}
#define F3(NAME, ...) {NAME, map_f32<3, ([](float a, float b, float c) -> float { return __VA_ARGS__; })>}
#ifdef EMU_PLAIN
#define FUSED(NAME) F3(NAME, std::fma(a, b, c))
#else
#define FUSED(NAME) {NAME, v_fma_f32}
#endif
#define IEEE(NAME, N, F, WORD) {NAME, map_f32_mode<N, F, ieee_mode, WORD>}

constexpr Entry ENTRIES[] = {
    F2("v_add_f32", a + b),
    F2("v_sub_f32", a - b),
    F2("v_subrev_f32", b - a),
    F2("v_mul_f32", (a * b)),
    F2("v_mul_legacy_f32", legacy_product(a, b)),
    IEEE("v_min_f32", 2, (extreme<false, Words>), Words),
    IEEE("v_max_f32", 2, (extreme<true, Words>), Words),
    IEEE("v_min3_f32", 3, (extreme3<false, Words>), Words),
    IEEE("v_max3_f32", 3, (extreme3<true, Words>), Words),
    IEEE("v_med3_f32", 3, median, uint32_t),
    FUSED("v_fma_f32"),
    FUSED("v_fmac_f32"),
    F3("v_mad_f32", (a * b) + c),
    F3("v_div_fixup_f32", div_fixup(a, b, c)),
    {"v_exp_f32", v_exp_f32},
    T1("v_log_f32", log2_f32(a)),
    T1("v_rcp_f32", rcp_f32(a)),
    T1("v_rsq_f32", rsq_f32(a)),
    T1("v_sqrt_f32", sqrt_f32(a)),
    T1("v_sin_f32", sine(a, false)),
    T1("v_cos_f32", sine(a, true)),
    F1("v_fract_f32", fract(a)),
    F1("v_trunc_f32", std::trunc(a)),
    F1("v_ceil_f32", std::ceil(a)),
    F1("v_floor_f32", std::floor(a)),
    F1("v_rndne_f32", __builtin_roundevenf(a)),
    F1("v_frexp_mant_f32", as_float(Frexp(as_bits(a)).mantissa)),
    {"v_frexp_exp_i32_f32", map_integer<1, frexp_exponent>},
    {"v_ldexp_f32", v_ldexp_f32},
    {"v_div_scale_f32", v_div_scale_f32},
    {"v_div_fmas_f32", v_div_fmas_f32},
};
} // namespace

std::span<const Entry> float_entries() { return ENTRIES; }
} // namespace emu

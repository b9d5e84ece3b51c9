// f16 vector arithmetic. Each operation is computed in f64 (exact for sums and products of f16 up
// to fma's last addition, whose single rounding to f64 is harmless at f16's 11 bits) and rounded
// once to f16 in MODE's f16 rounding.
#include "isa/float_formats.h"
#include "isa/map.h"
#include "isa/registry.h"

#include <algorithm>
#include <cmath>

namespace emu {
namespace {
struct HalfMode
{
    Round round;
    bool flush_inputs, flush_results, saturate;
};

HalfMode half_mode(const Wave& w)
{
    return {wide_round(w), !mode::INPUTS_WIDE.of(w.mode), !mode::RESULTS_WIDE.of(w.mode), saturates(w)};
}

double input(const HalfMode& mode, uint32_t bits)
{
    bits &= 0xffff;
    if(mode.flush_inputs && (bits & 0x7c00) == 0)
        bits &= 0x8000;
    return f16_to_f32(bits);
}

uint32_t output(const HalfMode& mode, double value)
{
    // Too large for f16 but finite: it must stay finite in f32, as MODE's rounding decides on
    // infinity.
    if(std::isfinite(value) && std::fabs(value) > 0x1p17)
        value = std::copysign(0x1p17, value);
    const uint32_t half = f32_to_f16(f64_to_odd_f32(value), mode.round, mode.saturate);
    return mode.flush_results ? flush_f16(half) : half;
}

uint32_t modified(const Wave& w, const MicroOp* op, uint32_t half)
{
    static constexpr double FACTORS[] = {1.0, 2.0, 4.0, 0.5};
    const HalfMode mode               = half_mode(w);
    double value                      = f16_to_f32(half) * FACTORS[effective_omod(w, op, !mode.flush_results)];
    if(op->flags & CLAMP)
    {
        if(std::isnan(value))
            value = dx10_clamp(w) ? 0.0 : value;
        else
            value = value > 1.0 ? 1.0 : value > 0.0 ? value : 0.0;
    }
    return output(mode, value);
}

// The output modifiers, then D.
const MicroOp* commit_modified(Wave& w, const MicroOp* op, Row& out)
{
    if(output_modified(op))
        for(unsigned l = 0; l < LANES; ++l)
            out.d[l] = modified(w, op, out.d[l]);
    commit(w, op, out.d);
    return advance(op);
}

// F on bits.
template <unsigned N, auto F>
const MicroOp* map_f16_bits(Wave& w, const MicroOp* op)
{
    Row out;
    map_lanes<N>(w, op, out.d, F);
    return commit_modified(w, op, out);
}

// Transcendental: the unit does not take MODE's rounding.
template <unsigned N, auto F, bool Transcendental = false>
const MicroOp* map_f16(Wave& w, const MicroOp* op)
{
    // The host computes f64 in the rounding mode of f16, which gives a zero sum its sign and keeps
    // what f64 can't hold of an fma on the right side; f64's denormals don't come up. The rounding
    // to f16 happens in output().
    const HostMode host(w.mxcsr, MXCSR_NEAREST | (Transcendental ? 0 : w.mxcsr_wide & MXCSR_ROUND.mask()));
    HalfMode mode = half_mode(w);
    if(Transcendental)
        mode.round = Round::Nearest;
    Row out;
    map_lanes<N>(w, op, out.d, [=](auto... bits) { return output(mode, F(input(mode, bits)...)); });
    return commit_modified(w, op, out);
}

// Minima, maxima and medians choose one of their sources by its bits: F(ieee, a, b[, c]).
template <unsigned N, auto F>
const MicroOp* choose_f16(Wave& w, const MicroOp* op)
{
    const HalfMode mode = half_mode(w);
    const bool ieee     = ieee_mode(w);
    const auto read     = [=](uint32_t bits) { return mode.flush_inputs ? flush_f16(bits & 0xffff) : bits & 0xffff; };
    Row out;
    map_lanes<N>(w, op, out.d, [=](auto... bits) {
        const uint32_t chosen = F(ieee, read(bits)...);
        return mode.flush_results ? flush_f16(chosen) : chosen;
    });
    return commit_modified(w, op, out);
}

template <bool Max>
uint32_t extreme3(bool ieee, uint32_t a, uint32_t b, uint32_t c)
{
    return extreme_f16<Max>(ieee, extreme_f16<Max>(ieee, a, b), c);
}

uint32_t median(bool ieee, uint32_t a, uint32_t b, uint32_t c)
{
    if(is_nan_f16(a) || is_nan_f16(b) || is_nan_f16(c))
        return extreme3<false>(ieee, a, b, c);
    // As the pseudocode has it: equal by value, which matters for zeros.
    const float most = f16_to_f32(extreme3<true>(ieee, a, b, c));
    if(most == f16_to_f32(a))
        return extreme_f16<true>(ieee, b, c);
    if(most == f16_to_f32(b))
        return extreme_f16<true>(ieee, a, c);
    return extreme_f16<true>(ieee, a, b);
}

// Below 1 even after rounding to f16 (LLVM folds min(x - floor(x), 0x3bff) to it).
double fract(double a)
{
    const double part = a - std::floor(a);
    return part > 0x1.ffcp-1 ? 0x1.ffcp-1 : part == 0.0 ? 0.0 : part;
}

const MicroOp* v_ldexp_f16(Wave& w, const MicroOp* op)
{
    const HalfMode mode = half_mode(w);
    Row out;
    map_lanes<2>(w, op, out.d, [=](uint32_t a, uint32_t b) {
        const int e = static_cast<int16_t>(b);
        // Bounded so that f64 holds the result: output() decides on infinity and zero.
        return output(mode, std::ldexp(input(mode, a), e > 200 ? 200 : e < -200 ? -200 : e));
    });
    return commit_modified(w, op, out);
}

// A product and a sum, each rounded.
const MicroOp* v_mad_f16(Wave& w, const MicroOp* op)
{
    const HostMode host(w.mxcsr, MXCSR_NEAREST | (w.mxcsr_wide & MXCSR_ROUND.mask()));
    const HalfMode mode = half_mode(w);
    HalfMode inner      = mode;
    inner.flush_results = false; // of the product alone
    Row out;
    map_lanes<3>(w, op, out.d, [=](uint32_t a, uint32_t b, uint32_t c) {
        const double product = f16_to_f32(output(inner, input(mode, a) * input(mode, b)));
        return output(mode, product + input(mode, c));
    });
    return commit_modified(w, op, out);
}

uint32_t div_fixup(uint32_t quotient, uint32_t denominator, uint32_t numerator)
{
    constexpr uint32_t SIGN = 0x8000, INFINITE = 0x7c00, QUIET = 0x200, INVALID = 0xfe00;
    const uint32_t sign = (denominator ^ numerator) & SIGN, top = numerator & 0x7fff, bottom = denominator & 0x7fff;
    if(is_nan_f16(numerator))
        return (numerator & 0xffff) | QUIET;
    if(is_nan_f16(denominator))
        return (denominator & 0xffff) | QUIET;
    if((top == 0 && bottom == 0) || (top == INFINITE && bottom == INFINITE))
        return INVALID;
    if(bottom == 0 || top == INFINITE)
        return sign | INFINITE;
    if(bottom == INFINITE || top == 0)
        return sign;
    return sign | (quotient & 0x7fff);
}

// Of a source that is not flushed.
uint32_t frexp_mantissa(uint32_t a) { return Frexp(static_cast<uint16_t>(a)).mantissa; }
uint32_t frexp_exponent(uint32_t a) { return Frexp(static_cast<uint16_t>(a)).exponent & 0xffff; }

// The operand is in turns; beyond 256 of them its angle is 0 (ISA document, v_sin_f16).
double sine(double turns, bool cosine)
{
    if(std::isinf(turns))
        return NAN;
    if(std::fabs(turns) > 256.0)
        return cosine ? 1.0 : 0.0;
    const double angle = (turns - std::rint(turns)) * 6.283185307179586;
    return cosine ? std::cos(angle) : std::sin(angle);
}

// [-1, 1] or [0, 1] to the whole range of 16 bits.
uint32_t norm16(uint32_t half, bool is_signed)
{
    const double x = f16_to_f32(half & 0xffff);
    if(std::isnan(x))
        return 0;
    const double bounded = std::fmin(1.0, std::fmax(is_signed ? -1.0 : 0.0, x));
    return static_cast<uint32_t>(static_cast<int32_t>(__builtin_roundeven(bounded * (is_signed ? 32767.0 : 65535.0)))) &
           0xffff;
}

// The sources' numbers side by side, for two of them.
template <unsigned N, bool Signed>
const MicroOp* norm(Wave& w, const MicroOp* op)
{
    const bool flush = half_mode(w).flush_inputs;
    Row out          = {};
    for(unsigned i = 0; i < N; ++i)
    {
        Row buffer;
        const uint32_t* a = source_row(w, op, i, buffer);
        for(unsigned l = 0; l < LANES; ++l)
            out.d[l] |= norm16(flush ? flush_f16(a[l] & 0xffff) : a[l], Signed) << 16 * i;
    }
    commit(w, op, out.d);
    return advance(op);
}

#define H1(NAME, ...) {NAME, map_f16<1, ([](double a) -> double { return __VA_ARGS__; })>}
#define T1(NAME, ...) {NAME, map_f16<1, ([](double a) -> double { return __VA_ARGS__; }), true>}
#define H2(NAME, ...) {NAME, map_f16<2, ([](double a, double b) -> double { return __VA_ARGS__; })>}
#define H3(NAME, ...) {NAME, map_f16<3, ([](double a, double b, double c) -> double { return __VA_ARGS__; })>}

constexpr Entry ENTRIES[] = {
    H2("v_add_f16", a + b),
    H2("v_sub_f16", a - b),
    H2("v_subrev_f16", b - a),
    H2("v_mul_f16", (a * b)),
    {"v_min_f16", choose_f16<2, extreme_f16<false>>},
    {"v_max_f16", choose_f16<2, extreme_f16<true>>},
    {"v_min3_f16", choose_f16<3, extreme3<false>>},
    {"v_max3_f16", choose_f16<3, extreme3<true>>},
    {"v_med3_f16", choose_f16<3, median>},
    H3("v_fma_f16", (a * b) + c),
    H3("v_fmac_f16", (a * b) + c),
    T1("v_exp_f16", std::exp2(std::isinf(a) ? a : std::min(a, 100.0))), // finite in f64, too
    T1("v_log_f16", std::log2(a)),
    T1("v_rcp_f16", 1.0 / a),
    T1("v_sqrt_f16", std::sqrt(a)),
    T1("v_rsq_f16", 1.0 / std::sqrt(a)),
    H1("v_trunc_f16", std::trunc(a)),
    H1("v_ceil_f16", std::ceil(a)),
    H1("v_floor_f16", std::floor(a)),
    H1("v_rndne_f16", __builtin_roundeven(a)),
    H1("v_fract_f16", fract(a)),
    {"v_ldexp_f16", v_ldexp_f16},
    {"v_mad_f16", v_mad_f16},
    {"v_div_fixup_f16", map_f16_bits<3, div_fixup>},
    {"v_frexp_mant_f16", map_f16_bits<1, frexp_mantissa>},
    {"v_frexp_exp_i16_f16", map_integer<1, frexp_exponent>},
    T1("v_sin_f16", sine(a, false)),
    T1("v_cos_f16", sine(a, true)),
    {"v_cvt_norm_i16_f16", norm<1, true>},
    {"v_cvt_norm_u16_f16", norm<1, false>},
    {"v_cvt_pknorm_i16_f16", norm<2, true>},
    {"v_cvt_pknorm_u16_f16", norm<2, false>},
};
} // namespace

std::span<const Entry> half_entries() { return ENTRIES; }
} // namespace emu

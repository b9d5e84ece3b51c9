// f16 vector arithmetic. Each operation is computed in f64 (exact for sums and products of f16 up to fma's last addition,
// whose single rounding to f64 is harmless at f16's 11 bits) and rounded once to f16 in MODE's f16 rounding.
#include "float_formats.h"
#include "map.h"
#include "registry.h"

#include <cmath>

namespace emu {

namespace {

struct HalfMode {
    Round round;
    bool flush_inputs, flush_results;
};

HalfMode half_mode(const Wave& w) {
    return {static_cast<Round>(w.mode >> 2 & 3), (w.mode >> 6 & 1) == 0, (w.mode >> 7 & 1) == 0};
}

double input(const HalfMode& mode, uint32_t bits) {
    bits &= 0xffff;
    if (mode.flush_inputs && (bits & 0x7c00) == 0) bits &= 0x8000;
    return f16_to_f32(bits);
}

// Via f32 with the inexact bits kept odd, so that the second rounding can't tie wrongly.
uint32_t output(const HalfMode& mode, double value) {
    const float near = static_cast<float>(value);
    uint32_t bits = as_bits(near);
    if (std::isfinite(near) && static_cast<double>(near) != value) {
        // Round to odd: truncate toward zero, then set the last bit.
        if (std::fabs(static_cast<double>(near)) > std::fabs(value)) --bits;
        bits |= 1;
    }
    uint32_t half = f32_to_f16(bits, mode.round);
    if (mode.flush_results && (half & 0x7c00) == 0) half &= 0x8000;
    return half;
}

uint32_t modified(const Wave& w, const MicroOp* op, uint32_t half) {
    static constexpr double factors[] = {1.0, 2.0, 4.0, 0.5};
    const HalfMode mode = half_mode(w);
    double value = f16_to_f32(half) * factors[op->omod & 3];
    if (op->flags & CLAMP) {
        if (std::isnan(value))
            value = dx10_clamp(w) ? 0.0 : value;
        else
            value = value > 1.0 ? 1.0 : value > 0.0 ? value : 0.0;
    }
    return output(mode, value);
}

template <unsigned N, auto F>
const MicroOp* map_f16(Wave& w, const MicroOp* op) {
    // The host computes f64 in the nearest mode whatever MODE says; rounding happens in output().
    const uint32_t saved = host_mode();
    load_host_mode(0x1f80);
    const HalfMode mode = half_mode(w);
    Row b0, b1, b2, out;
    const uint32_t* a = source_row(w, op, 0, b0);
    if constexpr (N == 1) {
        for (unsigned l = 0; l < LANES; ++l) out.d[l] = output(mode, F(input(mode, a[l])));
    } else if constexpr (N == 2) {
        const uint32_t* b = source_row(w, op, 1, b1);
        for (unsigned l = 0; l < LANES; ++l) out.d[l] = output(mode, F(input(mode, a[l]), input(mode, b[l])));
    } else {
        const uint32_t *b = source_row(w, op, 1, b1), *c = source_row(w, op, 2, b2);
        for (unsigned l = 0; l < LANES; ++l)
            out.d[l] = output(mode, F(input(mode, a[l]), input(mode, b[l]), input(mode, c[l])));
    }
    if (output_modified(op))
        for (unsigned l = 0; l < LANES; ++l) out.d[l] = modified(w, op, out.d[l]);
    load_host_mode(saved);
    commit(w, op, out.d);
    return advance(op);
}

template <bool Max>
double extreme(double a, double b) {
    if (std::isnan(a)) return b;
    if (std::isnan(b)) return a;
    if (a == b) return std::signbit(a) == Max ? b : a;
    return (Max ? a > b : a < b) ? a : b;
}

double median(double a, double b, double c) {
    if (std::isnan(a) || std::isnan(b) || std::isnan(c)) return extreme<false>(extreme<false>(a, b), c);
    return extreme<true>(extreme<false>(a, b), extreme<false>(extreme<true>(a, b), c));
}

double fract(double a) {
    const double part = a - std::floor(a);
    return part >= 1.0 ? 0x1.ffcp-1 : part;
}

const MicroOp* v_ldexp_f16(Wave& w, const MicroOp* op) {
    const HalfMode mode = half_mode(w);
    Row b0, b1, out;
    const uint32_t *a = source_row(w, op, 0, b0), *b = source_row(w, op, 1, b1);
    for (unsigned l = 0; l < LANES; ++l) out.d[l] = output(mode, std::ldexp(input(mode, a[l]), static_cast<int16_t>(b[l])));
    commit(w, op, out.d);
    return advance(op);
}

#define H1(NAME, ...) {NAME, map_f16<1, ([](double a) -> double { return __VA_ARGS__; })>}
#define H2(NAME, ...) {NAME, map_f16<2, ([](double a, double b) -> double { return __VA_ARGS__; })>}
#define H3(NAME, ...) {NAME, map_f16<3, ([](double a, double b, double c) -> double { return __VA_ARGS__; })>}

constexpr Entry entries[] = {
    H2("v_add_f16", a + b),
    H2("v_sub_f16", a - b),
    H2("v_subrev_f16", b - a),
    H2("v_mul_f16", a * b),
    H2("v_min_f16", extreme<false>(a, b)),
    H2("v_max_f16", extreme<true>(a, b)),
    H3("v_min3_f16", extreme<false>(extreme<false>(a, b), c)),
    H3("v_max3_f16", extreme<true>(extreme<true>(a, b), c)),
    H3("v_med3_f16", median(a, b, c)),
    H3("v_fma_f16", a * b + c),
    H3("v_fmac_f16", a * b + c),
    H1("v_exp_f16", std::exp2(a)),
    H1("v_log_f16", std::log2(a)),
    H1("v_rcp_f16", 1.0 / a),
    H1("v_sqrt_f16", std::sqrt(a)),
    H1("v_rsq_f16", 1.0 / std::sqrt(a)),
    H1("v_trunc_f16", std::trunc(a)),
    H1("v_ceil_f16", std::ceil(a)),
    H1("v_floor_f16", std::floor(a)),
    H1("v_rndne_f16", std::nearbyint(a)),
    H1("v_fract_f16", fract(a)),
    {"v_ldexp_f16", v_ldexp_f16},
};

}  // namespace

std::span<const Entry> half_entries() { return entries; }

}  // namespace emu

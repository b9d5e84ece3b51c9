// Packed operations on two halves of a register or on two registers: VOP3P without MFMA (CDNA3 ISA
// document, section 12.12).
#include "isa/float_formats.h"
#include "isa/map.h"
#include "isa/registry.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace emu {
namespace {
using u32 = uint32_t;

// Source::select: bit 0 chooses what the low result reads, bit 1 what the high one reads. Modifiers
// by result half.
bool high_for(const Source& source, unsigned half) { return source.select >> half & 1; }
uint32_t sign_for(const Source& source, unsigned half, uint32_t sign)
{
    return source.mods & (half ? NEGATE_HIGH : NEGATE) ? sign : 0;
}

// One f32 half of a packed-f32 source: its row, negated if asked for.
const uint32_t* packed_f32_row(const Wave& w, const MicroOp* op, unsigned i, unsigned half, Row& buffer)
{
    const Source& source = op->src[i];
    const bool high      = high_for(source, half);
    const uint32_t* row;
    if(source.code < SCALAR)
    {
        row = w.v[source.code + high];
    }
    else
    {
        // A scalar pair, or one constant for both halves.
        const unsigned code = source.code - SCALAR;
        const bool constant = source.code == LITERAL || (code >= 128 && code != SCC);
        broadcast(constant ? scalar_value(w, op, source.code) : w.s[code + high], buffer);
        row = buffer.d;
    }
    if(const uint32_t sign = sign_for(source, half, 0x80000000))
    {
        for(unsigned l = 0; l < LANES; ++l)
            buffer.d[l] = row[l] ^ sign;
        row = buffer.d;
    }
    return row;
}

template <unsigned N, auto F>
const MicroOp* packed_f32(Wave& w, const MicroOp* op)
{
    Row out[2], buffers[N];
    for(unsigned half = 0; half < 2; ++half)
    {
        uint32_t* d = out[half].d;
        [&]<unsigned... I>(std::integer_sequence<unsigned, I...>) {
            const uint32_t* const rows[] = {packed_f32_row(w, op, I, half, buffers[I])...};
            for(unsigned l = 0; l < LANES; ++l)
                d[l] = as_bits(F(as_float(rows[I][l])...));
        }(std::make_integer_sequence<unsigned, N>{});
        if(output_modified(op))
            modify_f32(w, op, d);
    }
    commit_wide(w, op, out[0].d, out[1].d);
    return advance(op);
}

// v_pk_mov_b32: op_sel[0] chooses the register of S0 for the low result, op_sel[1] that of S1 for
// the high one.
const MicroOp* v_pk_mov_b32(Wave& w, const MicroOp* op)
{
    Row b0, b1, low, high;
    const uint32_t* a = packed_f32_row(w, op, 0, 0, b0);
    Source second     = op->src[1];
    const bool upper  = second.select & 1;
    const uint32_t* b;
    if(second.code < SCALAR)
    {
        b = w.v[second.code + upper];
    }
    else
    {
        broadcast(second.code - SCALAR >= 128 ? scalar_value(w, op, second.code) : w.s[second.code - SCALAR + upper],
                  b1);
        b = b1.d;
    }
    for(unsigned l = 0; l < LANES; ++l)
    {
        low.d[l]  = a[l];
        high.d[l] = b[l];
    }
    commit_wide(w, op, low.d, high.d);
    return advance(op);
}

uint32_t half_of(uint32_t value, bool high) { return high ? value >> 16 : value & 0xffff; }

// Packed 16-bit: F on each pair of halves, N sources. Sign: the bit that a modifier flips, 0 for
// integers.
template <unsigned N, uint32_t Sign, auto F>
const MicroOp* packed_half(Wave& w, const MicroOp* op)
{
    // In the rounding of f16: it gives a zero sum its sign.
    const WideMode mode(w);
    Row b0, b1, b2, out;
    // Only v_pk_fmac_f16 has a form with DPP, and none has modifiers before the selection of
    // halves.
    const bool permuted          = op->src[0].mods & PERMUTED;
    const uint32_t* const a      = permuted ? source_row(w, op, 0, b0) : plain_row(w, op, op->src[0].code, b0);
    const uint32_t* const b      = plain_row(w, op, op->src[1].code, b1);
    const uint32_t* const rows[] = {a, b, N == 3 ? plain_row(w, op, op->src[2].code, b2) : b};
    [&]<unsigned... I>(std::integer_sequence<unsigned, I...>) {
        for(unsigned l = 0; l < LANES; ++l)
        {
            uint32_t result = 0;
            for(unsigned half = 0; half < 2; ++half)
                result |=
                    (F(w, op, (half_of(rows[I][l], high_for(op->src[I], half)) ^ sign_for(op->src[I], half, Sign))...) &
                     0xffff)
                    << 16 * half;
            out.d[l] = result;
        }
    }(std::make_integer_sequence<unsigned, N>{});
    commit(w, op, out.d);
    return advance(op);
}

// The f16 result of the bits of an f32.
uint32_t rounded_half(const Wave& w, uint32_t bits)
{
    const uint32_t half = f32_to_f16(bits, wide_round(w), saturates(w));
    return mode::RESULTS_WIDE.of(w.mode) ? half : flush_f16(half);
}

// An f16 result of an exact or once-rounded f64.
uint32_t to_half(const Wave& w, const MicroOp* op, double value)
{
    if(op->flags & CLAMP)
    {
        if(std::isnan(value))
            value = dx10_clamp(w) ? 0.0 : value;
        else
            value = value > 1.0 ? 1.0 : std::signbit(value) ? 0.0 : value; // -0 too becomes +0
    }
    return rounded_half(w, f64_to_odd_f32(value));
}

double h(uint32_t bits) { return f16_to_f32(bits); }
uint32_t input_half(const Wave& w, uint32_t bits) { return !mode::INPUTS_WIDE.of(w.mode) ? flush_f16(bits) : bits; }
int32_t i16(uint32_t a) { return static_cast<int16_t>(a); }

// F on f16 as f64, and on integers.
template <unsigned N, auto F>
const MicroOp* packed_f16(Wave& w, const MicroOp* op)
{
    constexpr auto rounded = [](const Wave& w_, const MicroOp* op_, auto... halves) {
        return to_half(w_, op_, F(h(input_half(w_, halves))...));
    };
    return packed_half<N, 0x8000, rounded>(w, op);
}
template <unsigned N, auto F>
const MicroOp* packed_integer(Wave& w, const MicroOp* op)
{
    constexpr auto whole = [](const Wave&, const MicroOp*, auto... halves) {
        return static_cast<uint32_t>(F(halves...));
    };
    return packed_half<N, 0, whole>(w, op);
}

template <bool Max>
uint32_t packed_extreme(const Wave& w, const MicroOp* op, uint32_t a, uint32_t b)
{
    const uint32_t chosen = extreme_f16<Max>(ieee_mode(w), input_half(w, a), input_half(w, b));
    // A NaN keeps its bits: to_half would quieten it.
    if(is_nan_f16(chosen) && !(op->flags & CLAMP))
        return chosen;
    return to_half(w, op, h(chosen));
}

// minimum and maximum of IEEE 754-2019: a NaN wins, as a quiet one.
template <bool Max>
uint32_t packed_extreme3(const Wave& w, const MicroOp* op, uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t chosen = input_half(w, a);
    for(const uint32_t next : {input_half(w, b), input_half(w, c)})
    {
        if(is_nan_f16(chosen) || is_nan_f16(next))
            chosen = (is_nan_f16(chosen) ? chosen : next) | 0x200;
        else
            chosen = extreme_f16<Max>(false, chosen, next);
    }
    return is_nan_f16(chosen) && !(op->flags & CLAMP) ? chosen : to_half(w, op, h(chosen));
}

// v_fma_mix: sources are f32, or a half taken as f16 where op_sel_hi (select bit 1) is set. neg is
// NEGATE, abs NEGATE_HIGH.
double mixed(const Wave& w, const Source& source, uint32_t value)
{
    double x =
        source.select & 2 ? h(input_half(w, half_of(value, source.select & 1))) : static_cast<double>(as_float(value));
    if(source.mods & NEGATE_HIGH)
        x = std::fabs(x);
    return source.mods & NEGATE ? -x : x;
}

template <bool Half>
const MicroOp* fma_mix(Wave& w, const MicroOp* op)
{
    Row b0, b1, b2, out;
    const uint32_t* a = plain_row(w, op, op->src[0].code, b0);
    const uint32_t* b = plain_row(w, op, op->src[1].code, b1);
    const uint32_t* c = plain_row(w, op, op->src[2].code, b2);
    for(unsigned l = 0; l < LANES; ++l)
    {
        const auto x = static_cast<float>(mixed(w, op->src[0], a[l])),
                   y = static_cast<float>(mixed(w, op->src[1], b[l])),
                   z = static_cast<float>(mixed(w, op->src[2], c[l]));
        float value  = std::fma(x, y, z);
        if(Half && saturates(w) && std::isinf(value) && std::isfinite(x) && std::isfinite(y) && std::isfinite(z))
            value = std::copysign(std::numeric_limits<float>::max(), value); // too large for f32, too
        out.d[l] = as_bits(value);
    }
    if(op->flags & CLAMP)
        modify_f32(w, op, out.d);
    if(Half)
        for(unsigned l = 0; l < LANES; ++l)
            out.d[l] = rounded_half(w, out.d[l]);
    commit(w, op, out.d); // LOW_HALF or HIGH_HALF for mixlo and mixhi
    return advance(op);
}

float dot_half(uint32_t a, uint32_t b, float c, float (*value)(uint32_t))
{
    float sum = c;
    sum += value(a & 0xffff) * value(b & 0xffff);
    sum += value(a >> 16) * value(b >> 16);
    return sum;
}

// A source of v_dot2_f32_*: two halves, or an f32 as the third, with their signs.
const uint32_t* dot_row(const Wave& w, const MicroOp* op, unsigned i, Row& buffer)
{
    const Source& source = op->src[i];
    if(source.mods & PERMUTED)
        return source_row(w, op, i, buffer);
    const uint32_t* row = plain_row(w, op, source.code, buffer);
    uint32_t signs      = sign_for(source, 0, i == 2 ? 0x80000000 : 0x8000);
    if(i != 2)
        signs |= sign_for(source, 1, 0x80000000);
    if(signs == 0) [[likely]]
        return row;
    for(unsigned l = 0; l < LANES; ++l)
        buffer.d[l] = row[l] ^ signs;
    return buffer.d;
}

const uint32_t* flushed_halves(const uint32_t* row, Row& buffer)
{
    for(unsigned l = 0; l < LANES; ++l)
        buffer.d[l] = flush_f16(row[l] & 0xffff) | flush_f16(row[l] >> 16) << 16;
    return buffer.d;
}

// v_dot2_f32_*: products exact, two additions in order. gfx90a flushes them whatever MODE has.
template <float (*Value)(uint32_t)>
const MicroOp* dot2(Wave& w, const MicroOp* op)
{
    Row b0, b1, b2, out;
    const uint32_t* a = dot_row(w, op, 0, b0);
    const uint32_t* b = dot_row(w, op, 1, b1);
    const uint32_t* c = dot_row(w, op, 2, b2);
    const bool flush  = is_gfx90a(w);
    const HostMode mode(w.mxcsr, flush ? w.mxcsr | MXCSR_INPUTS_ARE_ZERO | MXCSR_FLUSH : w.mxcsr);
    if(flush)
        for(auto [row, buffer] : {std::pair(&a, &b0), std::pair(&b, &b1)})
            *row = flushed_halves(*row, *buffer);
    for(unsigned l = 0; l < LANES; ++l)
        out.d[l] = as_bits(dot_half(a[l], b[l], as_float(c[l]), Value));
    if(op->flags & CLAMP)
        modify_f32(w, op, out.d);
    commit(w, op, out.d);
    return advance(op);
}

#define PF2(NAME, ...) {NAME, packed_f32<2, ([](float a, float b) -> float { return __VA_ARGS__; })>}
#define PF3(NAME, ...) {NAME, packed_f32<3, ([](float a, float b, float c) -> float { return __VA_ARGS__; })>}
#define PH2(NAME, ...) {NAME, packed_f16<2, ([](double a, double b) -> double { return __VA_ARGS__; })>}
#define PH3(NAME, ...) {NAME, packed_f16<3, ([](double a, double b, double c) -> double { return __VA_ARGS__; })>}
#define PI2(NAME, ...) {NAME, packed_integer<2, ([](u32 a, u32 b) { return __VA_ARGS__; })>}
#define PI3(NAME, ...) {NAME, packed_integer<3, ([](u32 a, u32 b, u32 c) { return __VA_ARGS__; })>}

constexpr Entry ENTRIES[] = {
    PF2("v_pk_add_f32", a + b),
    PF2("v_pk_mul_f32", (a * b)),
    PF3("v_pk_fma_f32", std::fma(a, b, c)),
    {"v_pk_mov_b32", v_pk_mov_b32},
    PH2("v_pk_add_f16", a + b),
    PH2("v_pk_mul_f16", (a * b)),
    {"v_pk_min_f16", packed_half<2, 0x8000, packed_extreme<false>>},
    {"v_pk_max_f16", packed_half<2, 0x8000, packed_extreme<true>>},
    PH3("v_pk_fma_f16", (a * b) + c),
    PH3("v_pk_fmac_f16", (a * b) + c),
    {"v_pk_minimum3_f16", packed_half<3, 0x8000, packed_extreme3<false>>},
    {"v_pk_maximum3_f16", packed_half<3, 0x8000, packed_extreme3<true>>},
    PI2("v_pk_add_u16", a + b),
    PI2("v_pk_sub_u16", a - b),
    PI2("v_pk_add_i16", a + b),
    PI2("v_pk_sub_i16", a - b),
    PI2("v_pk_mul_lo_u16", (a * b)),
    PI2("v_pk_min_u16", std::min(a, b)),
    PI2("v_pk_max_u16", std::max(a, b)),
    PI2("v_pk_min_i16", std::min(i16(a), i16(b))),
    PI2("v_pk_max_i16", std::max(i16(a), i16(b))),
    PI2("v_pk_lshlrev_b16", b << (a & 15)),
    PI2("v_pk_lshrrev_b16", b >> (a & 15)),
    PI2("v_pk_ashrrev_i16", i16(b) >> (a & 15)),
    PI3("v_pk_mad_u16", (a * b) + c),
    PI3("v_pk_mad_i16", (a * b) + c),
    {"v_mad_mix_f32", fma_mix<false>},
    {"v_mad_mixlo_f16", fma_mix<true>},
    {"v_mad_mixhi_f16", fma_mix<true>},
    {"v_dot2_f32_f16", dot2<f16_to_f32>},
    {"v_dot2_f32_bf16", dot2<bf16_to_f32>},
    {"v_dot2c_f32_f16", dot2<f16_to_f32>},
    {"v_dot2c_f32_bf16", dot2<bf16_to_f32>},
};
} // namespace

std::span<const Entry> packed_entries() { return ENTRIES; }
} // namespace emu

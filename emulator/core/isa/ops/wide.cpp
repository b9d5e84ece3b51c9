// 64-bit vector arithmetic: integers and f64.
#include "isa/division.h"
#include "isa/map.h"
#include "isa/registry.h"

#include <cmath>

namespace emu {
namespace {
using u64 = uint64_t;
using i64 = int64_t;

template <typename T>
T load(const WideSource& source, unsigned l)
{
    return std::bit_cast<T>(source[l]);
}

struct WideRow
{
    Row low, high;
    void put(unsigned l, u64 value)
    {
        low.d[l]  = static_cast<uint32_t>(value);
        high.d[l] = static_cast<uint32_t>(value >> 32);
    }
    void put(unsigned l, double value) { put(l, std::bit_cast<u64>(value)); }
    void put(unsigned l, i64 value) { put(l, static_cast<u64>(value)); }
};

// The output modifiers, then D.
const MicroOp* commit_modified(Wave& w, const MicroOp* op, WideRow& out)
{
    if(output_modified(op))
        modify_f64(w, op, out.low.d, out.high.d);
    commit_wide(w, op, out.low.d, out.high.d);
    return advance(op);
}

// D = F(sources) on f64 with the output modifiers.
template <unsigned N, auto F>
const MicroOp* map_f64(Wave& w, const MicroOp* op)
{
    const WideMode mode(w);
    WideRow buffers[N], out;
    [&]<unsigned... I>(std::integer_sequence<unsigned, I...>) {
        const WideSource sources[] = {wide_source(w, op, I, buffers[I].low, buffers[I].high)...};
        for(unsigned l = 0; l < LANES; ++l)
            out.put(l, F(load<double>(sources[I], l)...));
    }(std::make_integer_sequence<unsigned, N>{});
    return commit_modified(w, op, out);
}

const MicroOp* v_mov_b64(Wave& w, const MicroOp* op)
{
    WideRow b0;
    const WideSource a = wide_source(w, op, 0, b0.low, b0.high);
    // The destination may overlap the source by one register.
    Row low, high;
    for(unsigned l = 0; l < LANES; ++l)
        low.d[l] = a.low[l];
    for(unsigned l = 0; l < LANES; ++l)
        high.d[l] = a.high[l];
    commit_wide(w, op, low.d, high.d);
    return advance(op);
}

// D = F(S1, S0 & 63): the shift amount comes first
template <auto F>
const MicroOp* shift(Wave& w, const MicroOp* op)
{
    WideRow b1, out;
    Row b0;
    const uint32_t* amount = source_row(w, op, 0, b0);
    const WideSource b     = wide_source(w, op, 1, b1.low, b1.high);
    for(unsigned l = 0; l < LANES; ++l)
        out.put(l, F(b[l], amount[l] & 63));
    commit_wide(w, op, out.low.d, out.high.d);
    return advance(op);
}

const MicroOp* v_lshl_add_u64(Wave& w, const MicroOp* op)
{
    WideRow b0, b2, out;
    Row b1;
    const WideSource a = wide_source(w, op, 0, b0.low, b0.high), c = wide_source(w, op, 2, b2.low, b2.high);
    const uint32_t* amount = source_row(w, op, 1, b1);
    for(unsigned l = 0; l < LANES; ++l)
        out.put(l, (a[l] << (amount[l] & 7)) + c[l]);
    commit_wide(w, op, out.low.d, out.high.d);
    return advance(op);
}

// { carry-out, D } = S0 * S1 + S2
template <bool Signed>
const MicroOp* mad_wide(Wave& w, const MicroOp* op)
{
    WideRow b2, out;
    Row b0, b1;
    const uint32_t *a = source_row(w, op, 0, b0), *b = source_row(w, op, 1, b1);
    const WideSource c = wide_source(w, op, 2, b2.low, b2.high);
    u64 carries        = 0;
    for(unsigned l = 0; l < LANES; ++l)
    {
        const u64 product =
            Signed ? static_cast<u64>(i64{static_cast<int32_t>(a[l])} * static_cast<int32_t>(b[l])) : u64{a[l]} * b[l];
        const u64 addend = c[l], sum = product + addend;
        // A 65-bit sum: for signed operands both are sign-extended.
        const bool carry = Signed ? ((product >> 63) + (addend >> 63) + (sum < product)) & 1 : sum < product;
        out.put(l, sum);
        carries |= u64{carry} << l;
    }
    const u64 lanes = w.exec();
    commit_wide(w, op, out.low.d, out.high.d);
    w.set_pair(op->scalar_dst - SCALAR, carries & lanes);
    return advance(op);
}

bool is_signalling(double x) { return x != x && !(std::bit_cast<u64>(x) >> 51 & 1); }

u64 flush_f64(u64 bits) { return bits >> 52 & 0x7ff ? bits : bits & u64{1} << 63; }

template <bool Max>
double extreme(bool ieee, double a, double b)
{
    if(ieee && (is_signalling(a) || is_signalling(b)))
        return std::bit_cast<double>(std::bit_cast<u64>(is_signalling(a) ? a : b) | u64{1} << 51);
    if(std::isnan(a))
        return b;
    if(std::isnan(b))
        return a;
    if(a == b)
        return std::signbit(a) == Max ? b : a;
    return (Max ? a > b : a < b) ? a : b;
}

// The result is one of the sources, so the host's own flushing does not reach it.
template <bool Max>
const MicroOp* extreme_f64(Wave& w, const MicroOp* op)
{
    const WideMode mode(w);
    const bool ieee = ieee_mode(w), flush_inputs = !mode::INPUTS_WIDE.of(w.mode),
               flush_results = !mode::RESULTS_WIDE.of(w.mode);
    WideRow b0, b1, out;
    const WideSource a = wide_source(w, op, 0, b0.low, b0.high), b = wide_source(w, op, 1, b1.low, b1.high);
    for(unsigned l = 0; l < LANES; ++l)
    {
        const u64 x = flush_inputs ? flush_f64(a[l]) : a[l], y = flush_inputs ? flush_f64(b[l]) : b[l];
        const u64 chosen = std::bit_cast<u64>(extreme<Max>(ieee, std::bit_cast<double>(x), std::bit_cast<double>(y)));
        out.put(l, flush_results ? flush_f64(chosen) : chosen);
    }
    return commit_modified(w, op, out);
}

const MicroOp* v_ldexp_f64(Wave& w, const MicroOp* op)
{
    const WideMode mode(w);
    WideRow b0, out;
    Row b1;
    const WideSource a = wide_source(w, op, 0, b0.low, b0.high);
    const uint32_t* b  = source_row(w, op, 1, b1);
    for(unsigned l = 0; l < LANES; ++l)
    {
        const int e = static_cast<int32_t>(b[l]);
        out.put(l, std::ldexp(load<double>(a, l), e > 5000 ? 5000 : e < -5000 ? -5000 : e));
    }
    return commit_modified(w, op, out);
}

const MicroOp* v_div_scale_f64(Wave& w, const MicroOp* op)
{
    const WideMode mode(w);
    WideRow b0, b1, b2, out;
    const WideSource a = wide_source(w, op, 0, b0.low, b0.high), b = wide_source(w, op, 1, b1.low, b1.high),
                     c = wide_source(w, op, 2, b2.low, b2.high);
    u64 scaled         = 0;
    for(unsigned l = 0; l < LANES; ++l)
    {
        const double s0 = load<double>(a, l), denominator = load<double>(b, l), numerator = load<double>(c, l);
        bool flag = false;
        out.put(l, div_scale(s0, denominator, numerator, flag));
        scaled |= u64{flag} << l;
    }
    const u64 lanes = w.exec();
    commit_wide(w, op, out.low.d, out.high.d);
    w.set_pair(op->scalar_dst - SCALAR, scaled & lanes);
    return advance(op);
}

// VCC has the lanes that v_div_scale_f64 scaled. Subnormal factors and addends count in every MODE.
const MicroOp* v_div_fmas_f64(Wave& w, const MicroOp* op)
{
    const WideMode mode(w);
    WideRow b0, b1, b2, out;
    const WideSource a = wide_source(w, op, 0, b0.low, b0.high), b = wide_source(w, op, 1, b1.low, b1.high),
                     c = wide_source(w, op, 2, b2.low, b2.high);
    const u64 scaled   = w.pair(VCC);
    for(unsigned l = 0; l < LANES; ++l)
        out.put(l, div_fmas(load<double>(a, l), load<double>(b, l), load<double>(c, l), scaled >> l & 1, wide_round(w),
                            mode::INPUTS_WIDE.of(w.mode)));
    return commit_modified(w, op, out);
}

// Below 1, as of f32 and f16; of an infinity a NaN.
double fract(double x)
{
    const double part = x - std::floor(x);
    return part >= 1.0 ? 0x1.fffffffffffffp-1 : part == 0.0 ? 0.0 : part;
}

// The host takes a subnormal for a zero where MODE has f64 flushed.
double frexp_mantissa(double x)
{
    const u64 bits = std::bit_cast<u64>(x);
    return std::bit_cast<double>(x == 0.0 ? bits & Frexp<u64>::SIGN : Frexp(bits).mantissa);
}

// 2 / pi below the binary point: its first 1201 bits, from the highest on, and zeros.
constexpr unsigned TWO_OVER_PI_BITS = 1201;
constexpr uint32_t TWO_OVER_PI[] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab,
                                    0xdebbc561, 0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e,
                                    0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b,
                                    0xbdf9283b, 0x1ff897ff, 0xde05980f, 0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7,
                                    0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b, 0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1,
                                    0x1f8d5d08, 0x56033046, 0xfc7b0000};
static_assert(TWO_OVER_PI_BITS <= 8 * sizeof TWO_OVER_PI);

// 53 bits of 2 / pi from bit `shift` after the point on.
u64 two_over_pi(unsigned shift)
{
    u64 bits = 0;
    for(unsigned i = shift; i < shift + 53; ++i)
    {
        const bool inside = i < TWO_OVER_PI_BITS;
        bits              = bits << 1 | (inside ? TWO_OVER_PI[i / 32] >> (31 - i % 32) & 1 : 0);
    }
    return bits;
}

// A segment of 2 / pi for the reduction of a large angle: S1 counts segments of 53 bits, the
// exponent of S0 gives the bits that its whole turns take.
const MicroOp* v_trig_preop_f64(Wave& w, const MicroOp* op)
{
    const WideMode mode(w);
    WideRow b0, out;
    Row b1;
    const WideSource a      = wide_source(w, op, 0, b0.low, b0.high);
    const uint32_t* segment = source_row(w, op, 1, b1);
    for(unsigned l = 0; l < LANES; ++l)
    {
        const auto exponent = static_cast<int>(a.high[l] >> 20 & 0x7ff);
        const int shift     = static_cast<int>(segment[l] & 31) * 53 + std::max(exponent - 1077, 0);
        const int scale     = -53 - shift + (exponent >= 1968 ? 128 : 0);
        out.put(l, std::ldexp(static_cast<double>(two_over_pi(static_cast<unsigned>(shift))), scale));
    }
    return commit_modified(w, op, out);
}

#define D1(NAME, ...) {NAME, map_f64<1, ([](double a) -> double { return __VA_ARGS__; })>}
#define D2(NAME, ...) {NAME, map_f64<2, ([](double a, double b) -> double { return __VA_ARGS__; })>}
#define D3(NAME, ...) {NAME, map_f64<3, ([](double a, double b, double c) -> double { return __VA_ARGS__; })>}

constexpr Entry ENTRIES[] = {
    {"v_mov_b64", v_mov_b64},
    {"v_lshlrev_b64", shift<([](u64 a, uint32_t by) { return a << by; })>},
    {"v_lshrrev_b64", shift<([](u64 a, uint32_t by) { return a >> by; })>},
    {"v_ashrrev_i64", shift<([](u64 a, uint32_t by) { return static_cast<i64>(a) >> by; })>},
    {"v_lshl_add_u64", v_lshl_add_u64},
    {"v_mad_u64_u32", mad_wide<false>},
    {"v_mad_i64_i32", mad_wide<true>},
    D2("v_add_f64", a + b),
    D2("v_mul_f64", (a * b)),
    {"v_min_f64", extreme_f64<false>},
    {"v_max_f64", extreme_f64<true>},
    D3("v_fma_f64", std::fma(a, b, c)),
    D3("v_fmac_f64", std::fma(a, b, c)),
    D1("v_rcp_f64", 1.0 / a),
    D1("v_sqrt_f64", std::sqrt(a)),
    D1("v_rsq_f64", 1.0 / std::sqrt(a)),
    D1("v_trunc_f64", std::trunc(a)),
    D1("v_ceil_f64", std::ceil(a)),
    D1("v_floor_f64", std::floor(a)),
    D1("v_rndne_f64", __builtin_roundeven(a)),
    D1("v_fract_f64", fract(a)),
    D1("v_frexp_mant_f64", frexp_mantissa(a)),
    {"v_ldexp_f64", v_ldexp_f64},
    {"v_trig_preop_f64", v_trig_preop_f64},
    {"v_div_scale_f64", v_div_scale_f64},
    {"v_div_fmas_f64", v_div_fmas_f64},
    D3("v_div_fixup_f64", div_fixup(a, b, c)),
};
} // namespace

std::span<const Entry> wide_entries() { return ENTRIES; }
} // namespace emu

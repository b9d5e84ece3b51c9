// Conversions between formats (CDNA3 and CDNA4 ISA documents, sections 12.7 to 12.11).
#include "isa/float_formats.h"
#include "isa/map.h"
#include "isa/registry.h"

#include <cmath>

namespace emu {
namespace {
// Float to integer truncates, saturates, and makes a NaN zero.
uint32_t to_u32(float x)
{
    const float bounded = x > 0.0f ? x : 0.0f;
    return bounded >= 4294967296.0f ? 0xffffffffu : static_cast<uint32_t>(static_cast<int64_t>(bounded));
}

uint32_t to_i32(float x)
{
    if(x != x)
        return 0;
    if(x >= 2147483648.0f)
        return 0x7fffffff;
    if(x < -2147483648.0f)
        return 0x80000000;
    return static_cast<uint32_t>(static_cast<int32_t>(x));
}

uint32_t u32_from(uint32_t a) { return to_u32(as_float(a)); }
uint32_t i32_from(uint32_t a) { return to_i32(as_float(a)); }

uint32_t norm16(uint32_t a, bool is_signed)
{
    const float x = as_float(a);
    if(x != x)
        return 0;
    const double low = is_signed ? -1.0 : 0.0, bounded = std::min(1.0, std::max(low, static_cast<double>(x)));
    return static_cast<uint32_t>(static_cast<int32_t>(__builtin_roundeven(bounded * (is_signed ? 32767.0 : 65535.0)))) &
           0xffff;
}

// f32 to f16 with a rounding mode of its own choice: G(w).
template <auto G>
const MicroOp* pack_f16(Wave& w, const MicroOp* op)
{
    Row b0, b1, out;
    const uint32_t *a = source_row(w, op, 0, b0), *b = source_row(w, op, 1, b1);
    const Round round   = G(w);
    const bool saturate = saturates(w);
#ifdef __AVX512F__
    if((round == Round::Nearest && !saturate) || round == Round::Zero)
    {
        alignas(64) uint16_t low[LANES], high[LANES];
        for(unsigned i = 0; i < LANES; i += 16)
        {
            const __m512 x = _mm512_loadu_ps(a + i), y = _mm512_loadu_ps(b + i);
            const bool zero = round == Round::Zero;
            _mm256_store_si256(reinterpret_cast<__m256i*>(low + i),
                               zero ? _mm512_cvtps_ph(x, 3) : _mm512_cvtps_ph(x, 0));
            _mm256_store_si256(reinterpret_cast<__m256i*>(high + i),
                               zero ? _mm512_cvtps_ph(y, 3) : _mm512_cvtps_ph(y, 0));
        }
        for(unsigned l = 0; l < LANES; ++l)
            out.d[l] = low[l] | uint32_t{high[l]} << 16;
        commit(w, op, out.d);
        return advance(op);
    }
#endif
    for(unsigned l = 0; l < LANES; ++l)
        out.d[l] = f32_to_f16(a[l], round, saturate) | f32_to_f16(b[l], round, saturate) << 16;
    commit(w, op, out.d);
    return advance(op);
}

Round nearest(const Wave&) { return Round::Nearest; }
Round toward_zero(const Wave&) { return Round::Zero; }

const MicroOp* v_cvt_f16_f32(Wave& w, const MicroOp* op)
{
    Row b0, out;
    const uint32_t* a = source_row(w, op, 0, b0);
    const auto round  = wide_round(w);
    const bool flush = !mode::RESULTS_WIDE.of(w.mode), saturate = saturates(w);
    if(!mode::INPUTS_F32.of(w.mode))
        a = flushed_row(a, b0); // MODE flushes f32 inputs
    Row modified;
    if(output_modified(op))
    {
        for(unsigned l = 0; l < LANES; ++l)
            modified.d[l] = a[l];
        modify_f32(w, op, modified.d);
        a = modified.d;
    }
    for(unsigned l = 0; l < LANES; ++l)
    {
        const uint32_t half = f32_to_f16(a[l], round, saturate);
        out.d[l]            = flush ? flush_f16(half) : half;
    }
    commit(w, op, out.d);
    return advance(op);
}

const MicroOp* v_cvt_f32_f16(Wave& w, const MicroOp* op)
{
    Row out;
    const bool flush = !mode::INPUTS_WIDE.of(w.mode);
    map_lanes<1>(w, op, out.d, [=](uint32_t a) {
        const uint32_t half  = flush && (a & 0x7c00) == 0 ? a & 0x8000 : a & 0xffff;
        const uint32_t value = f16_to_f32_bits(half);
        return (value & 0x7fffffff) > 0x7f800000 ? value | 0x400000 : value;
    });
    return commit_f32(w, op, out);
}

uint32_t half_to_u16(uint32_t a)
{
    const float x = f16_to_f32(a & 0xffff);
    return x > 0.0f ? (x >= 65535.0f ? 0xffff : static_cast<uint32_t>(x)) : 0;
}

uint32_t half_to_i16(uint32_t a)
{
    const float x = f16_to_f32(a & 0xffff);
    if(x != x)
        return 0;
    const float bounded = x > 32767.0f ? 32767.0f : x < -32768.0f ? -32768.0f : x;
    return static_cast<uint32_t>(static_cast<int32_t>(bounded)) & 0xffff;
}

template <auto F>
const MicroOp* to_half(Wave& w, const MicroOp* op)
{
    Row out;
    map_lanes<1>(w, op, out.d, [](uint32_t a) { return as_bits(F(a)); });
    const auto round = wide_round(w);
    if(output_modified(op))
        modify_f32(w, op, out.d);
    for(unsigned l = 0; l < LANES; ++l)
        out.d[l] = f32_to_f16(out.d[l], round, saturates(w));
    commit(w, op, out.d);
    return advance(op);
}

// The host takes a subnormal for a zero where MODE has f64 flushed.
uint32_t frexp_exponent(double x)
{
    return x == 0.0 ? 0 : static_cast<uint32_t>(Frexp(std::bit_cast<uint64_t>(x)).exponent);
}

// f32 from an f64 and back, integers from and to f64.
template <auto F>
const MicroOp* from_wide(Wave& w, const MicroOp* op)
{
    Row low, high, out;
    const WideSource a = wide_source(w, op, 0, low, high);
    for(unsigned l = 0; l < LANES; ++l)
        out.d[l] = F(std::bit_cast<double>(a[l]));
    return commit_f32(w, op, out);
}

// The source is flushed as MODE has it for f64.
const MicroOp* v_frexp_exp_i32_f64(Wave& w, const MicroOp* op)
{
    const WideMode mode(w);
    return from_wide<frexp_exponent>(w, op);
}

template <typename F>
const MicroOp* widen(Wave& w, const MicroOp* op, F f)
{
    Row b0, low, high;
    const uint32_t* a = source_row(w, op, 0, b0);
    for(unsigned l = 0; l < LANES; ++l)
    {
        const uint64_t bits = std::bit_cast<uint64_t>(static_cast<double>(f(a[l])));
        low.d[l]            = static_cast<uint32_t>(bits);
        high.d[l]           = static_cast<uint32_t>(bits >> 32);
    }
    if(output_modified(op))
        modify_f64(w, op, low.d, high.d);
    commit_wide(w, op, low.d, high.d);
    return advance(op);
}

template <auto F>
const MicroOp* to_wide(Wave& w, const MicroOp* op)
{
    const WideMode mode(w);
    return widen(w, op, F);
}

// In the host mode of f32, whose denormal control the source takes; the conversion is exact.
const MicroOp* v_cvt_f64_f32(Wave& w, const MicroOp* op) { return widen(w, op, as_float); }

uint32_t wide_to_i32(double x)
{
    if(x != x)
        return 0;
    if(x >= 2147483647.0)
        return 0x7fffffff;
    if(x <= -2147483648.0)
        return 0x80000000;
    return static_cast<uint32_t>(static_cast<int32_t>(x));
}

uint32_t wide_to_u32(double x)
{
    if(!(x > 0.0))
        return 0;
    return x >= 4294967295.0 ? 0xffffffff : static_cast<uint32_t>(x);
}

// ---- 8-bit formats. MODE.FP16_OVFL makes too large values the largest one.
bool fnuz(const Wave& w) { return w.group->arch != 950; }

template <bool Bf8>
uint32_t decode(bool fnuz_format, uint32_t byte)
{
    if(fnuz_format)
        return Bf8 ? Bf8Fnuz::to_f32_bits(byte) : Fp8Fnuz::to_f32_bits(byte);
    return Bf8 ? Bf8Ocp::to_f32_bits(byte) : Fp8Ocp::to_f32_bits(byte);
}

// Of one lane, with noise if the rounding is stochastic, or of Words.
template <bool Bf8, typename Word, typename... Noise>
Word encode(const Wave& w, Word bits, Noise... noise)
{
    const bool saturate = saturates(w);
    if(fnuz(w))
        return Bf8 ? Bf8Fnuz::from_f32_bits(bits, saturate, noise...)
                   : Fp8Fnuz::from_f32_bits(bits, saturate, noise...);
    return Bf8 ? Bf8Ocp::from_f32_bits(bits, saturate, noise...) : Fp8Ocp::from_f32_bits(bits, saturate, noise...);
}

// One byte; SDWA's or op_sel's selection is src[0].select.
template <bool Bf8>
const MicroOp* decode_one(Wave& w, const MicroOp* op)
{
    Row out;
    const bool old = fnuz(w);
    map_lanes<1>(w, op, out.d, [=](uint32_t a) { return decode<Bf8>(old, a & 0xff); });
    if(output_modified(op))
        modify_f32(w, op, out.d);
    // SDWA selects the source alone here; the destination is always a whole register.
    store_row(w.v[op->dst], out.d, write_mask(w, op));
    return advance(op);
}

template <bool Bf8>
const MicroOp* decode_two(Wave& w, const MicroOp* op)
{
    Row b0, low, high;
    const uint32_t* a = source_row(w, op, 0, b0);
    const bool old    = fnuz(w);
    for(unsigned l = 0; l < LANES; ++l)
    {
        low.d[l]  = decode<Bf8>(old, a[l] & 0xff);
        high.d[l] = decode<Bf8>(old, a[l] >> 8 & 0xff);
    }
    commit_wide(w, op, low.d, high.d);
    return advance(op);
}

// Two bytes into the half of the destination that op_sel names (flags LOW_HALF or HIGH_HALF).
template <bool Bf8>
const MicroOp* encode_two(Wave& w, const MicroOp* op)
{
    Row b0, b1, out;
    const uint32_t *a = source_row(w, op, 0, b0), *b = source_row(w, op, 1, b1);
    for(unsigned l = 0; l < LANES; l += SEVERAL)
    {
        const Words low = encode<Bf8>(w, lanes_at<Words>(a + l));
        const Words two = low | encode<Bf8>(w, lanes_at<Words>(b + l)) << 8;
        std::memcpy(out.d + l, &two, sizeof two);
    }
    commit(w, op, out.d);
    return advance(op);
}

// Stochastic rounding by S1 into byte `control` of the destination.
template <bool Bf8>
const MicroOp* encode_stochastic(Wave& w, const MicroOp* op)
{
    Row b0, b1, out;
    const uint32_t *a = source_row(w, op, 0, b0), *b = source_row(w, op, 1, b1);
    const unsigned shift = 8 * (op->control & 3);
    const uint32_t* old  = w.v[op->dst];
    for(unsigned l = 0; l < LANES; ++l)
        out.d[l] = (old[l] & ~(0xffu << shift)) | encode<Bf8>(w, a[l], b[l]) << shift;
    commit(w, op, out.d);
    return advance(op);
}

#define C1(NAME, ...) {NAME, map_integer<1, ([](uint32_t a) -> uint32_t { return __VA_ARGS__; })>}
#define C2(NAME, ...) {NAME, map_integer<2, ([](uint32_t a, uint32_t b) -> uint32_t { return __VA_ARGS__; })>}
// Results in f32 take omod and clamp.
template <auto F>
const MicroOp* to_f32(Wave& w, const MicroOp* op)
{
    Row out;
    map_lanes<1>(w, op, out.d, [](uint32_t a) { return as_bits(F(a)); });
    return commit_f32(w, op, out);
}
#define CF(NAME, ...) {NAME, to_f32<([](uint32_t a) -> float { return __VA_ARGS__; })>}

constexpr Entry ENTRIES[] = {
    CF("v_cvt_f32_u32", static_cast<float>(a)),
    CF("v_cvt_f32_i32", static_cast<float>(static_cast<int32_t>(a))),
    CF("v_cvt_f32_ubyte0", static_cast<float>(a & 0xff)),
    CF("v_cvt_f32_ubyte1", static_cast<float>(a >> 8 & 0xff)),
    CF("v_cvt_f32_ubyte2", static_cast<float>(a >> 16 & 0xff)),
    CF("v_cvt_f32_ubyte3", static_cast<float>(a >> 24)),
    CF("v_cvt_f32_bf16", as_float(a << 16)),
    C1("v_cvt_u32_f32", u32_from(a)),
    C1("v_cvt_i32_f32", i32_from(a)),
    C1("v_cvt_rpi_i32_f32", to_i32(static_cast<float>(std::floor(static_cast<double>(as_float(a)) + 0.5)))),
    C1("v_cvt_flr_i32_f32", to_i32(std::floor(as_float(a)))),
    C2("v_cvt_pk_bf16_f32", f32_to_bf16(a) | f32_to_bf16(b) << 16),
    {"v_cvt_pkrtz_f16_f32", pack_f16<toward_zero>},
    {"v_cvt_pk_f16_f32", pack_f16<nearest>},
    C2("v_cvt_pknorm_i16_f32", norm16(a, true) | norm16(b, true) << 16),
    C2("v_cvt_pknorm_u16_f32", norm16(a, false) | norm16(b, false) << 16),
    C2("v_cvt_pk_u16_u32", std::min(a, 0xffffu) | std::min(b, 0xffffu) << 16),
    C2("v_cvt_pk_i16_i32",
       (static_cast<uint32_t>(std::max(-32768, std::min(32767, static_cast<int32_t>(a)))) & 0xffff) |
           static_cast<uint32_t>(std::max(-32768, std::min(32767, static_cast<int32_t>(b)))) << 16),
    {"v_cvt_f16_f32", v_cvt_f16_f32},
    {"v_cvt_f32_f16", v_cvt_f32_f16},
    {"v_cvt_f16_u16", to_half<([](uint32_t a) { return static_cast<float>(a & 0xffff); })>},
    {"v_cvt_f16_i16", to_half<([](uint32_t a) { return static_cast<float>(static_cast<int16_t>(a)); })>},
    C1("v_cvt_u16_f16", half_to_u16(a)),
    C1("v_cvt_i16_f16", half_to_i16(a)),
    {"v_cvt_f32_f64", from_wide<([](double x) { return as_bits(static_cast<float>(x)); })>},
    {"v_cvt_i32_f64", from_wide<wide_to_i32>},
    {"v_cvt_u32_f64", from_wide<wide_to_u32>},
    {"v_frexp_exp_i32_f64", v_frexp_exp_i32_f64},
    {"v_cvt_f64_f32", v_cvt_f64_f32},
    {"v_cvt_f64_u32", to_wide<([](uint32_t a) { return a; })>},
    {"v_cvt_f64_i32", to_wide<([](uint32_t a) { return static_cast<int32_t>(a); })>},
    {"v_cvt_f32_fp8", decode_one<false>},
    {"v_cvt_f32_bf8", decode_one<true>},
    {"v_cvt_pk_f32_fp8", decode_two<false>},
    {"v_cvt_pk_f32_bf8", decode_two<true>},
    {"v_cvt_pk_fp8_f32", encode_two<false>},
    {"v_cvt_pk_bf8_f32", encode_two<true>},
    {"v_cvt_sr_fp8_f32", encode_stochastic<false>},
    {"v_cvt_sr_bf8_f32", encode_stochastic<true>},
};
} // namespace

std::span<const Entry> convert_entries() { return ENTRIES; }
} // namespace emu

// Cube maps, sums of absolute differences, conversions to bytes, IEEE's minimum and maximum, and
// stochastic rounding to 16 bits (CDNA3 and CDNA4 ISA documents, sections 12.7 to 12.11).
#include "isa/access.h"
#include "isa/map.h"
#include "isa/registry.h"

#include <algorithm>
#include <cmath>

namespace emu {
namespace {
using u32 = uint32_t;
using u64 = uint64_t;

// Which coordinate is the largest: 2 for z, 1 for y, 0 for x, later ones first among equals.
unsigned major_axis(float x, float y, float z)
{
    if(std::fabs(z) >= std::fabs(x) && std::fabs(z) >= std::fabs(y))
        return 2;
    return std::fabs(y) >= std::fabs(x) ? 1 : 0;
}

float cube_face(float x, float y, float z)
{
    const unsigned axis  = major_axis(x, y, z);
    const float value[3] = {x, y, z};
    return static_cast<float>(2 * axis + (value[axis] < 0.0f));
}

float cube_s(float x, float y, float z)
{
    switch(major_axis(x, y, z))
    {
        case 2: return z < 0.0f ? -x : x;
        case 1: return x;
        default: return x < 0.0f ? z : -z;
    }
}

float cube_t(float x, float y, float z)
{
    if(major_axis(x, y, z) != 1)
        return -y;
    return y < 0.0f ? -z : z;
}

float cube_major(float x, float y, float z)
{
    const float value[3] = {x, y, z};
    return value[major_axis(x, y, z)] * 2.0f;
}

u32 byte_of_float(u32 bits)
{
    const float x = as_float(bits);
    return x > 0.0f ? (x >= 255.0f ? 255 : static_cast<u32>(x)) : 0;
}

// S2 with byte S1 replaced.
u32 with_byte(u32 old, u32 number, u32 byte)
{
    const u32 shift = 8 * (number & 3);
    return (old & ~(0xffu << shift)) | byte << shift;
}

// Bytes where the reference, b, is 0 are masked out.
u32 sad(u32 a, u32 b, u32 c, bool masked)
{
    for(u32 i = 0; i < 32; i += 8)
    {
        const u32 x = a >> i & 0xff, y = b >> i & 0xff;
        if(!masked || y != 0)
            c += x > y ? x - y : y - x;
    }
    return c;
}

// Four sums: of the bytes of S0 from byte 0, 1, 2 and 3 on. Width: bits of a sum.
template <unsigned Width, bool Masked>
const MicroOp* quad_sad(Wave& w, const MicroOp* op)
{
    constexpr unsigned ROWS = Width / 8;
    Row low, high, b1, constants[ROWS];
    Rows out            = {};
    const WideSource a  = wide_source(w, op, 0, low, high);
    const u32* b        = source_row(w, op, 1, b1);
    const uint16_t code = op->src[2].code;
    const u32* c[ROWS];
    for(unsigned i = 0; i < ROWS; ++i)
    {
        // A constant of more than 64 bits is that one, then zeros.
        const bool beyond = code >= SCALAR + 128 && i >= 2;
        if(code < SCALAR)
            c[i] = w.v[code + i];
        else if(code < SCALAR + 128)
            c[i] = plain_row(w, op, static_cast<uint16_t>(code + i), constants[i]);
        else
        {
            broadcast(beyond ? 0 : static_cast<u32>(scalar_pair(w, op, code) >> 32 * i), constants[i]);
            c[i] = constants[i].d;
        }
    }
    for(unsigned l = 0; l < LANES; ++l)
        for(unsigned i = 0; i < 4; ++i)
        {
            const unsigned row = i * Width / 32, shift = i * Width % 32;
            const u32 mask  = Width == 32 ? ~0u : 0xffffu;
            const u32 start = c[row][l] >> shift & mask;
            const u32 sum   = sad(static_cast<u32>(a[l] >> 8 * i), b[l], start, Masked);
            out.d[row][l] |= (sum & mask) << shift;
        }
    for(unsigned i = 0; i < ROWS; ++i)
        store_row(w.v[op->dst + i], out.d[i], write_mask(w, op));
    return advance(op);
}

// Shifted right, then into 8 bits.
template <bool Signed>
u32 shifted_bytes(u32 a, u32 b, u32 c)
{
    const auto byte = [&](u32 value) {
        const int32_t shifted = static_cast<int32_t>(value) >> (c & 31);
        return static_cast<u32>(Signed ? std::clamp(shifted, -128, 127) : std::clamp(shifted, 0, 255)) & 0xff;
    };
    return byte(a) | byte(b) << 8;
}

// minimum and maximum of IEEE 754-2019: a NaN wins, and -0 is below +0.
template <bool Max>
float extreme(float a, float b)
{
    if(std::isnan(a) || std::isnan(b))
        return as_float(as_bits(std::isnan(a) ? a : b) | 0x400000);
    if(a == b)
        return std::signbit(a) == Max ? b : a;
    return (a < b) == Max ? b : a;
}

// D = F(S0, S1, S2) on f32 as MODE flushes it.
template <auto F>
const MicroOp* choose_f32(Wave& w, const MicroOp* op)
{
    Row b[3], flushed[3], out;
    const u32* source[3];
    for(unsigned i = 0; i < 3; ++i)
    {
        source[i] = source_row(w, op, i, b[i]);
        if(!mode::INPUTS_F32.of(w.mode))
            source[i] = flushed_row(source[i], flushed[i]);
    }
    for(unsigned l = 0; l < LANES; ++l)
        out.d[l] = as_bits(F(as_float(source[0][l]), as_float(source[1][l]), as_float(source[2][l])));
    if(!mode::RESULTS_F32.of(w.mode))
        flushed_row(out.d, out);
    return commit_f32(w, op, out);
}

template <bool Max>
float extreme3(float a, float b, float c)
{
    return extreme<Max>(extreme<Max>(a, b), c);
}

// S1's upper bits are added below the last place of the result, then the rest is cut (as the 8-bit
// conversions do it).
u32 stochastic_bf16(u32 a, u32 noise)
{
    if((a & 0x7fffffff) >= 0x7f800000)
        return f32_to_bf16(a);
    return (a + (noise >> 16)) >> 16;
}

u32 stochastic_f16(u32 a, u32 noise)
{
    const u32 sign = a & 0x80000000, magnitude = a & 0x7fffffff;
    if(magnitude >= 0x7f800000)
        return f32_to_f16(a, Round::Nearest);
    constexpr u32 LEAST = 113u << 23; // of a normal f16
    const u32 shift     = magnitude >= LEAST ? 13 : std::min(31u, 126 - std::max(1u, magnitude >> 23));
    if(magnitude >= LEAST)
        return f32_to_f16(sign | std::min(magnitude + (noise >> 19), 0x7f7fffffu), Round::Zero);
    // A subnormal: its fraction in whole steps of the last place.
    const u64 fraction = (magnitude & 0x7fffff) | (magnitude >> 23 ? 0x800000u : 0u);
    return sign >> 16 | static_cast<u32>((fraction + (u64{noise} >> (32 - shift))) >> shift);
}

#define F3(NAME, F)   {NAME, choose_f32<F>}
#define I2(NAME, ...) {NAME, map_integer<2, ([](u32 a, u32 b) -> u32 { return __VA_ARGS__; })>}
#define I3(NAME, ...) {NAME, map_integer<3, ([](u32 a, u32 b, u32 c) -> u32 { return __VA_ARGS__; })>}

const MicroOp* v_cvt_off_f32_i4(Wave& w, const MicroOp* op)
{
    Row out;
    map_lanes<1>(w, op, out.d,
                 [](u32 a) { return as_bits(static_cast<float>(static_cast<int32_t>(a << 28) >> 28) / 16.0f); });
    return commit_f32(w, op, out);
}

// Byte S1 of the destination; the others stay.
const MicroOp* v_cvt_pkaccum_u8_f32(Wave& w, const MicroOp* op)
{
    Row b0, b1, out;
    const u32 *a = source_row(w, op, 0, b0), *b = source_row(w, op, 1, b1), *old = w.v[op->dst];
    for(unsigned l = 0; l < LANES; ++l)
        out.d[l] = with_byte(old[l], b[l], byte_of_float(a[l]));
    commit(w, op, out.d);
    return advance(op);
}

constexpr Entry ENTRIES[] = {
    F3("v_cubeid_f32", cube_face),
    F3("v_cubesc_f32", cube_s),
    F3("v_cubetc_f32", cube_t),
    F3("v_cubema_f32", cube_major),
    F3("v_minimum3_f32", extreme3<false>),
    F3("v_maximum3_f32", extreme3<true>),
    I3("v_cvt_pk_u8_f32", with_byte(c, b, byte_of_float(a))),
    {"v_cvt_pkaccum_u8_f32", v_cvt_pkaccum_u8_f32},
    {"v_cvt_off_f32_i4", v_cvt_off_f32_i4},
    I3("v_msad_u8", sad(a, b, c, true)),
    {"v_qsad_pk_u16_u8", quad_sad<16, false>},
    {"v_mqsad_pk_u16_u8", quad_sad<16, true>},
    {"v_mqsad_u32_u8", quad_sad<32, true>},
    I3("v_ashr_pk_i8_i32", shifted_bytes<true>(a, b, c)),
    I3("v_ashr_pk_u8_i32", shifted_bytes<false>(a, b, c)),
    I2("v_cvt_sr_f16_f32", stochastic_f16(a, b)),
    I2("v_cvt_sr_bf16_f32", stochastic_bf16(a, b)),
};
} // namespace

std::span<const Entry> media_entries() { return ENTRIES; }
} // namespace emu

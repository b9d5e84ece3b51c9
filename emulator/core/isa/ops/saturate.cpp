// Integer results with the clamp modifier: kept in the range of their format (CDNA3 ISA document,
// "Output modifiers"), and dot products of integers, which have it too.
#include "isa/map.h"
#include "isa/registry.h"

#include <algorithm>
#include <limits>

namespace emu {
namespace {
using u32 = uint32_t;
using i64 = int64_t;

i64 u16(u32 a) { return a & 0xffff; }
i64 s16(u32 a) { return static_cast<int16_t>(a); }
i64 u24(u32 a) { return a & 0xffffff; }
i64 s24(u32 a) { return static_cast<int32_t>(a << 8) >> 8; }

template <typename T>
u32 kept(i64 value)
{
    const i64 bounded = std::clamp<i64>(value, std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
    return static_cast<u32>(static_cast<std::make_unsigned_t<T>>(bounded));
}

u32 difference(u32 a, u32 b) { return a > b ? a - b : b - a; }

// Bytes where b is 0 take no part if they are masked.
i64 bytes_apart(u32 a, u32 b, bool masked)
{
    i64 sum = 0;
    for(u32 i = 0; i < 32; i += 8)
        if(!masked || (b >> i & 0xff) != 0)
            sum += difference(a >> i & 0xff, b >> i & 0xff);
    return sum;
}

i64 halves_apart(u32 a, u32 b) { return i64{difference(a & 0xffff, b & 0xffff)} + difference(a >> 16, b >> 16); }

// Field `i` of `Bits` bits.
template <unsigned Bits, bool Signed>
i64 field(u32 value, unsigned i)
{
    const u32 up = value << (32 - Bits * (i + 1));
    return Signed ? i64{static_cast<int32_t>(up) >> (32 - Bits)} : i64{up >> (32 - Bits)};
}

// The sum of all products of fields and S2; Clamp keeps it in range.
template <unsigned Bits, bool Signed, bool Clamp>
const MicroOp* dot(Wave& w, const MicroOp* op)
{
    return commit_lanes<3>(w, op, [](u32 a, u32 b, u32 c) {
        i64 sum = Signed ? i64{static_cast<int32_t>(c)} : i64{c};
        for(unsigned i = 0; i < 32 / Bits; ++i)
            sum += field<Bits, Signed>(a, i) * field<Bits, Signed>(b, i);
        if constexpr(!Clamp)
            return static_cast<u32>(sum);
        else
            return Signed ? kept<int32_t>(sum) : kept<uint32_t>(sum);
    });
}

// Two 16-bit results, of the halves that op_sel and op_sel_hi choose.
template <unsigned N, auto F>
const MicroOp* packed(Wave& w, const MicroOp* op)
{
    Row buffers[N], out;
    [&]<unsigned... I>(std::integer_sequence<unsigned, I...>) {
        const u32* const rows[] = {plain_row(w, op, op->src[I].code, buffers[I])...};
        const auto half         = [&](unsigned i, unsigned lane, unsigned part) {
            return rows[i][lane] >> (op->src[i].select >> part & 1 ? 16 : 0) & 0xffff;
        };
        for(unsigned l = 0; l < LANES; ++l)
            out.d[l] = F(half(I, l, 0)...) | F(half(I, l, 1)...) << 16;
    }(std::make_integer_sequence<unsigned, N>{});
    commit(w, op, out.d);
    return advance(op);
}

#define I2(NAME, T, ...) {NAME "_clamp", map_integer<2, ([](u32 a, u32 b) -> u32 { return kept<T>(__VA_ARGS__); })>}
#define I3(NAME, T, ...) \
    {NAME "_clamp", map_integer<3, ([](u32 a, u32 b, u32 c) -> u32 { return kept<T>(__VA_ARGS__); })>}
#define P2(NAME, T, ...) {NAME "_clamp", packed<2, ([](u32 a, u32 b) -> u32 { return kept<T>(__VA_ARGS__); })>}
#define P3(NAME, T, ...) {NAME "_clamp", packed<3, ([](u32 a, u32 b, u32 c) -> u32 { return kept<T>(__VA_ARGS__); })>}
#define DOT(NAME, BITS, SIGNED) \
    {NAME, dot<BITS, SIGNED, false>}, { NAME "_clamp", dot<BITS, SIGNED, true> }

i64 s32(u32 a) { return static_cast<int32_t>(a); }

constexpr Entry ENTRIES[] = {
    I2("v_add_u32", uint32_t, i64{a} + b),
    I2("v_sub_u32", uint32_t, i64{a} - b),
    I2("v_subrev_u32", uint32_t, i64{b} - a),
    I2("v_add_i32", int32_t, s32(a) + s32(b)),
    I2("v_sub_i32", int32_t, s32(a) - s32(b)),
    I2("v_add_u16", uint16_t, u16(a) + u16(b)),
    I2("v_sub_u16", uint16_t, u16(a) - u16(b)),
    I2("v_subrev_u16", uint16_t, u16(b) - u16(a)),
    I2("v_add_i16", int16_t, s16(a) + s16(b)),
    I2("v_sub_i16", int16_t, s16(a) - s16(b)),
    I3("v_mad_u16", uint16_t, u16(a) * u16(b) + u16(c)),
    I3("v_mad_i16", int16_t, s16(a) * s16(b) + s16(c)),
    I3("v_mad_u32_u16", uint32_t, u16(a) * u16(b) + c),
    I3("v_mad_i32_i16", int32_t, s16(a) * s16(b) + s32(c)),
    I3("v_mad_u32_u24", uint32_t, u24(a) * u24(b) + c),
    I3("v_mad_i32_i24", int32_t, s24(a) * s24(b) + s32(c)),
    I3("v_sad_u8", uint32_t, bytes_apart(a, b, false) + c),
    I3("v_sad_hi_u8", uint32_t, (bytes_apart(a, b, false) << 16) + c),
    I3("v_sad_u16", uint32_t, halves_apart(a, b) + c),
    I3("v_sad_u32", uint32_t, i64{difference(a, b)} + c),
    I3("v_msad_u8", uint32_t, bytes_apart(a, b, true) + c),
    P2("v_pk_add_u16", uint16_t, u16(a) + u16(b)),
    P2("v_pk_sub_u16", uint16_t, u16(a) - u16(b)),
    P2("v_pk_add_i16", int16_t, s16(a) + s16(b)),
    P2("v_pk_sub_i16", int16_t, s16(a) - s16(b)),
    P3("v_pk_mad_u16", uint16_t, u16(a) * u16(b) + u16(c)),
    P3("v_pk_mad_i16", int16_t, s16(a) * s16(b) + s16(c)),
    DOT("v_dot2_i32_i16", 16, true),
    DOT("v_dot2_u32_u16", 16, false),
    DOT("v_dot8_i32_i4", 4, true),
    DOT("v_dot8_u32_u4", 4, false),
    DOT("v_dot4_i32_i8", 8, true),
    DOT("v_dot4_u32_u8", 8, false),
    DOT("v_dot2c_i32_i16", 16, true),
    DOT("v_dot8c_i32_i4", 4, true),
    DOT("v_dot4c_i32_i8", 8, true),
};
} // namespace

std::span<const Entry> saturate_entries() { return ENTRIES; }
} // namespace emu

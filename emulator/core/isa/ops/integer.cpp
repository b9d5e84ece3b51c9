// 32-bit and 16-bit integer vector arithmetic, bit operations and carries (CDNA3 ISA document,
// sections 12.7 to 12.11).
#include "isa/map.h"
#include "isa/registry.h"

#include <algorithm>
#include <bit>

namespace emu {
namespace {
using u32 = uint32_t;
using u64 = uint64_t;
using i32 = int32_t;
using i64 = int64_t;

i32 s(u32 a) { return static_cast<i32>(a); }
i32 s24(u32 a) { return static_cast<i32>(a << 8) >> 8; }
u32 u24(u32 a) { return a & 0xffffff; }
u32 u16(u32 a) { return a & 0xffff; }
i32 s16(u32 a) { return static_cast<int16_t>(a); }
u32 mask_of(u32 bits) { return bits >= 32 ? ~0u : (1u << bits) - 1; }

u32 bfe_signed(u32 a, u32 b, u32 c)
{
    const u32 offset = b & 31, width = c & 31;
    if(width == 0)
        return 0;
    const u32 field = a >> offset & mask_of(width);
    return field >> (width - 1) & 1 ? field | ~mask_of(width) : field;
}

// As the pseudocode has it: the bits left above a shift are those of the sign.
u32 bfe_signed_checked(u32 a, u32 b, u32 c)
{
    const u32 offset = b & 31, width = c & 31;
    if(width != 0 && offset + width > 32)
        return static_cast<u32>(s(a) >> offset);
    return bfe_signed(a, b, c);
}

u32 permute_byte(u64 data, u32 select)
{
    select &= 0xff;
    if(select >= 13)
        return 0xff;
    if(select == 12)
        return 0;
    if(select >= 8)
        return data >> (16 * (select - 8) + 15) & 1 ? 0xff : 0;
    return static_cast<u32>(data >> 8 * select) & 0xff;
}

u32 permute(u32 a, u32 b, u32 c)
{
    const u64 data = u64{a} << 32 | b;
    return permute_byte(data, c) | permute_byte(data, c >> 8) << 8 | permute_byte(data, c >> 16) << 16 |
           permute_byte(data, c >> 24) << 24;
}

// Bytes 0 to 7 of S0 and S1, by one selector for all lanes.
void permute_rows(const u32* a, const u32* b, u32 select, u32* out)
{
#if defined(__AVX512BW__) && !defined(EMU_PLAIN)
    // Within a dword of each 16 bytes; a selector with bit 7 makes a zero.
    const u32 lows = select & 0x03030303, highs = (select & 0x04040404) << 5;
    const __m512i dwords = _mm512_broadcast_i32x4(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0));
    const __m512i within = _mm512_add_epi8(_mm512_set1_epi32(static_cast<i32>(lows)), dwords);
    const __m512i from_b = _mm512_or_si512(within, _mm512_set1_epi32(static_cast<i32>(highs)));
    const __m512i from_a = _mm512_or_si512(within, _mm512_set1_epi32(static_cast<i32>(~highs & 0x80808080)));
    for(unsigned l = 0; l < LANES; l += 16)
    {
        const __m512i first  = _mm512_shuffle_epi8(_mm512_loadu_si512(a + l), from_a),
                      second = _mm512_shuffle_epi8(_mm512_loadu_si512(b + l), from_b);
        _mm512_storeu_si512(out + l, _mm512_or_si512(first, second));
    }
#else
    for(unsigned l = 0; l < LANES; l += SEVERAL)
    {
        const Words x = lanes_at<Words>(a + l), y = lanes_at<Words>(b + l);
        Words value = {};
        for(unsigned i = 0; i < 4; ++i)
        {
            const u32 byte = select >> 8 * i;
            value |= ((byte & 4 ? x : y) >> 8 * (byte & 3) & 0xff) << 8 * i;
        }
        std::memcpy(out + l, &value, sizeof value);
    }
#endif
}

// The compiler's usual selectors are one value for all lanes, made of bytes 0 to 7.
const MicroOp* v_perm_b32(Wave& w, const MicroOp* op)
{
    Row b0, b1, b2, buffer;
    u32* const out = target_row(w, op, buffer);
    const u32 *a = source_row(w, op, 0, b0), *b = source_row(w, op, 1, b1), *c = source_row(w, op, 2, b2);
    if(op->src[2].code >= SCALAR && (c[0] & 0xf8f8f8f8) == 0)
        permute_rows(a, b, c[0], out);
    else
        for(unsigned l = 0; l < LANES; ++l)
            out[l] = permute(a[l], b[l], c[l]);
    commit_target(w, op, out, buffer);
    return advance(op);
}

u32 difference(u32 a, u32 b) { return a > b ? a - b : b - a; }

u32 sad_u8(u32 a, u32 b, u32 c)
{
    for(u32 i = 0; i < 32; i += 8)
        c += difference(a >> i & 0xff, b >> i & 0xff);
    return c;
}

u32 sad_u16(u32 a, u32 b, u32 c) { return c + difference(u16(a), u16(b)) + difference(a >> 16, b >> 16); }

i32 median(i32 a, i32 b, i32 c) { return std::max(std::min(a, b), std::min(std::max(a, b), c)); }
u32 median(u32 a, u32 b, u32 c) { return std::max(std::min(a, b), std::min(std::max(a, b), c)); }

u32 any_bits(u32 table, u32 a, u32 b, u32 c)
{
    u32 result = 0;
    for(u32 i = 0; i < 8; ++i)
        if(table >> i & 1)
            result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return result;
}

// control is the truth table; the bits above Bits are 0.
template <u32 Bits>
const MicroOp* v_bitop3(Wave& w, const MicroOp* op)
{
    return commit_lanes<3>(
        w, op, [table = op->control](u32 a, u32 b, u32 c) { return any_bits(table, a, b, c) & mask_of(Bits); });
}

// D = mask bit of the lane ? S1 : S0
const MicroOp* v_cndmask_b32(Wave& w, const MicroOp* op)
{
    Row b0, b1, out;
    const u32 *a = source_row(w, op, 0, b0), *b = source_row(w, op, 1, b1);
    const u64 mask = scalar_pair(w, op, op->src[2].code);
    for(unsigned l = 0; l < LANES; ++l)
        out.d[l] = a[l];
    store_row(out.d, b, mask);
    commit(w, op, out.d);
    return advance(op);
}

// Sum and carry-out of a lane; Subtract and Reverse choose S0 - S1 and S1 - S0.
template <bool Subtract, bool Reverse, bool CarryIn>
const MicroOp* carry(Wave& w, const MicroOp* op)
{
    Row b0, b1, out;
    const u32 *a = source_row(w, op, Reverse, b0), *b = source_row(w, op, !Reverse, b1);
    const u64 in = CarryIn ? scalar_pair(w, op, op->src[2].code) : 0;
    u64 carries  = 0;
    for(unsigned l = 0; l < LANES; ++l)
    {
        const u64 one = in >> l & 1;
        const u64 sum = Subtract ? u64{a[l]} - b[l] - one : u64{a[l]} + b[l] + one;
        out.d[l]      = static_cast<u32>(sum);
        carries |= (sum >> 32 & 1) << l;
    }
    const u64 lanes = write_mask(w, op);
    commit(w, op, out.d);
    w.set_pair(op->scalar_dst - SCALAR, carries & lanes);
    return advance(op);
}

// Bits of the mask operand below the lane, added to S1 (v_mbcnt_lo/hi_u32_b32).
template <bool High>
const MicroOp* mbcnt(Wave& w, const MicroOp* op)
{
    Row b0, b1, out;
    const u32 *a = source_row(w, op, 0, b0), *b = source_row(w, op, 1, b1);
    for(unsigned l = 0; l < LANES; ++l)
    {
        const u64 below = (u64{1} << l) - 1;
        out.d[l]        = b[l] + static_cast<u32>(std::popcount(a[l] & static_cast<u32>(High ? below >> 32 : below)));
    }
    commit(w, op, out.d);
    return advance(op);
}

// The leading zero count of a sign-extended value; -1 if there is none.
u32 flbit_signed(u32 a)
{
    const u32 bits = a >> 31 ? ~a : a;
    return bits == 0 ? ~0u : static_cast<u32>(std::countl_zero(bits));
}

u32 clamped(i64 value, i64 low, i64 high) { return static_cast<u32>(std::clamp(value, low, high)); }

#define I1(NAME, ...) {NAME, map_integer<1, ([](u32 a) { return __VA_ARGS__; })>}
#define I2(NAME, ...) {NAME, map_integer<2, ([](u32 a, u32 b) { return __VA_ARGS__; })>}
#define I3(NAME, ...) {NAME, map_integer<3, ([](u32 a, u32 b, u32 c) { return __VA_ARGS__; })>}

constexpr Entry ENTRIES[] = {
    I1("v_mov_b32", a),
    I1("v_not_b32", ~a),
    I1("v_bfrev_b32", reverse_bits(a)),
    I1("v_ffbh_u32", a == 0 ? ~0u : static_cast<u32>(std::countl_zero(a))),
    I1("v_ffbl_b32", a == 0 ? ~0u : static_cast<u32>(std::countr_zero(a))),
    I1("v_ffbh_i32", flbit_signed(a)),
    I1("v_prng_b32", a << 1 ^ (a >> 31 ? 0xc5u : 0u)),
    I1("v_sat_pk_u8_i16", clamped(s16(a), 0, 255) | clamped(s16(a >> 16), 0, 255) << 8),
    I2("v_add_u32", a + b),
    I2("v_sub_u32", a - b),
    I2("v_subrev_u32", b - a),
    I2("v_add_i32", a + b),
    I2("v_sub_i32", a - b),
    I2("v_and_b32", (a & b)),
    I2("v_or_b32", a | b),
    I2("v_xor_b32", a ^ b),
    I2("v_xnor_b32", ~(a ^ b)),
    I2("v_lshlrev_b32", b << (a & 31)),
    I2("v_lshrrev_b32", b >> (a & 31)),
    I2("v_ashrrev_i32", s(b) >> (a & 31)),
    I2("v_min_u32", a < b ? a : b),
    I2("v_max_u32", a > b ? a : b),
    I2("v_min_i32", s(a) < s(b) ? a : b),
    I2("v_max_i32", s(a) > s(b) ? a : b),
    I2("v_mul_i32_i24", static_cast<u32>(s24(a)) * static_cast<u32>(s24(b))),
    I2("v_mul_u32_u24", u24(a) * u24(b)),
    I2("v_mul_hi_i32_i24", static_cast<u32>(i64{s24(a)} * s24(b) >> 32)),
    I2("v_mul_hi_u32_u24", static_cast<u32>(u64{u24(a)} * u24(b) >> 32)),
    I2("v_mul_lo_u32", (a * b)),
    I2("v_mul_hi_u32", static_cast<u32>(u64{a} * b >> 32)),
    I2("v_mul_hi_i32", static_cast<u32>(i64{s(a)} * s(b) >> 32)),
    I2("v_bcnt_u32_b32", b + static_cast<u32>(std::popcount(a))),
    I2("v_bfm_b32", mask_of(a & 31) << (b & 31)),
    I3("v_bfe_u32", a >> (b & 31) & mask_of(c & 31)),
    I3("v_bfe_i32", bfe_signed_checked(a, b, c)),
    I3("v_bfi_b32", (a & b) | (~a & c)),
    I3("v_alignbit_b32", static_cast<u32>((u64{a} << 32 | b) >> (c & 31))),
    I3("v_alignbyte_b32", static_cast<u32>((u64{a} << 32 | b) >> 8 * (c & 3))),
    I3("v_add3_u32", a + b + c),
    I3("v_lshl_add_u32", (a << (b & 31)) + c),
    I3("v_add_lshl_u32", (a + b) << (c & 31)),
    I3("v_lshl_or_b32", a << (b & 31) | c),
    I3("v_and_or_b32", (a & b) | c),
    I3("v_or3_b32", a | b | c),
    I3("v_xad_u32", (a ^ b) + c),
    I3("v_mad_i32_i24", static_cast<u32>(s24(a)) * static_cast<u32>(s24(b)) + c),
    I3("v_mad_u32_u24", u24(a) * u24(b) + c),
    I3("v_mad_u32_u16", u16(a) * u16(b) + c),
    I3("v_mad_i32_i16", static_cast<u32>(s16(a) * s16(b)) + c),
    I3("v_min3_u32", std::min(a, std::min(b, c))),
    I3("v_max3_u32", std::max(a, std::max(b, c))),
    I3("v_med3_u32", median(a, b, c)),
    I3("v_min3_i32", std::min(s(a), std::min(s(b), s(c)))),
    I3("v_max3_i32", std::max(s(a), std::max(s(b), s(c)))),
    I3("v_med3_i32", median(s(a), s(b), s(c))),
    I3("v_sad_u8", sad_u8(a, b, c)),
    I3("v_sad_hi_u8", c + (sad_u8(a, b, 0) << 16)),
    I3("v_sad_u16", sad_u16(a, b, c)),
    I3("v_sad_u32", c + difference(a, b)),
    I3("v_lerp_u8",
       [&] {
           u32 r = 0;
           for(u32 i = 0; i < 32; i += 8)
               r |= ((a >> i & 0xff) + (b >> i & 0xff) + (c >> i & 1)) >> 1 << i;
           return r;
       }()),
    {"v_perm_b32", v_perm_b32},
    {"v_bitop3_b32", v_bitop3<32>},
    {"v_bitop3_b16", v_bitop3<16>},
    {"v_cndmask_b32", v_cndmask_b32},
    {"v_mbcnt_lo_u32_b32", mbcnt<false>},
    {"v_mbcnt_hi_u32_b32", mbcnt<true>},
    {"v_add_co_u32", carry<false, false, false>},
    {"v_sub_co_u32", carry<true, false, false>},
    {"v_subrev_co_u32", carry<true, true, false>},
    {"v_addc_co_u32", carry<false, false, true>},
    {"v_subb_co_u32", carry<true, false, true>},
    {"v_subbrev_co_u32", carry<true, true, true>},

    // 16 bits: the result's upper half is zero (gfx9; LLVM's GCNSubtarget::zeroesHigh16BitsOfDest)
    I2("v_add_u16", u16(a + b)),
    I2("v_sub_u16", u16(a - b)),
    I2("v_subrev_u16", u16(b - a)),
    I2("v_mul_lo_u16", u16(u16(a) * u16(b))),
    I2("v_lshlrev_b16", u16(b << (a & 15))),
    I2("v_lshrrev_b16", u16(b) >> (a & 15)),
    I2("v_ashrrev_i16", u16(static_cast<u32>(s16(b) >> (a & 15)))),
    I2("v_min_u16", std::min(u16(a), u16(b))),
    I2("v_max_u16", std::max(u16(a), u16(b))),
    I2("v_min_i16", u16(static_cast<u32>(std::min(s16(a), s16(b))))),
    I2("v_max_i16", u16(static_cast<u32>(std::max(s16(a), s16(b))))),
    I2("v_add_i16", u16(a + b)),
    I2("v_sub_i16", u16(a - b)),
    I3("v_mad_u16", u16(u16(a) * u16(b) + u16(c))),
    I3("v_mad_i16", u16(u16(a) * u16(b) + u16(c))),
    I3("v_min3_u16", std::min(u16(a), std::min(u16(b), u16(c)))),
    I3("v_max3_u16", std::max(u16(a), std::max(u16(b), u16(c)))),
    I3("v_med3_u16", median(u16(a), u16(b), u16(c))),
    I3("v_min3_i16", u16(static_cast<u32>(std::min(s16(a), std::min(s16(b), s16(c)))))),
    I3("v_max3_i16", u16(static_cast<u32>(std::max(s16(a), std::max(s16(b), s16(c)))))),
    I3("v_med3_i16", u16(static_cast<u32>(median(s16(a), s16(b), s16(c))))),
    I2("v_pack_b32_f16", u16(a) | b << 16),
};
} // namespace

std::span<const Entry> integer_entries() { return ENTRIES; }
} // namespace emu

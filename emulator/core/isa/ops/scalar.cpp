// Scalar ALU: SOP1, SOP2, SOPC, SOPK (CDNA3 ISA document, section 12.1 to 12.4).
#include "isa/operands.h"
#include "isa/registry.h"

#include <bit>
#include <cstdlib>

namespace emu {
namespace {
using u32 = uint32_t;
using u64 = uint64_t;
using i32 = int32_t;
using i64 = int64_t;

template <typename T>
T source(const Wave& w, const MicroOp* op, unsigned i)
{
    if constexpr(sizeof(T) == 8)
        return static_cast<T>(scalar_pair(w, op, op->src[i].code));
    else
        return static_cast<T>(scalar_value(w, op, op->src[i].code));
}

template <typename T>
void put(Wave& w, uint16_t code, T value)
{
    if constexpr(sizeof(T) == 8)
        w.set_pair(code - SCALAR, static_cast<u64>(value));
    else
        w.s[code - SCALAR] = static_cast<u32>(value);
}

// F(a, b, scc) returns the result and may change scc.
template <typename T, typename B, auto F>
const MicroOp* two(Wave& w, const MicroOp* op)
{
    u32 scc           = w.s[SCC];
    const auto result = F(source<T>(w, op, 0), source<B>(w, op, 1), scc);
    put(w, op->dst, result);
    w.s[SCC] = scc;
    return advance(op);
}

template <typename T, auto F>
const MicroOp* one(Wave& w, const MicroOp* op)
{
    u32 scc           = w.s[SCC];
    const auto result = F(source<T>(w, op, 0), scc);
    put(w, op->dst, result);
    w.s[SCC] = scc;
    return advance(op);
}

template <typename T, auto F>
const MicroOp* compare(Wave& w, const MicroOp* op)
{
    w.s[SCC] = F(source<T>(w, op, 0), source<T>(w, op, 1));
    return advance(op);
}

// SCC = result is not zero
template <typename T>
T flagged(T value, u32& scc)
{
    scc = value != 0;
    return value;
}

// s_*_saveexec_b64: D = EXEC; EXEC = F(S0, EXEC); SCC = EXEC is not zero. With write-back D is the
// new EXEC.
template <auto F, bool WriteBack = false>
const MicroOp* save_exec(Wave& w, const MicroOp* op)
{
    const u64 old = w.exec(), next = F(source<u64>(w, op, 0), old);
    put(w, op->dst, WriteBack ? next : old);
    w.set_pair(EXEC, next);
    w.s[SCC] = next != 0;
    return advance(op);
}

template <typename T>
T field_mask(u32 bits)
{
    return bits >= sizeof(T) * 8 ? ~T{0} : (T{1} << bits) - 1;
}

template <typename T>
T bfe_unsigned(T a, u32 b, u32& scc)
{
    const u32 bits = sizeof(T) * 8;
    return flagged<T>((a >> (b & (bits - 1))) & field_mask<T>(b >> 16 & 0x7f), scc);
}

template <typename T, typename S>
T bfe_signed(T a, u32 b, u32& scc)
{
    const u32 bits = sizeof(T) * 8, width = b >> 16 & 0x7f;
    // As the pseudocode has it: past the top the sign fills.
    T value = static_cast<T>(static_cast<S>(a) >> (b & (bits - 1))) & field_mask<T>(width);
    if(width > 0 && width < bits && value >> (width - 1) & 1)
        value |= ~field_mask<T>(width);
    return flagged<T>(value, scc);
}

// The difference wraps before its sign is taken.
i32 absolute_difference(i32 a, i32 b)
{
    const u32 difference = u32(a) - u32(b);
    return static_cast<i32>(difference >> 31 ? 0 - difference : difference);
}

u32 quad_mask(u64 a)
{
    u32 mask = 0;
    for(u32 i = 0; i < 16; ++i)
        mask |= u32{(a >> 4 * i & 0xf) != 0} << i;
    return mask;
}

// From source From. Of SOPK the destination is the first source: lower.py passes it as src[0] and
// the constant as literal in src[1].
template <typename T, unsigned From>
const MicroOp* move_if(Wave& w, const MicroOp* op)
{
    if(w.s[SCC])
        put(w, op->dst, source<T>(w, op, From));
    return advance(op);
}

template <typename T, bool Set>
const MicroOp* set_bit(Wave& w, const MicroOp* op)
{
    const T bit = T{1} << (source<u32>(w, op, 0) & (sizeof(T) * 8 - 1)),
            old = static_cast<T>(sizeof(T) == 8 ? w.pair(op->dst - SCALAR) : w.s[op->dst - SCALAR]);
    put(w, op->dst, Set ? old | bit : old & ~bit);
    return advance(op);
}

u32 add_signed(u32 a, u32 b, u32& scc)
{
    const u32 sum = a + b;
    scc           = (~(a ^ b) & (a ^ sum)) >> 31;
    return sum;
}

u32 sub_signed(u32 a, u32 b, u32& scc)
{
    const u32 difference = a - b;
    scc                  = ((a ^ b) & (a ^ difference)) >> 31;
    return difference;
}

template <u32 Shift>
u32 shift_add(u32 a, u32 b, u32& scc)
{
    const u64 sum = (u64{a} << Shift) + b;
    scc           = sum >> 32 != 0;
    return static_cast<u32>(sum);
}

template <typename T>
i32 first_one_low(T a)
{
    return a == 0 ? -1 : std::countr_zero(a);
}

template <typename T>
i32 first_one_high(T a)
{
    return a == 0 ? -1 : std::countl_zero(a);
}

// Index from the top of the first bit that differs from the sign.
template <typename T>
i32 sign_change(T a)
{
    const T bits = a >> (sizeof(T) * 8 - 1) ? static_cast<T>(~a) : a;
    return first_one_high(bits);
}

u64 reverse_both(u64 a)
{
    return u64{reverse_bits(static_cast<u32>(a))} << 32 | reverse_bits(static_cast<u32>(a >> 32));
}

#define TWO(NAME, T, B, ...) {NAME, two<T, B, ([](T a, B b, [[maybe_unused]] u32& scc) { return __VA_ARGS__; })>}
#define ONE(NAME, T, ...)    {NAME, one<T, ([](T a, [[maybe_unused]] u32& scc) { return __VA_ARGS__; })>}
#define TEST(NAME, T, ...)   {NAME, compare<T, ([](T a, T b) -> u32 { return __VA_ARGS__; })>}
#define SAVE(NAME, ...)      {NAME, save_exec<([](u64 a, u64 exec) -> u64 { return __VA_ARGS__; })>}
#define SAVE_BACK(NAME, ...) {NAME, save_exec<([](u64 a, u64 exec) -> u64 { return __VA_ARGS__; }), true>}

constexpr Entry ENTRIES[] = {
    TWO("s_add_u32", u32, u32, (scc = (u64{a} + b) >> 32 != 0, a + b)),
    TWO("s_sub_u32", u32, u32, (scc = b > a, a - b)),
    TWO("s_addc_u32", u32, u32, [&] { const u64 sum = u64{a} + b + scc; scc = sum >> 32 != 0; return static_cast<u32>(sum); }()),
    TWO("s_subb_u32", u32, u32, [&] { const u32 r = a - b - scc; scc = u64{b} + scc > a; return r; }()),
    TWO("s_add_i32", u32, u32, add_signed(a, b, scc)),
    TWO("s_sub_i32", u32, u32, sub_signed(a, b, scc)),
    TWO("s_min_i32", i32, i32, (scc = a < b, a < b ? a : b)),
    TWO("s_min_u32", u32, u32, (scc = a < b, a < b ? a : b)),
    TWO("s_max_i32", i32, i32, (scc = a > b, a > b ? a : b)),
    TWO("s_max_u32", u32, u32, (scc = a > b, a > b ? a : b)),
    TWO("s_cselect_b32", u32, u32, scc ? a : b),
    TWO("s_cselect_b64", u64, u64, scc ? a : b),
    TWO("s_and_b32", u32, u32, flagged(a & b, scc)),
    TWO("s_and_b64", u64, u64, flagged(a & b, scc)),
    TWO("s_or_b32", u32, u32, flagged(a | b, scc)),
    TWO("s_or_b64", u64, u64, flagged(a | b, scc)),
    TWO("s_xor_b32", u32, u32, flagged(a ^ b, scc)),
    TWO("s_xor_b64", u64, u64, flagged(a ^ b, scc)),
    TWO("s_andn2_b32", u32, u32, flagged(a & ~b, scc)),
    TWO("s_andn2_b64", u64, u64, flagged(a & ~b, scc)),
    TWO("s_orn2_b32", u32, u32, flagged(a | ~b, scc)),
    TWO("s_orn2_b64", u64, u64, flagged(a | ~b, scc)),
    TWO("s_nand_b32", u32, u32, flagged(~(a & b), scc)),
    TWO("s_nand_b64", u64, u64, flagged(~(a & b), scc)),
    TWO("s_nor_b32", u32, u32, flagged(~(a | b), scc)),
    TWO("s_nor_b64", u64, u64, flagged(~(a | b), scc)),
    TWO("s_xnor_b32", u32, u32, flagged(~(a ^ b), scc)),
    TWO("s_xnor_b64", u64, u64, flagged(~(a ^ b), scc)),
    TWO("s_lshl_b32", u32, u32, flagged(a << (b & 31), scc)),
    TWO("s_lshl_b64", u64, u32, flagged(a << (b & 63), scc)),
    TWO("s_lshr_b32", u32, u32, flagged(a >> (b & 31), scc)),
    TWO("s_lshr_b64", u64, u32, flagged(a >> (b & 63), scc)),
    TWO("s_ashr_i32", i32, u32, flagged(a >> (b & 31), scc)),
    TWO("s_ashr_i64", i64, u32, flagged(a >> (b & 63), scc)),
    TWO("s_bfm_b32", u32, u32, field_mask<u32>(a & 31) << (b & 31)),
    TWO("s_bfm_b64", u32, u32, field_mask<u64>(a & 63) << (b & 63)),
    TWO("s_mul_i32", u32, u32, a * b),
    TWO("s_mul_hi_u32", u32, u32, static_cast<u32>(u64{a} * b >> 32)),
    TWO("s_mul_hi_i32", i32, i32, static_cast<i32>(i64{a} * b >> 32)),
    TWO("s_bfe_u32", u32, u32, bfe_unsigned<u32>(a, b, scc)),
    TWO("s_bfe_i32", u32, u32, (bfe_signed<u32, i32>(a, b, scc))),
    TWO("s_bfe_u64", u64, u32, bfe_unsigned<u64>(a, b, scc)),
    TWO("s_bfe_i64", u64, u32, (bfe_signed<u64, i64>(a, b, scc))),
    TWO("s_absdiff_i32", i32, i32, flagged(absolute_difference(a, b), scc)),
    TWO("s_lshl1_add_u32", u32, u32, shift_add<1>(a, b, scc)),
    TWO("s_lshl2_add_u32", u32, u32, shift_add<2>(a, b, scc)),
    TWO("s_lshl3_add_u32", u32, u32, shift_add<3>(a, b, scc)),
    TWO("s_lshl4_add_u32", u32, u32, shift_add<4>(a, b, scc)),
    TWO("s_pack_ll_b32_b16", u32, u32, (a & 0xffff) | b << 16),
    TWO("s_pack_lh_b32_b16", u32, u32, (a & 0xffff) | (b & 0xffff0000)),
    TWO("s_pack_hh_b32_b16", u32, u32, a >> 16 | (b & 0xffff0000)),

    ONE("s_mov_b32", u32, a),
    ONE("s_mov_b64", u64, a),
    ONE("s_not_b32", u32, flagged(~a, scc)),
    ONE("s_not_b64", u64, flagged(~a, scc)),
    ONE("s_wqm_b32", u32, [&] { u32 r = 0; for (u32 i = 0; i < 32; i += 4) if (a >> i & 0xf) r |= u32{0xf} << i; return flagged(r, scc); }()),
    ONE("s_wqm_b64", u64, [&] { u64 r = 0; for (u32 i = 0; i < 64; i += 4) if (a >> i & 0xf) r |= u64{0xf} << i; return flagged(r, scc); }()),
    ONE("s_brev_b32", u32, reverse_bits(a)),
    ONE("s_brev_b64", u64, reverse_both(a)),
    ONE("s_bcnt0_i32_b32", u32, flagged(32 - std::popcount(a), scc)),
    ONE("s_bcnt0_i32_b64", u64, flagged(64 - std::popcount(a), scc)),
    ONE("s_bcnt1_i32_b32", u32, flagged(std::popcount(a), scc)),
    ONE("s_bcnt1_i32_b64", u64, flagged(std::popcount(a), scc)),
    ONE("s_ff0_i32_b32", u32, first_one_low(~a)),
    ONE("s_ff0_i32_b64", u64, first_one_low(~a)),
    ONE("s_ff1_i32_b32", u32, first_one_low(a)),
    ONE("s_ff1_i32_b64", u64, first_one_low(a)),
    ONE("s_flbit_i32_b32", u32, first_one_high(a)),
    ONE("s_flbit_i32_b64", u64, first_one_high(a)),
    ONE("s_flbit_i32", u32, sign_change(a)),
    ONE("s_flbit_i32_i64", u64, sign_change(a)),
    ONE("s_sext_i32_i8", u32, static_cast<i32>(static_cast<int8_t>(a))),
    ONE("s_sext_i32_i16", u32, static_cast<i32>(static_cast<int16_t>(a))),
    ONE("s_abs_i32", u32, flagged(a >> 31 ? 0u - a : a, scc)),
    ONE("s_quadmask_b32", u32, flagged(static_cast<u32>(quad_mask(a)), scc)),
    ONE("s_quadmask_b64", u64, flagged(u64{quad_mask(a)}, scc)),
    ONE("s_bitreplicate_b64_b32", u32, [&] { u64 r = 0; for (u32 i = 0; i < 32; ++i) if (a >> i & 1) r |= u64{3} << 2 * i; return r; }()),
    {"s_cmov_b32", move_if<u32, 0>},
    {"s_cmov_b64", move_if<u64, 0>},
    {"s_cmovk_i32", move_if<u32, 1>},
    {"s_bitset0_b32", set_bit<u32, false>},
    {"s_bitset1_b32", set_bit<u32, true>},
    {"s_bitset0_b64", set_bit<u64, false>},
    {"s_bitset1_b64", set_bit<u64, true>},
    SAVE("s_and_saveexec_b64", a & exec),
    SAVE("s_or_saveexec_b64", a | exec),
    SAVE("s_xor_saveexec_b64", a ^ exec),
    SAVE("s_andn2_saveexec_b64", a & ~exec),
    SAVE("s_orn2_saveexec_b64", a | ~exec),
    SAVE("s_nand_saveexec_b64", ~(a & exec)),
    SAVE("s_nor_saveexec_b64", ~(a | exec)),
    SAVE("s_xnor_saveexec_b64", ~(a ^ exec)),
    SAVE("s_andn1_saveexec_b64", ~a & exec),
    SAVE("s_orn1_saveexec_b64", ~a | exec),
    SAVE_BACK("s_andn1_wrexec_b64", ~a & exec),
    SAVE_BACK("s_andn2_wrexec_b64", a & ~exec),

    TEST("s_cmp_eq_i32", i32, a == b),
    TEST("s_cmp_lg_i32", i32, a != b),
    TEST("s_cmp_gt_i32", i32, a > b),
    TEST("s_cmp_ge_i32", i32, a >= b),
    TEST("s_cmp_lt_i32", i32, a < b),
    TEST("s_cmp_le_i32", i32, a <= b),
    TEST("s_cmp_eq_u32", u32, a == b),
    TEST("s_cmp_lg_u32", u32, a != b),
    TEST("s_cmp_gt_u32", u32, a > b),
    TEST("s_cmp_ge_u32", u32, a >= b),
    TEST("s_cmp_lt_u32", u32, a < b),
    TEST("s_cmp_le_u32", u32, a <= b),
    TEST("s_cmp_eq_u64", u64, a == b),
    TEST("s_cmp_lg_u64", u64, a != b),
    TEST("s_bitcmp0_b32", u32, (a >> (b & 31) & 1) == 0),
    TEST("s_bitcmp1_b32", u32, (a >> (b & 31) & 1) == 1),
    {"s_bitcmp0_b64", [](Wave& w, const MicroOp* op) {
        w.s[SCC] = (source<u64>(w, op, 0) >> (source<u32>(w, op, 1) & 63) & 1) == 0;
        return advance(op);
    }},
    {"s_bitcmp1_b64", [](Wave& w, const MicroOp* op) {
        w.s[SCC] = source<u64>(w, op, 0) >> (source<u32>(w, op, 1) & 63) & 1;
        return advance(op);
    }},
};
} // namespace

std::span<const Entry> scalar_entries() { return ENTRIES; }
} // namespace emu

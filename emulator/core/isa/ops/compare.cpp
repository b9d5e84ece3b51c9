// Vector comparisons: v_cmp_* and v_cmpx_* of all types (CDNA3 ISA document, section 12.9).
#include "isa/float_formats.h"
#include "isa/map.h"
#include "isa/registry.h"

#include <array>
#include <cmath>
#include <iterator>

namespace emu {
namespace {
// A lane's bit is 0 where EXEC is off.
void put_mask(Wave& w, const MicroOp* op, uint64_t mask) { w.set_pair(op->dst - SCALAR, mask & write_mask(w, op)); }

// v_cmpx: as Compare, and EXEC is the result, too.
template <Handler Compare>
const MicroOp* replace_exec(Wave& w, const MicroOp* op)
{
    const MicroOp* next = Compare(w, op);
    w.set_pair(EXEC, w.pair(op->dst - SCALAR));
    return next;
}

// A comparison is compiled once: it is not inlined into replace_exec.
#define EMU_ONCE [[gnu::noinline]]

template <typename T, auto F>
EMU_ONCE const MicroOp* compare(Wave& w, const MicroOp* op)
{
    Row b0, b1, truth;
    if constexpr(sizeof(T) == 8)
    {
        Row h0, h1;
        const WideMode mode(w);
        const WideSource a = wide_source(w, op, 0, b0, h0), b = wide_source(w, op, 1, b1, h1);
        for(unsigned l = 0; l < LANES; ++l)
            truth.d[l] = F(std::bit_cast<T>(a[l]), std::bit_cast<T>(b[l]));
    }
    else
    {
        const uint32_t *a = source_row(w, op, 0, b0), *b = source_row(w, op, 1, b1);
        if constexpr(sizeof(T) == 4)
            for(unsigned l = 0; l < LANES; ++l)
                truth.d[l] = F(std::bit_cast<T>(a[l]), std::bit_cast<T>(b[l]));
        else
            for(unsigned l = 0; l < LANES; ++l)
                truth.d[l] = F(static_cast<T>(a[l]), static_cast<T>(b[l]));
    }
    put_mask(w, op, nonzero_lanes(truth.d));
    return advance(op);
}

// f16 is compared as f32, which holds it exactly.
template <auto F>
EMU_ONCE const MicroOp* compare_half(Wave& w, const MicroOp* op)
{
    Row b0, b1, truth;
    const uint32_t *a = source_row(w, op, 0, b0), *b = source_row(w, op, 1, b1);
    if(!mode::INPUTS_WIDE.of(w.mode))
    {
        // MODE flushes f16 inputs
        for(unsigned l = 0; l < LANES; ++l)
            b0.d[l] = flush_f16(a[l] & 0xffff);
        for(unsigned l = 0; l < LANES; ++l)
            b1.d[l] = flush_f16(b[l] & 0xffff);
        a = b0.d;
        b = b1.d;
    }
    for(unsigned l = 0; l < LANES; ++l)
        truth.d[l] = F(f16_to_f32(a[l] & 0xffff), f16_to_f32(b[l] & 0xffff));
    put_mask(w, op, nonzero_lanes(truth.d));
    return advance(op);
}

// Bit of the class: signalling NaN, quiet NaN, then -inf, -normal, -subnormal, -0, +0, +subnormal,
// +normal, +inf.
uint32_t class_bit(uint64_t bits, unsigned exponent_bits, unsigned mantissa_bits)
{
    const uint64_t mantissa = bits & ((uint64_t{1} << mantissa_bits) - 1);
    const uint64_t exponent = bits >> mantissa_bits & ((uint64_t{1} << exponent_bits) - 1);
    const bool negative     = bits >> (exponent_bits + mantissa_bits) & 1;
    if(exponent == (uint64_t{1} << exponent_bits) - 1)
    {
        if(mantissa != 0)
            return mantissa >> (mantissa_bits - 1) & 1 ? 1 : 0;
        return negative ? 2 : 9;
    }
    if(exponent != 0)
        return negative ? 3 : 8;
    if(mantissa != 0)
        return negative ? 4 : 7;
    return negative ? 5 : 6;
}

template <unsigned Bits>
EMU_ONCE const MicroOp* compare_class(Wave& w, const MicroOp* op)
{
    Row b0, h0, b1;
    uint64_t mask          = 0;
    const uint32_t* wanted = source_row(w, op, 1, b1);
    if constexpr(Bits == 64)
    {
        const WideSource a = wide_source(w, op, 0, b0, h0);
        for(unsigned l = 0; l < LANES; ++l)
            mask |= uint64_t{wanted[l] >> class_bit(a[l], 11, 52) & 1} << l;
    }
    else
    {
        const uint32_t* a = source_row(w, op, 0, b0);
        for(unsigned l = 0; l < LANES; ++l)
        {
            const uint32_t found = Bits == 32 ? class_bit(a[l], 8, 23) : class_bit(a[l] & 0xffff, 5, 10);
            mask |= uint64_t{wanted[l] >> found & 1} << l;
        }
    }
    put_mask(w, op, mask);
    return advance(op);
}

using Both = std::array<Entry, 2>;

template <Handler Compare>
constexpr Both both(const char* name, const char* replacing)
{
    return {{{name, Compare}, {replacing, replace_exec<Compare>}}};
}

#define BOTH_OF(NAME, ...)   both<__VA_ARGS__>("v_cmp_" NAME, "v_cmpx_" NAME)
#define BOTH(NAME, T, ...)   BOTH_OF(NAME, compare<T, ([](T a, T b) -> bool { return __VA_ARGS__; })>)
#define HALF_BOTH(NAME, ...) BOTH_OF(NAME, compare_half<([](float a, float b) -> bool { return __VA_ARGS__; })>)

#define INTEGERS(TYPE, T)                                                                                   \
    BOTH("f_" TYPE, T, (void(a), void(b), false)), BOTH("lt_" TYPE, T, a < b), BOTH("eq_" TYPE, T, a == b), \
        BOTH("le_" TYPE, T, a <= b), BOTH("gt_" TYPE, T, a > b), BOTH("ne_" TYPE, T, a != b),               \
        BOTH("ge_" TYPE, T, a >= b), BOTH("t_" TYPE, T, (void(a), void(b), true))

#define FLOATS(WHICH, TYPE, ...)                                                                                   \
    WHICH("f_" TYPE __VA_OPT__(, ) __VA_ARGS__, (void(a), void(b), false)),                                        \
        WHICH("lt_" TYPE __VA_OPT__(, ) __VA_ARGS__, a < b), WHICH("eq_" TYPE __VA_OPT__(, ) __VA_ARGS__, a == b), \
        WHICH("le_" TYPE __VA_OPT__(, ) __VA_ARGS__, a <= b), WHICH("gt_" TYPE __VA_OPT__(, ) __VA_ARGS__, a > b), \
        WHICH("lg_" TYPE __VA_OPT__(, ) __VA_ARGS__, (a < b || a > b)),                                            \
        WHICH("ge_" TYPE __VA_OPT__(, ) __VA_ARGS__, a >= b),                                                      \
        WHICH("o_" TYPE __VA_OPT__(, ) __VA_ARGS__, a == a && b == b),                                             \
        WHICH("u_" TYPE __VA_OPT__(, ) __VA_ARGS__, a != a || b != b),                                             \
        WHICH("nge_" TYPE __VA_OPT__(, ) __VA_ARGS__, !(a >= b)),                                                  \
        WHICH("nlg_" TYPE __VA_OPT__(, ) __VA_ARGS__, !(a < b || a > b)),                                          \
        WHICH("ngt_" TYPE __VA_OPT__(, ) __VA_ARGS__, !(a > b)),                                                   \
        WHICH("nle_" TYPE __VA_OPT__(, ) __VA_ARGS__, !(a <= b)),                                                  \
        WHICH("neq_" TYPE __VA_OPT__(, ) __VA_ARGS__, !(a == b)),                                                  \
        WHICH("nlt_" TYPE __VA_OPT__(, ) __VA_ARGS__, !(a < b)),                                                   \
        WHICH("tru_" TYPE __VA_OPT__(, ) __VA_ARGS__, (void(a), void(b), true))

constexpr Both PAIRS[] = {
    INTEGERS("i16", int16_t),
    INTEGERS("u16", uint16_t),
    INTEGERS("i32", int32_t),
    INTEGERS("u32", uint32_t),
    INTEGERS("i64", int64_t),
    INTEGERS("u64", uint64_t),
    FLOATS(BOTH, "f32", float),
    FLOATS(BOTH, "f64", double),
    FLOATS(HALF_BOTH, "f16"),
    BOTH_OF("class_f16", compare_class<16>),
    BOTH_OF("class_f32", compare_class<32>),
    BOTH_OF("class_f64", compare_class<64>),
};

constexpr auto ENTRIES = [] {
    std::array<Entry, 2 * std::size(PAIRS)> entries = {};
    for(size_t i = 0; i < entries.size(); ++i)
        entries[i] = PAIRS[i / 2][i % 2];
    return entries;
}();
} // namespace

std::span<const Entry> compare_entries() { return ENTRIES; }
} // namespace emu

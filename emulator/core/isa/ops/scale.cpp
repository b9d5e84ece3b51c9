// CDNA4's v_cvt_scalef32_*: conversions with a scale of a power of two between f32, f16 or bf16 and
// the formats of 8, 6 and 4 bits (CDNA4 ISA document, section 12.11, opcodes 565 to 618).
//
// The last source is the scale. MicroOp::control is the bit of the register with small values where
// they start (op_sel). They round to nearest or by random bits in every MODE; its denormal
// field holds for f32 sources, its FP16_OVFL for results of 8 bits (section 6.7.1).
#include "isa/operands.h"
#include "isa/registry.h"
#include "isa/scaled_formats.h"

namespace emu {
namespace {
// How many values, and in which sources they are.
enum class Shape
{
    One,
    Two,        // packed in one source: 16 bits each, or f32 in two registers
    TwoSources, // an f32 in each of the first two
    Block,      // 32 packed values
    Interleaved // 16 f32 in each of the first two sources, taken in turn
};

constexpr unsigned count(Shape shape)
{
    return shape == Shape::One ? 1 : shape == Shape::Two || shape == Shape::TwoSources ? 2 : 32;
}

struct Scale
{
    bool nan;
    int power;
};

Scale scale_of(uint32_t bits)
{
    const uint32_t exponent = bits >> 23 & 0xff;
    return {exponent == SCALE_NAN, static_cast<int>(exponent) - SCALE_BIAS};
}

// The registers of wide values: where the first, second, ... of them are.
struct WideRows
{
    const uint32_t* row[32];
    unsigned shift[32];
};

template <typename Wide, Shape S>
WideRows wide_rows(const Wave& w, const MicroOp* op, Row& first, Row& second)
{
    WideRows rows = {};
    for(unsigned i = 0; i < count(S); ++i)
    {
        const unsigned part = Wide::BITS == 16 ? i / 2 : i;
        rows.shift[i]       = Wide::BITS == 16 ? 16 * (i % 2) : 0;
        if constexpr(S == Shape::Interleaved)
            rows.row[i] = w.v[op->src[i % 2].code + i / 2];
        else if constexpr(S == Shape::TwoSources)
            rows.row[i] = source_row(w, op, i, i == 0 ? first : second);
        else
            rows.row[i] = part == 0 ? source_row(w, op, 0, first) : w.v[op->src[0].code + part];
    }
    return rows;
}

// The next random number for a packed conversion (v_prng_b32).
uint32_t next_random(uint32_t value) { return value << 1 ^ (value >> 31 ? 197u : 0u); }

// Writes `bits` bits of a lane's value at a bit offset of consecutive registers.
void put_bits(Wave& w, unsigned row, unsigned lane, unsigned offset, unsigned bits, uint32_t value)
{
    for(unsigned done = 0; done < bits;)
    {
        const unsigned at = (offset + done) % 32, some = std::min(bits - done, 32 - at);
        const uint32_t mask = (some == 32 ? ~0u : (1u << some) - 1) << at;
        uint32_t& word      = w.v[row + (offset + done) / 32][lane];
        word                = (word & ~mask) | (value >> done << at & mask);
        done += some;
    }
}

uint32_t get_bits(const uint32_t* const* rows, unsigned lane, unsigned offset, unsigned bits)
{
    const unsigned at = offset % 32;
    uint64_t pair     = rows[offset / 32][lane];
    if(at + bits > 32)
        pair |= uint64_t{rows[offset / 32 + 1][lane]} << 32;
    return static_cast<uint32_t>(pair >> at) & ((1u << bits) - 1);
}

// To a small format; the other bits of the destination stay.
template <typename Wide, typename Small, Shape S, bool Stochastic>
const MicroOp* narrow(Wave& w, const MicroOp* op)
{
    Row b0, b1, b2, b3;
    const WideRows wide    = wide_rows<Wide, S>(w, op, b0, b1);
    const uint32_t* scales = source_row(w, op, op->dwords[2] != 0 ? 2 : 1, b2);
    const uint32_t* seeds  = Stochastic ? source_row(w, op, 1, b3) : nullptr;
    const bool saturate    = mode::FP16_OVFL.of(w.mode);
    const bool flush       = Wide::BITS == 32 && !mode::INPUTS_F32.of(w.mode);
    const uint64_t exec    = w.exec();
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(!(exec >> l & 1))
            continue;
        const Scale scale = scale_of(scales[l]);
        uint32_t random   = Stochastic ? seeds[l] : 0;
        uint32_t codes[count(S)];
        for(unsigned i = 0; i < count(S); ++i)
        {
            uint32_t source = wide.row[i][l] >> wide.shift[i];
            if(flush && (source & Wide::INFINITE) == 0)
                source &= Wide::SIGN;
            codes[i] =
                convert_scaled<Wide, Small>(source, scale.nan, -scale.power, saturate, Stochastic ? &random : nullptr);
            random = next_random(random);
        }
        for(unsigned i = 0; i < count(S); ++i)
            put_bits(w, op->dst, l, op->control + i * Small::BITS, Small::BITS, codes[i]);
    }
    return advance(op);
}

// From a small format. One 16-bit result goes to the half that op_sel names.
template <typename Small, typename Wide, Shape S>
const MicroOp* widen(Wave& w, const MicroOp* op)
{
    Row b0, b1;
    constexpr unsigned REGISTERS        = (count(S) * Small::BITS + 31) / 32;
    const uint32_t* rows[REGISTERS + 1] = {}; // the last value of six bits ends with its register
    for(unsigned i = 0; i < REGISTERS; ++i)
        rows[i] = i == 0 ? source_row(w, op, 0, b0) : w.v[op->src[0].code + i];
    const uint32_t* scales = source_row(w, op, 1, b1);
    const uint64_t exec    = w.exec();
    const unsigned half    = S == Shape::One && op->flags & HIGH_HALF ? 16 : 0;
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(!(exec >> l & 1))
            continue;
        const Scale scale = scale_of(scales[l]);
        uint32_t codes[count(S)];
        for(unsigned i = 0; i < count(S); ++i)
            codes[i] = convert_scaled<Small, Wide>(get_bits(rows, l, op->control + i * Small::BITS, Small::BITS),
                                                   scale.nan, scale.power, false);
        for(unsigned i = 0; i < count(S); ++i)
            put_bits(w, op->dst, l, half + i * Wide::BITS, Wide::BITS, codes[i]);
    }
    return advance(op);
}

#define NARROW(NAME, WIDE, SMALL, SHAPE) \
    {"v_cvt_scalef32_" NAME, narrow<Scaled##WIDE, Scaled##SMALL, Shape::SHAPE, false>}
#define RANDOM(NAME, WIDE, SMALL, SHAPE) \
    {"v_cvt_scalef32_sr_" NAME, narrow<Scaled##WIDE, Scaled##SMALL, Shape::SHAPE, true>}
#define WIDEN(NAME, SMALL, WIDE, SHAPE) {"v_cvt_scalef32_" NAME, widen<Scaled##SMALL, Scaled##WIDE, Shape::SHAPE>}

#define NARROW_16(NAME, SMALL, SHAPE) NARROW(NAME "_f16", F16, SMALL, SHAPE), NARROW(NAME "_bf16", Bf16, SMALL, SHAPE)
#define RANDOM_ALL(NAME, SMALL, SHAPE)                                              \
    RANDOM(NAME "_f32", F32, SMALL, SHAPE), RANDOM(NAME "_f16", F16, SMALL, SHAPE), \
        RANDOM(NAME "_bf16", Bf16, SMALL, SHAPE)
#define WIDEN_ALL(PREFIX, NAME, SMALL, SHAPE)                                                   \
    WIDEN(PREFIX "f32_" NAME, SMALL, F32, SHAPE), WIDEN(PREFIX "f16_" NAME, SMALL, F16, SHAPE), \
        WIDEN(PREFIX "bf16_" NAME, SMALL, Bf16, SHAPE)
// Formats of 8 bits, and of 6 bits.
#define BYTES(NAME, SMALL)                                                                                      \
    NARROW("pk_" NAME "_f32", F32, SMALL, TwoSources), NARROW_16("pk_" NAME, SMALL, Two),                       \
        RANDOM_ALL(NAME, SMALL, One), WIDEN("f32_" NAME, SMALL, F32, One), WIDEN("f16_" NAME, SMALL, F16, One), \
        WIDEN_ALL("pk_", NAME, SMALL, Two)
#define BLOCKS(NAME, SMALL)                                                                        \
    NARROW("2xpk16_" NAME "_f32", F32, SMALL, Interleaved), NARROW_16("pk32_" NAME, SMALL, Block), \
        RANDOM_ALL("pk32_" NAME, SMALL, Block), WIDEN_ALL("pk32_", NAME, SMALL, Block)

constexpr Entry ENTRIES[] = {
    BYTES("fp8", Fp8),
    BYTES("bf8", Bf8),
    BLOCKS("fp6", Fp6),
    BLOCKS("bf6", Bf6),
    NARROW("pk_fp4_f32", F32, Fp4, TwoSources),
    NARROW_16("pk_fp4", Fp4, Two),
    RANDOM_ALL("pk_fp4", Fp4, Two),
    WIDEN_ALL("pk_", "fp4", Fp4, Two),
};
} // namespace

std::span<const Entry> scale_entries() { return ENTRIES; }
} // namespace emu

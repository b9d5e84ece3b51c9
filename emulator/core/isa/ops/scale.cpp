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
    const uint32_t* scales = source_row(w, op, op->words[2] != 0 ? 2 : 1, b2);
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
            codes[i] = convert_scaled<Wide, Small>(
                source, scale.nan, -scale.power, saturate, Stochastic ? &random : nullptr);
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
            codes[i] = convert_scaled<Small, Wide>(
                get_bits(rows, l, op->control + i * Small::BITS, Small::BITS),
                scale.nan,
                scale.power,
                false);
        for(unsigned i = 0; i < count(S); ++i)
            put_bits(w, op->dst, l, half + i * Wide::BITS, Wide::BITS, codes[i]);
    }
    return advance(op);
}

#define NARROW(NAME, WIDE, SMALL, SHAPE) \
    {"v_cvt_scalef32_" NAME, narrow<Scaled##WIDE, Scaled##SMALL, Shape::SHAPE, false>}
#define RANDOM(NAME, WIDE, SMALL, SHAPE) \
    {"v_cvt_scalef32_sr_" NAME, narrow<Scaled##WIDE, Scaled##SMALL, Shape::SHAPE, true>}
#define WIDEN(NAME, SMALL, WIDE, SHAPE) \
    {"v_cvt_scalef32_" NAME, widen<Scaled##SMALL, Scaled##WIDE, Shape::SHAPE>}

constexpr Entry ENTRIES[] = {
    NARROW("pk_fp8_f32", F32, Fp8, TwoSources),
    NARROW("pk_bf8_f32", F32, Bf8, TwoSources),
    NARROW("pk_fp4_f32", F32, Fp4, TwoSources),
    NARROW("pk_fp8_f16", F16, Fp8, Two),
    NARROW("pk_bf8_f16", F16, Bf8, Two),
    NARROW("pk_fp4_f16", F16, Fp4, Two),
    NARROW("pk_fp8_bf16", Bf16, Fp8, Two),
    NARROW("pk_bf8_bf16", Bf16, Bf8, Two),
    NARROW("pk_fp4_bf16", Bf16, Fp4, Two),
    NARROW("2xpk16_fp6_f32", F32, Fp6, Interleaved),
    NARROW("2xpk16_bf6_f32", F32, Bf6, Interleaved),
    NARROW("pk32_fp6_f16", F16, Fp6, Block),
    NARROW("pk32_bf6_f16", F16, Bf6, Block),
    NARROW("pk32_fp6_bf16", Bf16, Fp6, Block),
    NARROW("pk32_bf6_bf16", Bf16, Bf6, Block),
    RANDOM("fp8_f32", F32, Fp8, One),
    RANDOM("bf8_f32", F32, Bf8, One),
    RANDOM("fp8_f16", F16, Fp8, One),
    RANDOM("bf8_f16", F16, Bf8, One),
    RANDOM("fp8_bf16", Bf16, Fp8, One),
    RANDOM("bf8_bf16", Bf16, Bf8, One),
    RANDOM("pk_fp4_f32", F32, Fp4, Two),
    RANDOM("pk_fp4_f16", F16, Fp4, Two),
    RANDOM("pk_fp4_bf16", Bf16, Fp4, Two),
    RANDOM("pk32_fp6_f32", F32, Fp6, Block),
    RANDOM("pk32_bf6_f32", F32, Bf6, Block),
    RANDOM("pk32_fp6_f16", F16, Fp6, Block),
    RANDOM("pk32_bf6_f16", F16, Bf6, Block),
    RANDOM("pk32_fp6_bf16", Bf16, Fp6, Block),
    RANDOM("pk32_bf6_bf16", Bf16, Bf6, Block),
    WIDEN("f32_fp8", Fp8, F32, One),
    WIDEN("f32_bf8", Bf8, F32, One),
    WIDEN("f16_fp8", Fp8, F16, One),
    WIDEN("f16_bf8", Bf8, F16, One),
    WIDEN("pk_f32_fp8", Fp8, F32, Two),
    WIDEN("pk_f32_bf8", Bf8, F32, Two),
    WIDEN("pk_f32_fp4", Fp4, F32, Two),
    WIDEN("pk_f16_fp8", Fp8, F16, Two),
    WIDEN("pk_f16_bf8", Bf8, F16, Two),
    WIDEN("pk_f16_fp4", Fp4, F16, Two),
    WIDEN("pk_bf16_fp8", Fp8, Bf16, Two),
    WIDEN("pk_bf16_bf8", Bf8, Bf16, Two),
    WIDEN("pk_bf16_fp4", Fp4, Bf16, Two),
    WIDEN("pk32_f32_fp6", Fp6, F32, Block),
    WIDEN("pk32_f32_bf6", Bf6, F32, Block),
    WIDEN("pk32_f16_fp6", Fp6, F16, Block),
    WIDEN("pk32_f16_bf6", Bf6, F16, Block),
    WIDEN("pk32_bf16_fp6", Fp6, Bf16, Block),
    WIDEN("pk32_bf16_bf6", Bf6, Bf16, Block),
};

} // namespace

std::span<const Entry> scale_entries() { return ENTRIES; }

} // namespace emu

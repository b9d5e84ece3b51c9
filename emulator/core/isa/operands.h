// Reading sources and writing results of vector instructions, 64 lanes at a time.
//
// A source is a pointer to 64 dwords: the register itself where possible, else a buffer with the
// broadcast or modified value. Results are made in a buffer and committed under EXEC. The compiler
// turns the lane loops into vector code.
#pragma once

#include "isa/fast.h"
#include "isa/fields.h"
#include "isa/float_formats.h"
#include "isa/wave.h"

#include <bit>
#include <cmath>
#include <cstdint>

#if defined(__AVX512F__) || defined(__AVX2__)
// GCC 12 warns about its own header's undefined vectors.
#ifndef __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#ifndef __clang__
#pragma GCC diagnostic pop
#endif
#endif

namespace emu {
struct alignas(64) Row
{
    uint32_t d[LANES];
};

// Several lanes, as vectors that GCC and clang have for every instruction set: for loops of which
// neither makes vector code by itself.
constexpr unsigned SEVERAL = 16;
using Words                = uint32_t __attribute__((vector_size(4 * SEVERAL)));

// Word is uint32_t for one lane, or Words.
template <typename Word>
Word lanes_at(const uint32_t* from)
{
    Word word;
    std::memcpy(&word, from, sizeof word);
    return word;
}

// The bits in the other order.
inline uint32_t reverse_bits(uint32_t a)
{
    a = (a >> 1 & 0x55555555) | (a & 0x55555555) << 1;
    a = (a >> 2 & 0x33333333) | (a & 0x33333333) << 2;
    a = (a >> 4 & 0x0f0f0f0f) | (a & 0x0f0f0f0f) << 4;
    return __builtin_bswap32(a);
}

inline float as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t as_bits(float value) { return std::bit_cast<uint32_t>(value); }

inline uint32_t scalar_value(const Wave& w, const MicroOp* op, uint16_t code)
{
    return code == LITERAL ? op->literal : w.s[code - SCALAR];
}

inline uint64_t scalar_pair(const Wave& w, const MicroOp* op, uint16_t code)
{
    if(code == WIDE)
        return uint64_t{op->literal_high} << 32 | op->literal;
    // Inline integers are sign-extended.
    if(code >= SCALAR + 128 && code <= SCALAR + 208)
        return static_cast<uint64_t>(int64_t{static_cast<int32_t>(w.s[code - SCALAR])});
    // 0.5 to -4.0 are held as f32. 1/(2 pi), which is another number in f64, is a literal.
    if(code >= SCALAR + 240 && code <= SCALAR + 247)
        return std::bit_cast<uint64_t>(static_cast<double>(as_float(w.s[code - SCALAR])));
    return w.pair(code - SCALAR);
}

const uint32_t* modified_row(const Wave& w, const MicroOp* op, unsigned i, Row& buffer);

inline void broadcast(uint32_t value, Row& buffer)
{
    for(unsigned l = 0; l < LANES; ++l)
        buffer.d[l] = value;
}

// A source without its modifiers.
inline const uint32_t* plain_row(const Wave& w, const MicroOp* op, uint16_t code, Row& buffer)
{
    if(code < SCALAR)
        return w.v[code];
    broadcast(scalar_value(w, op, code), buffer);
    return buffer.d;
}

inline const uint32_t* source_row(const Wave& w, const MicroOp* op, unsigned i, Row& buffer)
{
    const Source source = op->src[i];
    if(source.mods != 0 || source.select != DWORD) [[unlikely]]
        return modified_row(w, op, i, buffer);
    return plain_row(w, op, source.code, buffer);
}

// A 64-bit source: 64 low and 64 high dwords. The modifiers of an f64 act on the high ones.
struct WideSource
{
    const uint32_t *low, *high;
    uint64_t operator[](unsigned l) const { return uint64_t{high[l]} << 32 | low[l]; }
};

// The data of other lanes that DPP gives a 64-bit source.
WideSource permuted_wide(const Wave& w, const MicroOp* op, WideSource source, Row& low, Row& high);

inline WideSource wide_source(const Wave& w, const MicroOp* op, unsigned i, Row& low, Row& high)
{
    const Source source = op->src[i];
    WideSource found;
    if(source.code < SCALAR)
    {
        found = {w.v[source.code], w.v[source.code + 1]};
    }
    else
    {
        const uint64_t value = scalar_pair(w, op, source.code);
        broadcast(static_cast<uint32_t>(value), low);
        broadcast(static_cast<uint32_t>(value >> 32), high);
        found = {low.d, high.d};
    }
    if(source.mods & PERMUTED) [[unlikely]]
        found = permuted_wide(w, op, found, low, high);
    if(source.mods & (NEGATE | ABSOLUTE))
    {
        const uint32_t keep  = source.mods & ABSOLUTE ? 0x7fffffff : 0xffffffff,
                       flip  = source.mods & NEGATE ? 0x80000000 : 0;
        const uint32_t* from = found.high;
        for(unsigned l = 0; l < LANES; ++l)
            high.d[l] = (from[l] & keep) ^ flip;
        found.high = high.d;
    }
    return found;
}

// Write the lanes of `mask` from `data`.
inline void store_row(uint32_t* row, const uint32_t* data, uint64_t mask)
{
#ifdef __AVX512F__
    if(FAST && mask == ALL_LANES) [[likely]]
    {
        // A load soon after a masked store would wait until that is in the cache.
        for(unsigned i = 0; i < 4; ++i)
            _mm512_storeu_si512(row + 16 * i, _mm512_loadu_si512(data + 16 * i));
        return;
    }
    for(unsigned i = 0; i < 4; ++i)
        _mm512_mask_store_epi32(row + 16 * i, static_cast<__mmask16>(mask >> 16 * i),
                                _mm512_loadu_si512(data + 16 * i));
#else
    if(mask == ALL_LANES)
    {
        for(unsigned l = 0; l < LANES; ++l)
            row[l] = data[l];
        return;
    }
    for(unsigned l = 0; l < LANES; ++l)
        row[l] = mask >> l & 1 ? data[l] : row[l];
#endif
}

// One bit a lane: set where the dword is not zero.
inline uint64_t nonzero_lanes(const uint32_t* row)
{
#ifdef __AVX512F__
    uint64_t bits = 0;
    for(unsigned i = 0; i < 4; ++i)
    {
        const __m512i part = _mm512_loadu_si512(row + 16 * i);
        bits |= uint64_t{_mm512_test_epi32_mask(part, part)} << 16 * i;
    }
    return bits;
#else
    uint64_t bits = 0;
    for(unsigned l = 0; l < LANES; ++l)
        bits |= uint64_t{row[l] != 0} << l;
    return bits;
#endif
}

// Lanes that an instruction writes: EXEC, less what DPP's masks and bounds disable.
uint64_t permuted_lanes(const Wave& w, const MicroOp* op);
inline uint64_t write_mask(const Wave& w, const MicroOp* op)
{
    return op->flags & DPP ? permuted_lanes(w, op) : w.exec();
}

// Commit a 32-bit result; in SDWA form or with a 16-bit destination only the part selected.
void commit_part(Wave& w, const MicroOp* op, const uint32_t* data);
inline void commit(Wave& w, const MicroOp* op, const uint32_t* data)
{
    if(op->flags & (SDWA | HIGH_HALF | LOW_HALF | DPP)) [[unlikely]]
        return commit_part(w, op, data);
    store_row(w.v[op->dst], data, w.exec());
}

// Where a 32-bit result is made: in the register itself if all of it is written, else in `buffer`,
// and committed.
inline uint32_t* target_row(Wave& w, const MicroOp* op, Row& buffer)
{
    const bool whole = FAST && (op->flags & (SDWA | HIGH_HALF | LOW_HALF | DPP)) == 0 && w.exec() == ALL_LANES;
    return whole ? w.v[op->dst] : buffer.d;
}
inline void commit_target(Wave& w, const MicroOp* op, const uint32_t* made, const Row& buffer)
{
    if(made == buffer.d)
        commit(w, op, made);
}

// omod and clamp of float results (ISA document, "Output modifiers").
void modify_f32(const Wave& w, const MicroOp* op, uint32_t* data);
void modify_f64(const Wave& w, const MicroOp* op, uint32_t* low, uint32_t* high);
// omod as it takes effect: the hardware ignores it with MODE.IEEE and where results keep their
// denormals (LLVM, SIFoldOperands::isOMod).
inline unsigned effective_omod(const Wave& w, const MicroOp* op, bool denormal_results)
{
    return denormal_results || mode::IEEE.of(w.mode) ? 0u : op->omod & 3u;
}
inline bool output_modified(const MicroOp* op) { return op->omod != 0 || (op->flags & CLAMP) != 0; }

// The host in the mode of f64 and f16 operations while one of them runs.
class WideMode : HostMode
{
public:
    explicit WideMode(const Wave& w) : HostMode(w.mxcsr, w.mxcsr_wide) {}
};

inline bool is_gfx90a(const Wave& w) { return w.group->arch == 910; }
inline bool ieee_mode(const Wave& w) { return mode::IEEE.of(w.mode); }
// How results in f64 and f16 are rounded.
inline Round wide_round(const Wave& w) { return static_cast<Round>(mode::ROUND_WIDE.of(w.mode)); }
// Whether a result of f16 or 8 bits that is too large becomes the largest number.
inline bool saturates(const Wave& w) { return mode::FP16_OVFL.of(w.mode); }
inline bool dx10_clamp(const Wave& w) { return mode::DX10_CLAMP.of(w.mode); }

// Dwords on their way to scalar registers.
inline void issue_scalars(Wave& w, const MicroOp* op, uint16_t code, const void* data, unsigned dwords)
{
    PendingWrite write;
    write.target = PendingWrite::Target::ScalarRegister;
    write.index  = code - SCALAR;
    write.op     = op;
    write.data.resize(dwords);
    std::memcpy(write.data.data(), data, 4 * dwords);
    issue(w, Counter::Scalar, std::move(write));
}

// Handlers return this to go on with the next micro-op.
inline const MicroOp* advance(const MicroOp* op) { return op + 1; }
inline const MicroOp* nothing(Wave&, const MicroOp* op) { return advance(op); }
} // namespace emu

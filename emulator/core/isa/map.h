// Handlers made from a function of one lane.
#pragma once

#include "isa/operands.h"

#include <type_traits>
#include <utility>

namespace emu {

// The loops below are over one lane each; the compiler turns them into vector code.

// D = F(sources) on 32-bit integers.
template <unsigned N, auto F>
const MicroOp* map_integer(Wave& w, const MicroOp* op)
{
    Row b0, b1, b2, buffer;
    uint32_t* const out = target_row(w, op, buffer);
    const uint32_t* a = source_row(w, op, 0, b0);
    if constexpr(N == 1)
    {
        EMU_LANES_ALONE
        for(unsigned l = 0; l < LANES; ++l)
            out[l] = static_cast<uint32_t>(F(a[l]));
    }
    else if constexpr(N == 2)
    {
        const uint32_t* b = source_row(w, op, 1, b1);
        EMU_LANES_ALONE
        for(unsigned l = 0; l < LANES; ++l)
            out[l] = static_cast<uint32_t>(F(a[l], b[l]));
    }
    else
    {
        const uint32_t* b = source_row(w, op, 1, b1);
        const uint32_t* c = source_row(w, op, 2, b2);
        EMU_LANES_ALONE
        for(unsigned l = 0; l < LANES; ++l)
            out[l] = static_cast<uint32_t>(F(a[l], b[l], c[l]));
    }
    commit_target(w, op, out, buffer);
    return advance(op);
}

// D = F(sources) on f32, with the output modifiers.
template <unsigned N, auto F>
const MicroOp* map_f32(Wave& w, const MicroOp* op)
{
    Row b0, b1, b2, buffer;
    uint32_t* const out = target_row(w, op, buffer);
    const uint32_t* a = source_row(w, op, 0, b0);
    if constexpr(N == 1)
    {
        EMU_LANES_ALONE
        for(unsigned l = 0; l < LANES; ++l)
            out[l] = as_bits(F(as_float(a[l])));
    }
    else if constexpr(N == 2)
    {
        const uint32_t* b = source_row(w, op, 1, b1);
        EMU_LANES_ALONE
        for(unsigned l = 0; l < LANES; ++l)
            out[l] = as_bits(F(as_float(a[l]), as_float(b[l])));
    }
    else
    {
        const uint32_t* b = source_row(w, op, 1, b1);
        const uint32_t* c = source_row(w, op, 2, b2);
        EMU_LANES_ALONE
        for(unsigned l = 0; l < LANES; ++l)
            out[l] = as_bits(F(as_float(a[l]), as_float(b[l]), as_float(c[l])));
    }
    if(output_modified(op)) [[unlikely]]
        modify_f32(w, op, out);
    commit_target(w, op, out, buffer);
    return advance(op);
}

// f32 subnormals made zeros of their sign.
inline uint32_t flushed(uint32_t bits) { return bits & 0x7f800000 ? bits : bits & 0x80000000; }
inline const uint32_t* flushed_row(const uint32_t* from, Row& buffer)
{
    for(unsigned l = 0; l < LANES; ++l)
        buffer.d[l] = flushed(from[l]);
    return buffer.d;
}
inline void flush_row(uint32_t* row)
{
    for(unsigned l = 0; l < LANES; ++l)
        row[l] = flushed(row[l]);
}

// The same with a first argument that is one value for all lanes: G(w). F takes a lane, or Words.
template <unsigned N, auto F, auto G, typename Word = uint32_t>
const MicroOp* map_f32_mode(Wave& w, const MicroOp* op)
{
    Row b0, b1, b2, buffer;
    uint32_t* const out = target_row(w, op, buffer);
    const auto mode = G(w);
    // F takes bits, so the host's own flushing does not reach them.
    const bool flush  = !mode::INPUTS_F32.of(w.mode);
    const uint32_t* a = source_row(w, op, 0, b0);
    const uint32_t* b = source_row(w, op, 1, b1);
    if(flush) [[unlikely]]
    {
        a = flushed_row(a, b0);
        b = flushed_row(b, b1);
    }
    if constexpr(N == 2)
    {
        for(unsigned l = 0; l < LANES; l += sizeof(Word) / 4)
        {
            const Word result = F(mode, lanes_at<Word>(a + l), lanes_at<Word>(b + l));
            std::memcpy(out + l, &result, sizeof result);
        }
    }
    else
    {
        const uint32_t* c = source_row(w, op, 2, b2);
        if(flush) [[unlikely]]
            c = flushed_row(c, b2);
        for(unsigned l = 0; l < LANES; l += sizeof(Word) / 4)
        {
            const Word result =
                F(mode, lanes_at<Word>(a + l), lanes_at<Word>(b + l), lanes_at<Word>(c + l));
            std::memcpy(out + l, &result, sizeof result);
        }
    }
    if(!mode::RESULTS_F32.of(w.mode)) [[unlikely]]
        flush_row(out);
    if(output_modified(op)) [[unlikely]]
        modify_f32(w, op, out);
    commit_target(w, op, out, buffer);
    return advance(op);
}

// Write a 64-bit result under EXEC.
inline void commit_wide(Wave& w, const MicroOp* op, const uint32_t* low, const uint32_t* high)
{
    const uint64_t mask = write_mask(w, op);
    store_row(w.v[op->dst], low, mask);
    store_row(w.v[op->dst + 1], high, mask);
}

} // namespace emu

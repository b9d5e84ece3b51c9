// Handlers made from a function of one lane.
#pragma once

#include "isa/operands.h"

#include <type_traits>
#include <utility>

namespace emu {

// The loops below are over one lane each; the compiler turns them into vector code.

// out = f(sources), on bits.
template <unsigned N, typename F>
void map_lanes(Wave& w, const MicroOp* op, uint32_t* out, F f)
{
    Row b0, b1, b2;
    const uint32_t* a = source_row(w, op, 0, b0);
    if constexpr(N == 1)
    {
        EMU_LANES_ALONE
        for(unsigned l = 0; l < LANES; ++l)
            out[l] = f(a[l]);
    }
    else if constexpr(N == 2)
    {
        const uint32_t* b = source_row(w, op, 1, b1);
        EMU_LANES_ALONE
        for(unsigned l = 0; l < LANES; ++l)
            out[l] = f(a[l], b[l]);
    }
    else
    {
        const uint32_t* b = source_row(w, op, 1, b1);
        const uint32_t* c = source_row(w, op, 2, b2);
        EMU_LANES_ALONE
        for(unsigned l = 0; l < LANES; ++l)
            out[l] = f(a[l], b[l], c[l]);
    }
}

// D = F(sources) on 32-bit integers.
template <unsigned N, auto F>
const MicroOp* map_integer(Wave& w, const MicroOp* op)
{
    Row buffer;
    uint32_t* const out = target_row(w, op, buffer);
    map_lanes<N>(w, op, out, [](auto... bits) { return static_cast<uint32_t>(F(bits...)); });
    commit_target(w, op, out, buffer);
    return advance(op);
}

// D = F(sources) on f32, with the output modifiers.
template <unsigned N, auto F>
const MicroOp* map_f32(Wave& w, const MicroOp* op)
{
    Row buffer;
    uint32_t* const out = target_row(w, op, buffer);
    map_lanes<N>(w, op, out, [](auto... bits) { return as_bits(F(as_float(bits)...)); });
    if(output_modified(op)) [[unlikely]]
        modify_f32(w, op, out);
    commit_target(w, op, out, buffer);
    return advance(op);
}

// f32 subnormals made zeros of their sign. Word: a lane's bits, or Words.
template <typename Word>
Word flushed(Word bits)
{
    return (bits & 0x7f800000) != 0 ? bits : bits & 0x80000000;
}
inline const uint32_t* flushed_row(const uint32_t* from, Row& buffer)
{
    for(unsigned l = 0; l < LANES; ++l)
        buffer.d[l] = flushed(from[l]);
    return buffer.d;
}

// The same with a first argument that is one value for all lanes: G(w). F takes a lane, or Words.
template <unsigned N, auto F, auto G, typename Word = uint32_t>
const MicroOp* map_f32_mode(Wave& w, const MicroOp* op)
{
    Row b0, b1, b2, buffer;
    uint32_t* const out = target_row(w, op, buffer);
    const auto mode     = G(w);
    // F takes bits, so the host's own flushing does not reach them.
    const bool flush_inputs = !mode::INPUTS_F32.of(w.mode),
               flush_result = !mode::RESULTS_F32.of(w.mode);
    const uint32_t* a       = source_row(w, op, 0, b0);
    const uint32_t* b       = source_row(w, op, 1, b1);
    const uint32_t* c       = N == 3 ? source_row(w, op, 2, b2) : b;
    const auto input        = [=](const uint32_t* from) {
        const Word word = lanes_at<Word>(from);
        return flush_inputs ? flushed(word) : word;
    };
    for(unsigned l = 0; l < LANES; l += sizeof(Word) / 4)
    {
        Word result;
        if constexpr(N == 2)
            result = F(mode, input(a + l), input(b + l));
        else
            result = F(mode, input(a + l), input(b + l), input(c + l));
        if(flush_result)
            result = flushed(result);
        std::memcpy(out + l, &result, sizeof result);
    }
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

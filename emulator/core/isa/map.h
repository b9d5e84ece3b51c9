// Handlers made from a function of one lane.
#pragma once

#include "isa/operands.h"

#include <type_traits>
#include <utility>

namespace emu {
// The loops below are over one lane each; the compiler turns them into vector code.

// f(rows of the N sources).
template <unsigned N, typename F>
auto with_sources(const Wave& w, const MicroOp* op, F f)
{
    Row buffers[N];
    return [&]<unsigned... I>(std::integer_sequence<unsigned, I...>) {
        return f(source_row(w, op, I, buffers[I])...);
    }(std::make_integer_sequence<unsigned, N>{});
}

// out = f(sources), on bits.
template <unsigned N, typename F>
void map_lanes(const Wave& w, const MicroOp* op, uint32_t* out, F f)
{
    with_sources<N>(w, op, [=](const auto*... rows) {
        EMU_LANES_ALONE
        for(unsigned l = 0; l < LANES; ++l)
            out[l] = f(rows[l]...);
    });
}

// D = f(sources), made beside the registers: in any of their parts.
template <unsigned N, typename F>
const MicroOp* commit_lanes(Wave& w, const MicroOp* op, F f)
{
    Row out;
    map_lanes<N>(w, op, out.d, f);
    commit(w, op, out.d);
    return advance(op);
}

// The output modifiers of f32, then D: of a row beside the registers, or where target_row has it.
inline const MicroOp* commit_f32(Wave& w, const MicroOp* op, uint32_t* out, const Row& buffer)
{
    if(output_modified(op)) [[unlikely]]
        modify_f32(w, op, out);
    commit_target(w, op, out, buffer);
    return advance(op);
}
inline const MicroOp* commit_f32(Wave& w, const MicroOp* op, Row& out) { return commit_f32(w, op, out.d, out); }

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
    return commit_f32(w, op, out, buffer);
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

// As map_f32, but F's first argument is G(w), computed once for all lanes. F takes a lane, or Words.
template <unsigned N, auto F, auto G, typename Word = uint32_t>
const MicroOp* map_f32_mode(Wave& w, const MicroOp* op)
{
    Row buffer;
    uint32_t* const out = target_row(w, op, buffer);
    const auto mode     = G(w);
    // F takes bits, so the host's own flushing does not reach them.
    const bool flush_inputs = !mode::INPUTS_F32.of(w.mode), flush_result = !mode::RESULTS_F32.of(w.mode);
    const auto input = [=](const uint32_t* from) {
        const Word word = lanes_at<Word>(from);
        return flush_inputs ? flushed(word) : word;
    };
    with_sources<N>(w, op, [=](const auto*... rows) {
        for(unsigned l = 0; l < LANES; l += sizeof(Word) / 4)
        {
            Word result = F(mode, input(rows + l)...);
            if(flush_result)
                result = flushed(result);
            std::memcpy(out + l, &result, sizeof result);
        }
    });
    return commit_f32(w, op, out, buffer);
}

// Write a 64-bit result under EXEC.
inline void commit_wide(Wave& w, const MicroOp* op, const uint32_t* low, const uint32_t* high)
{
    const uint64_t mask = write_mask(w, op);
    store_row(w.v[op->dst], low, mask);
    store_row(w.v[op->dst + 1], high, mask);
}
} // namespace emu

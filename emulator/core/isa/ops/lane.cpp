// Moves between lanes, and between vector and scalar registers.
#include "isa/operands.h"
#include "isa/registry.h"

#include <bit>
#include <utility>

namespace emu {
namespace {
// With EXEC = 0 lane 0 is read.
const MicroOp* v_readfirstlane_b32(Wave& w, const MicroOp* op)
{
    const uint64_t exec   = w.exec();
    const unsigned lane   = exec == 0 ? 0 : static_cast<unsigned>(std::countr_zero(exec));
    const uint16_t code   = op->src[0].code;
    w.s[op->dst - SCALAR] = code < SCALAR ? w.v[code][lane] : scalar_value(w, op, code);
    return advance(op);
}

const MicroOp* v_readlane_b32(Wave& w, const MicroOp* op)
{
    const uint16_t code   = op->src[0].code;
    const unsigned lane   = scalar_value(w, op, op->src[1].code) & 63;
    w.s[op->dst - SCALAR] = code < SCALAR ? w.v[code][lane] : scalar_value(w, op, code);
    return advance(op);
}

// Writes whatever EXEC is.
const MicroOp* v_writelane_b32(Wave& w, const MicroOp* op)
{
    w.v[op->dst][scalar_value(w, op, op->src[1].code) & 63] = scalar_value(w, op, op->src[0].code);
    return advance(op);
}

const MicroOp* v_swap_b32(Wave& w, const MicroOp* op)
{
    const uint64_t exec = w.exec();
    uint32_t *a = w.v[op->dst], *b = w.v[op->src[0].code];
    for(unsigned l = 0; l < LANES; ++l)
        if(exec >> l & 1)
            std::swap(a[l], b[l]);
    return advance(op);
}

// CDNA4 ISA document, v_permlane32_swap_b32: vdst lanes 32-63 and src lanes 0-31 change places.
// v_permlane16_swap_b32: the odd rows of 16 lanes of vdst and the even ones of src. A lane with
// EXEC off keeps its value.
template <unsigned Width>
const MicroOp* permlane_swap(Wave& w, const MicroOp* op)
{
    uint32_t *destination = w.v[op->dst], *source = w.v[op->src[0].code];
    const uint64_t exec = w.exec();
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(l & Width)
            continue;
        const unsigned upper = l + Width;
        const uint32_t low = source[l], high = destination[upper];
        if(exec >> l & 1)
            source[l] = high;
        if(exec >> upper & 1)
            destination[upper] = low;
    }
    return advance(op);
}

const MicroOp* v_accvgpr_mov_b32(Wave& w, const MicroOp* op)
{
    Row buffer;
    const uint32_t* a = plain_row(w, op, op->src[0].code, buffer);
    store_row(w.v[op->dst], a, w.exec());
    return advance(op);
}

// A vector instruction between s_set_gpr_idx_on and s_set_gpr_idx_off: M0[7:0] is added to the
// registers that M0[15:12] names, bits 0 to 2 for the sources and bit 3 for the destination.
template <uint64_t NAME>
const MicroOp* by_index(Wave& w, const MicroOp* op)
{
    constexpr Field INDEX{0, 8}, USES{12, 4};
    constexpr unsigned VECTORS = 256, DESTINATION = 3;
    static const Handler plain = find_handler(NAME);
    const uint32_t m0          = w.s[M0];
    const auto move            = [&](uint16_t& code, unsigned use) {
        if(code >= SCALAR || !(USES.of(m0) >> use & 1))
            return;
        const unsigned moved = code % VECTORS + INDEX.of(m0);
        if(moved >= VECTORS)
            raise_unknown(w, op, "an index after the last vector register");
        code = static_cast<uint16_t>(code / VECTORS * VECTORS + moved);
    };
    MicroOp moved = *op;
    for(unsigned i = 0; i < 3; ++i)
        move(moved.src[i].code, i);
    move(moved.dst, DESTINATION);
    plain(w, &moved);
    return advance(op);
}

constexpr Entry ENTRIES[] = {
    {"v_nop", nothing},
    {"v_clrexcp", nothing},
    {"v_mov_b32_indexed", by_index<name_hash("v_mov_b32")>},
    {"v_add_u32_indexed", by_index<name_hash("v_add_u32")>},
    {"v_mul_f32_indexed", by_index<name_hash("v_mul_f32")>},
    {"v_accvgpr_read_indexed", by_index<name_hash("v_accvgpr_read")>},
    {"v_readfirstlane_b32", v_readfirstlane_b32},
    {"v_readlane_b32", v_readlane_b32},
    {"v_writelane_b32", v_writelane_b32},
    {"v_swap_b32", v_swap_b32},
    {"v_permlane32_swap_b32", permlane_swap<32>},
    {"v_permlane16_swap_b32", permlane_swap<16>},
    {"v_accvgpr_read", v_accvgpr_mov_b32},
    {"v_accvgpr_write", v_accvgpr_mov_b32},
    {"v_accvgpr_mov_b32", v_accvgpr_mov_b32},
};
} // namespace

std::span<const Entry> lane_entries() { return ENTRIES; }
} // namespace emu

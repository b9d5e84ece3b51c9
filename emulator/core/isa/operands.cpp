#include "isa/operands.h"

namespace emu {
namespace {
// The lane that DPP reads for `lane`, or -1 outside of its row or wave (ISA document, "DPP_CTRL").
int dpp_lane(unsigned control, int lane)
{
    const int row = lane & ~15, in_row = lane & 15;
    const auto inside = [&](int wanted) { return wanted >= 0 && wanted < 16 ? row + wanted : -1; };
    if(control <= 0xff)
        return (lane & ~3) | static_cast<int>(control >> 2 * (lane & 3) & 3); // quad_perm
    const int amount = static_cast<int>(control & 15);
    switch(control & ~15u)
    {
        case 0x100: return inside(in_row + amount);        // row_shl
        case 0x110: return inside(in_row - amount);        // row_shr
        case 0x120: return row + ((in_row - amount) & 15); // row_ror
        case 0x150: return row + amount;                   // row_newbcast (gfx90a on)
        default: break;
    }
    switch(control)
    {
        case 0x130: return lane + 1 < 64 ? lane + 1 : -1; // wave_shl
        case 0x134: return (lane + 1) & 63;               // wave_rol
        case 0x138: return lane - 1;                      // wave_shr
        case 0x13c: return (lane - 1) & 63;               // wave_ror
        case 0x140: return row + 15 - in_row;             // row_mirror
        case 0x141: return (lane & ~7) + 7 - (lane & 7);  // row_half_mirror
        case 0x142: return row - 1;                       // row_bcast15: lane 15 of the row before
        default: return lane < 32 ? -1 : 31;              // row_bcast31
    }
}

uint32_t select_part(uint32_t value, unsigned select, bool sign)
{
    switch(select)
    {
        case BYTE_0:
        case BYTE_1:
        case BYTE_2:
        case BYTE_3:
        {
            const uint32_t byte = value >> 8 * select & 0xff;
            return sign ? static_cast<uint32_t>(static_cast<int8_t>(byte)) : byte;
        }
        case WORD_0:
        case WORD_1:
        {
            const uint32_t word = value >> 16 * (select - WORD_0) & 0xffff;
            return sign ? static_cast<uint32_t>(static_cast<int16_t>(word)) : word;
        }
        default: return value;
    }
}
} // namespace

const uint32_t* modified_row(const Wave& w, const MicroOp* op, unsigned i, Row& buffer)
{
    const Source source = op->src[i];
    const uint32_t sign = source.mods & HALF ? 0x8000u : 0x80000000u;
    const uint32_t keep = source.mods & ABSOLUTE ? ~sign : ~0u, flip = source.mods & NEGATE ? sign : 0;
    if(FAST && source.select == DWORD && !(source.mods & PERMUTED)) [[likely]]
    {
        const uint32_t* row = plain_row(w, op, source.code, buffer);
        EMU_LANES_ALONE
        for(unsigned l = 0; l < LANES; ++l)
            buffer.d[l] = (row[l] & keep) ^ flip;
        return buffer.d;
    }
    if(source.mods & PERMUTED)
    {
        const uint32_t* row = w.v[source.code];
        for(unsigned l = 0; l < LANES; ++l)
        {
            const int from = dpp_lane(op->control, static_cast<int>(l));
            buffer.d[l]    = from < 0 || !(w.exec() >> from & 1) ? 0 : row[from];
        }
    }
    else
    {
        const uint32_t* row = plain_row(w, op, source.code, buffer);
        for(unsigned l = 0; l < LANES; ++l)
            buffer.d[l] = row[l];
    }
    if(source.select != DWORD)
        for(unsigned l = 0; l < LANES; ++l)
            buffer.d[l] = select_part(buffer.d[l], source.select, source.mods & SIGN_EXTEND);
    for(unsigned l = 0; l < LANES; ++l)
        buffer.d[l] = (buffer.d[l] & keep) ^ flip;
    return buffer.d;
}

WideSource permuted_wide(const Wave& w, const MicroOp* op, WideSource source, Row& low, Row& high)
{
    for(unsigned l = 0; l < LANES; ++l)
    {
        const int from     = dpp_lane(op->control, static_cast<int>(l));
        const bool nothing = from < 0 || !(w.exec() >> from & 1);
        low.d[l]           = nothing ? 0 : source.low[from];
        high.d[l]          = nothing ? 0 : source.high[from];
    }
    return {low.d, high.d};
}

uint64_t permuted_lanes(const Wave& w, const MicroOp* op)
{
    const uint64_t exec = w.exec();
    uint64_t mask       = 0;
    for(unsigned l = 0; l < LANES; ++l)
    {
        const int from   = dpp_lane(op->control, static_cast<int>(l));
        const bool valid = (op->flags & BOUND_CONTROL) || (from >= 0 && exec >> from & 1);
        const bool row = op->destination_select >> l / 16 & 1, bank = op->destination_unused >> l / 4 % 4 & 1;
        mask |= uint64_t{valid && row && bank} << l;
    }
    return mask & exec;
}

void commit_part(Wave& w, const MicroOp* op, const uint32_t* data)
{
    Row merged;
    uint32_t* old = w.v[op->dst];
    if(op->flags & (HIGH_HALF | LOW_HALF))
    {
        const bool high = op->flags & HIGH_HALF;
        for(unsigned l = 0; l < LANES; ++l)
            merged.d[l] = high ? (old[l] & 0xffff) | data[l] << 16 : (old[l] & 0xffff0000) | (data[l] & 0xffff);
        data = merged.d;
    }
    else if((op->flags & SDWA) && op->destination_select != DWORD)
    {
        const unsigned select = op->destination_select;
        const unsigned shift  = select < WORD_0 ? 8 * select : 16 * (select - WORD_0);
        const uint32_t part   = (select < WORD_0 ? 0xffu : 0xffffu) << shift;
        for(unsigned l = 0; l < LANES; ++l)
        {
            uint32_t value = data[l] << shift & part;
            if(op->destination_unused == 2)
            {
                value |= old[l] & ~part;
            }
            else if(op->destination_unused == 1)
            {
                const unsigned width = select < WORD_0 ? 8 : 16;
                if(data[l] >> (width - 1) & 1)
                    value |= shift + width < 32 ? ~0u << (shift + width) : 0;
            }
            merged.d[l] = value;
        }
        data = merged.d;
    }
    store_row(old, data, write_mask(w, op));
}

void modify_f32(const Wave& w, const MicroOp* op, uint32_t* data)
{
    static constexpr float FACTORS[] = {1.0f, 2.0f, 4.0f, 0.5f};
    const unsigned omod              = effective_omod(w, op, mode::RESULTS_F32.of(w.mode));
    for(unsigned l = 0; l < LANES; ++l)
    {
        float value = as_float(data[l]);
        if(omod)
            value *= FACTORS[omod];
        if(op->flags & CLAMP)
        {
            // DX10_CLAMP makes a NaN zero; without it a NaN stays. Negative by the sign bit: a
            // comparison with zero would take a subnormal result for zero where MODE flushes inputs
            // only.
            if(std::isnan(value))
                value = dx10_clamp(w) ? 0.0f : value;
            else
                value = value > 1.0f ? 1.0f : std::signbit(value) ? 0.0f : value;
        }
        data[l] = as_bits(value);
    }
}

void modify_f64(const Wave& w, const MicroOp* op, uint32_t* low, uint32_t* high)
{
    static constexpr double FACTORS[] = {1.0, 2.0, 4.0, 0.5};
    const unsigned omod               = effective_omod(w, op, mode::RESULTS_WIDE.of(w.mode));
    for(unsigned l = 0; l < LANES; ++l)
    {
        double value = std::bit_cast<double>(uint64_t{high[l]} << 32 | low[l]);
        if(omod)
            value *= FACTORS[omod];
        if(op->flags & CLAMP)
        {
            if(std::isnan(value))
                value = dx10_clamp(w) ? 0.0 : value;
            else
                value = value > 1.0 ? 1.0 : std::signbit(value) ? 0.0 : value;
        }
        const uint64_t bits = std::bit_cast<uint64_t>(value);
        low[l]              = static_cast<uint32_t>(bits);
        high[l]             = static_cast<uint32_t>(bits >> 32);
    }
}
} // namespace emu

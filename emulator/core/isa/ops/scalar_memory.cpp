// SMEM: scalar loads (CDNA3 ISA document, section 8).
#include "isa/access.h"
#include "isa/registry.h"

namespace emu {
namespace {
void doubt_scalars(const Wave& w, uint64_t address, unsigned dwords, uint32_t* data)
{
    for(unsigned i = 0; w.group->doubts && i < dwords; ++i)
        if(never_written(address + 4 * i))
            data[i] ^= DOUBT;
}

// LLVM loads 3 dwords that are aligned to 16 bytes, for which there is no instruction, as 4, and so on
// up to 16: the block is in one page, and what is beyond the allocation is dropped.
bool is_widened(const Wave& w, uint64_t address, unsigned dwords)
{
    return dwords >= 4 && address % (4 * dwords) == 0 && w.group->ranges.check(address, 2 * dwords + 4);
}

void load(Wave& w, const MicroOp* op, uint64_t address, unsigned dwords)
{
    if(w.group->aligned && address % 4 != 0) [[unlikely]]
        raise_misaligned(w, op, Access::Load, NO_LANE, address, 4 * dwords, 4);
    // The hardware clears the two lowest bits.
    address &= ~uint64_t{3};
    if(!w.group->ranges.check(address, 4 * dwords) && !is_widened(w, address, dwords))
        raise_memory(w, op, Access::Load, NO_LANE, address, 4 * dwords);
    if(w.group->races != nullptr) [[unlikely]]
        w.group->races->touch(Access::Load, address, 4 * dwords);
    w.group->traffic.scalar_load_bytes += 4 * dwords;
    const unsigned code = op->dst - SCALAR;
    if(w.group->late) [[unlikely]]
    {
        uint32_t data[16];
        std::memcpy(data, reinterpret_cast<const void*>(address), 4 * dwords);
        doubt_scalars(w, address, dwords, data);
        return issue_scalars(w, op, op->dst, data, dwords);
    }
    std::memcpy(&w.s[code], reinterpret_cast<const void*>(address), 4 * dwords);
    doubt_scalars(w, address, dwords, &w.s[code]);
}

int64_t scalar_offset(const Wave& w, const MicroOp* op, unsigned dwords_of_base)
{
    scalars_must_be_defined(w, op, op->src[0].code, dwords_of_base, "the address");
    if(op->src[1].code != NONE)
        scalars_must_be_defined(w, op, op->src[1].code, 1, "the address");
    return int64_t{op->offset} + (op->src[1].code == NONE ? 0 : w.s[op->src[1].code - SCALAR]);
}

template <unsigned Dwords>
const MicroOp* s_load(Wave& w, const MicroOp* op)
{
    load(w, op, w.pair(op->src[0].code - SCALAR) + static_cast<uint64_t>(scalar_offset(w, op, 2)), Dwords);
    return advance(op);
}

// s_buffer_load: bytes beyond num_records read as zero.
template <unsigned Dwords>
const MicroOp* s_buffer_load(Wave& w, const MicroOp* op)
{
    const uint32_t* srd    = &w.s[op->src[0].code - SCALAR];
    const uint64_t base    = srd[0] | uint64_t{srd[1] & 0xffff} << 32;
    const uint32_t stride  = srd[1] >> 16 & 0x3fff;
    const uint64_t records = stride == 0 ? srd[2] : uint64_t{srd[2]} * stride;
    const uint64_t offset  = static_cast<uint64_t>(scalar_offset(w, op, 4)) & ~uint64_t{3};
    uint32_t data[Dwords]  = {};
    for(unsigned i = 0; i < Dwords; ++i)
    {
        if(offset + 4 * i + 4 > records)
            continue;
        const uint64_t address = (base & ~uint64_t{3}) + offset + 4 * i;
        if(!w.group->ranges.check(address, 4))
            raise_memory(w, op, Access::Load, NO_LANE, address, 4);
        if(w.group->races != nullptr) [[unlikely]]
            w.group->races->touch(Access::Load, address, 4);
        std::memcpy(&data[i], reinterpret_cast<const void*>(address), 4);
        doubt_scalars(w, address, 1, &data[i]);
    }
    w.group->traffic.scalar_load_bytes += 4 * Dwords;
    issue_scalars(w, op, op->dst, data, Dwords);
    return advance(op);
}

// Time passes when a wave looks at it, so that runs repeat and one that waits for a time comes to
// it.
const MicroOp* s_memtime(Wave& w, const MicroOp* op)
{
    constexpr uint64_t TICKS = 1000;
    w.time += TICKS;
    issue_scalars(w, op, op->dst, &w.time, 2);
    return advance(op);
}

constexpr Entry ENTRIES[] = {
    {"s_load_dword", s_load<1>},
    {"s_load_dwordx2", s_load<2>},
    {"s_load_dwordx4", s_load<4>},
    {"s_load_dwordx8", s_load<8>},
    {"s_load_dwordx16", s_load<16>},
    {"s_buffer_load_dword", s_buffer_load<1>},
    {"s_buffer_load_dwordx2", s_buffer_load<2>},
    {"s_buffer_load_dwordx4", s_buffer_load<4>},
    {"s_buffer_load_dwordx8", s_buffer_load<8>},
    {"s_buffer_load_dwordx16", s_buffer_load<16>},
    {"s_memtime", s_memtime},
    {"s_memrealtime", s_memtime},
    {"s_dcache_inv", nothing},
    {"s_dcache_wb", nothing},
    {"s_dcache_inv_vol", nothing},
    {"s_dcache_wb_vol", nothing},
};
} // namespace

std::span<const Entry> scalar_memory_entries() { return ENTRIES; }
} // namespace emu

// LDS reads by all lanes that nothing watches (fast.h): one address each, which one or two
// instruction offsets shift.
#pragma once

#include "checks/banks.h"
#include "isa/access.h"

#include <algorithm>
#include <cstdint>

namespace emu {

// Read Dwords dwords a lane at each of Count offsets, straight into the destination. False, with
// nothing done: a lane is outside of LDS, or the offsets cut dwords, so that they could conflict in
// other banks.
template <unsigned Dwords, unsigned Count>
bool read_lds_fast(Wave& w, const MicroOp* op, const uint32_t (&offsets)[Count])
{
    constexpr unsigned BYTES = 4 * Dwords;
    const uint32_t* address  = w.v[op->src[0].code];
    uint32_t most = 0, shifts = 0, furthest = 0;
    for(unsigned l = 0; l < LANES; ++l)
        most = std::max(most, address[l]);
    for(const uint32_t offset : offsets)
    {
        furthest = std::max(furthest, offset);
        shifts |= offset;
    }
    if(shifts % 4 != 0 || uint64_t{most} + furthest + BYTES > w.group->lds_bytes)
        return false;
    // Whole dwords more on every lane's address turn the banks, no more.
    if(w.group->banks != nullptr)
        w.group->traffic.lds_bank_conflicts +=
            Count * w.group->banks->of(op, address, ALL_LANES, BYTES, LdsUse::Read);
    w.group->traffic.lds_load_bytes += uint64_t{Count} * BYTES * LANES;
    Row kept;
    if(Count > 1 && op->src[0].code - op->dst < int{Count * Dwords} && op->src[0].code >= op->dst)
    {
        std::copy_n(address, LANES, kept.d);
        address = kept.d;
    }
    for(unsigned i = 0; i < Count; ++i)
        gather<Dwords>(w.group->lds + offsets[i], address, ALL_LANES, &w.v[op->dst + Dwords * i]);
    return true;
}

} // namespace emu

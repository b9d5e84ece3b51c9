// Where the lanes of a buffer instruction go (ops/buffer.cpp), for those that convert formats.
#pragma once

#include "isa/access.h"

#include <algorithm>
#include <cstdint>

namespace emu {
// MicroOp::control of MTBUF: with nfmt << 4 and dfmt, which are used in place of the resource's.
inline constexpr uint16_t TYPED = 0x80;

struct Resource
{
    uint64_t base;
    uint64_t records; // bytes, or elements if stride is not 0
    uint32_t stride;
    bool scratch; // the wave's own

    // Begin `soffset` bytes later. The range ends where it did if it is counted in bytes.
    void step(uint32_t soffset, bool by_index = false)
    {
        base += soffset;
        if(!by_index)
            records -= std::min<uint64_t>(records, soffset);
    }
};

// Where each lane of an access goes, relative to the resource's base with soffset added to it.
struct alignas(64) Lanes
{
    uint64_t offset[LANES];
    Resource resource;
    const uint32_t* index; // which is checked: of a structured buffer's element, else null
    uint64_t mask;         // EXEC
    uint64_t whole;        // of these, lanes whose every dword is in range
};

// The lanes of an access of `bytes` a lane, checked; the range check looks at the byte at `skip`.
void aim_buffer(Wave& w, const MicroOp* op, Access access, unsigned bytes, unsigned skip, Lanes& lanes);
} // namespace emu

// LDS bank conflicts: cycles that an LDS instruction takes beyond those of an access without
// conflicts.
//
// LDS has banks of 4 bytes, bank = (address / 4) % banks: 32 on MI200 and MI300, 64 on MI350. A
// wave's access is served in phases of so many lanes that their dwords fill the banks once; which
// lanes share a phase depends on the width (AMD's "amdgpu kernel optimization guide" in
// nod-ai/amd-shark-ai, section "Avoiding LDS Bank Conflicts"; for ds_write_b128 also Composable
// Kernel's "Understanding AMD GPU LDS and Bank Conflicts"). Within a phase, each cycle serves the
// lanes, in ascending order, whose banks no lane of this cycle uses for another dword; lanes
// that want the same dword share it. A phase without conflicts takes one cycle, and every further
// cycle counts as a conflict.
//
// The guide lists the phases of reads. Writes and atomics are as on MI300 for all archs: MI350 has
// doubled the bandwidth of reads only. Not counted: LDS-DMA, and ds_permute and its kin, which use
// the crossbar alone.
#pragma once

#include "isa/microop.h"

#include <array>
#include <cstdint>
#include <vector>

namespace emu {
enum class LdsUse
{
    Read,
    Write,
    Atomic
};

class BankConflicts
{
public:
    explicit BankConflicts(uint32_t arch);
    // Of one access of `bytes` a lane; `addresses` are those of 64 lanes, of which only `mask`'s
    // count.
    uint32_t of(const MicroOp* op, const uint32_t* addresses, uint64_t mask, unsigned bytes, LdsUse use)
    {
        const Known& known = known_[place_of(op)];
        uint32_t changed   = addresses[0] % 4 ^ known.within;
        for(unsigned l = 0; l < 64; ++l)
            changed |= (addresses[l] - addresses[0]) ^ known.relative[l];
        if(changed == 0 && known.op == op && known.mask == mask) [[likely]]
            return known.conflicts;
        return remember(op, addresses, mask, bytes, use);
    }

private:
    // An instruction in a loop mostly moves all its lanes by the same distance, which changes
    // nothing.
    struct Known
    {
        const MicroOp* op     = nullptr;
        uint64_t mask         = 0;
        uint32_t within       = 0; // the first address, within a dword
        uint32_t conflicts    = 0;
        uint32_t relative[64] = {};
    };
    static constexpr size_t KNOWN = 1024; // instructions remembered
    static size_t place_of(const MicroOp* op) { return reinterpret_cast<uintptr_t>(op) / sizeof(MicroOp) % KNOWN; }
    uint32_t remember(const MicroOp* op, const uint32_t* addresses, uint64_t mask, unsigned bytes, LdsUse use);
    uint32_t count(const uint32_t* addresses, uint64_t mask, unsigned bytes, LdsUse use) const;

    unsigned banks_;
    std::vector<Known> known_;
};
} // namespace emu

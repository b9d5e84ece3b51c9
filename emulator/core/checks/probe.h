// What another instruction in the place of one would have changed (option probe): each wave of a
// workgroup runs beside a second one, in lockstep, which executes MicroOp::other where a micro-op
// names one. Until something is decided by it, the second differs in registers, LDS and scratch
// alone, and what becomes of these differences is counted by place and Fate. The first wave does
// what it does without the probe, and it alone writes to global memory.
//
// Where the two part (Decided), the probe is over until the next workgroup.
#pragma once

#include "isa/wave.h"

#include <bitset>
#include <vector>

namespace emu {

enum class Fate : uint8_t
{
    Masked,      // read, with the same result
    Carried,     // read, or found in memory, with another result
    Overwritten, // written over by something equal that does not depend on it
    Landed,      // a wait brought what had been waited for before
    Left,        // still there when the wave ended
    Jump,        // from here on: Decided
    Store,
    Mode,
    Faulted
};

class Probe
{
public:
    explicit Probe(size_t waves) : differing_(waves) {}
    // Before each workgroup, whose waves are alike.
    void start();
    const MicroOp* step(Wave& wave, const MicroOp* op);

private:
    // Rows of the vector file, then scalars by their codes less SCALAR.
    using Places = std::bitset<512 + 256>;

    const MicroOp* store(Wave& wave, const MicroOp* op, bool planted);
    void compare(const Wave& wave, const MicroOp* op, bool whole);
    void compare_places(const Wave& wave, const MicroOp* op, bool whole, Places& places) const;
    void judge(const Wave& wave, const MicroOp* op, const Places& before);
    void decide(const Wave& wave, const MicroOp* op, Fate fate);

    std::vector<Places> differing_; // by wave
    bool memory_ = false;           // LDS or scratch of some wave differs
    bool live_   = false;           // anything does
    bool over_   = false;
};

} // namespace emu

// One wave of a replay: where it is in its stream, and what it waits for.
#pragma once

#include "timing/instruction.h"
#include "timing/loop.h"
#include "timing/replay.h"

#include <array>
#include <cstdint>
#include <vector>

namespace emu {
// Memory operations that s_waitcnt counts, by when they are done.
class Outstanding
{
public:
    void add(uint64_t end) { ends_.push_back(end); }
    // The first cycle from `cycle` on at which no more than `allowed` are under way.
    uint64_t reach(uint64_t cycle, size_t allowed);

private:
    std::vector<uint64_t> ends_;
};

// When the vector registers of a wave can be read.
class Registers
{
public:
    // The cycle from which on an instruction has what it reads, and may write its result.
    uint64_t ready(const Instruction& instruction) const;
    void write(const Instruction& instruction, uint64_t cycle, const Numbers& numbers);

private:
    using Cycles = std::array<uint64_t, 512>;
    static uint64_t last_of(const Cycles& cycles, const RegisterRange& range);

    Cycles result_{};                   // for any instruction
    Cycles matrix_{};                   // of an MFMA: until then a vector instruction can't write
    Cycles forward_{};                  // for an MFMA that adds to all of the same result
    std::array<uint16_t, 512> owner_{}; // first register of that result
};

struct ReplayedWave
{
    const std::vector<Step>* steps = nullptr;
    size_t at                      = 0; // of steps: the next to issue
    uint64_t next                  = 0; // cycle at which it may issue if nothing stalls it
    uint64_t ready                 = 0; // of the next instruction's registers
    uint64_t matrix_end            = 0; // of its last MFMA's passes
    uint32_t group                 = 0;
    int priority                   = 0;
    bool at_barrier                = false;
    bool ended                     = false;
    Registers registers;
    Outstanding vector, other;                // vmcnt, lgkmcnt
    uint64_t vector_order = 0, lds_order = 0; // ends of the last in order
    WaveTime time, at_loop, at_part;          // now; when the loop, the part began
    const std::vector<Part>* parts = nullptr;
    size_t part                    = 0; // of parts
    PhaseTimes phases;
    Loop hot;
    LoopTime loop;
};
} // namespace emu

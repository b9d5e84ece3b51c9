// LDS and the vector memory of one compute unit: what all waves share, and when it has an
// instruction's data. Both serve in the order of issue.
#pragma once

#include "timing/instruction.h"
#include "timing/recorder.h"

#include <array>
#include <cstdint>
#include <deque>
#include <queue>
#include <vector>

namespace emu {
class LdsServer
{
public:
    explicit LdsServer(const Numbers& numbers) : numbers_(numbers) {}
    // From which cycle on the queue of a SIMD's pair has room.
    uint64_t room(unsigned simd, uint64_t cycle) const;
    // Issue an instruction at a cycle; when its data are there, or written.
    uint64_t issue(unsigned simd, uint64_t cycle, const Instruction& instruction, const Step& step);
    // Data of a load to LDS arrive at a cycle.
    void arrive(uint64_t cycle, uint32_t bytes) { arrivals_.emplace(cycle, bytes); }

private:
    // SIMDs 0 and 1, and 2 and 3, have a bus and a queue together.
    struct Pair
    {
        uint64_t free = 0;
        std::deque<uint64_t> served; // ends of service of what waits
    };
    void write_arrived(uint64_t until);

    using Arrival = std::pair<uint64_t, uint32_t>;
    const Numbers& numbers_;
    uint64_t free_ = 0;
    std::array<Pair, SIMDS / 2> pairs_;
    std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> arrivals_;
};

class MemoryServer
{
public:
    explicit MemoryServer(const Numbers& numbers) : numbers_(numbers) {}
    // From which cycle on another load may be under way.
    uint64_t room(uint64_t cycle, const Step& step) const;
    // Issue an instruction at a cycle; when its data are there, or stored.
    uint64_t issue(uint64_t cycle, const Instruction& instruction, const Step& step);

private:
    struct Load
    {
        uint64_t end;
        uint64_t bytes;
    };
    uint64_t held(const Step& step) const;

    const Numbers& numbers_;
    uint64_t free_      = 0;
    uint64_t in_flight_ = 0;
    std::deque<Load> loads_;
};
} // namespace emu

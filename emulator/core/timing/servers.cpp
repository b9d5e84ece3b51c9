#include "timing/servers.h"

#include <algorithm>

namespace emu {
namespace {
constexpr uint32_t LINE     = 128;    // bytes a line of the vector L1 (recorder.cpp)
constexpr uint32_t CROSSBAR = 4 * 64; // bytes that ds_bpermute and its kin move: a dword a lane

uint64_t cycles(uint64_t bytes, uint64_t width) { return (bytes + width - 1) / width; }
} // namespace

void LdsServer::write_arrived(uint64_t until)
{
    for(; !arrivals_.empty() && arrivals_.top().first <= until; arrivals_.pop())
        free_ = std::max(free_, arrivals_.top().first) + cycles(arrivals_.top().second, numbers_.lds_write_bytes);
}

uint64_t LdsServer::room(unsigned simd, uint64_t cycle) const
{
    const std::deque<uint64_t>& served = pairs_[simd / 2].served;
    if(served.size() < numbers_.lds_queue)
        return cycle;
    return std::max(cycle, served[served.size() - numbers_.lds_queue]);
}

uint64_t LdsServer::issue(unsigned simd, uint64_t cycle, const Instruction& instruction, const Step& step)
{
    Pair& pair           = pairs_[simd / 2];
    const uint32_t bytes = step.bytes == 0 ? CROSSBAR : step.bytes;
    const uint64_t start = cycle + numbers_.lds_address_cycles;
    const uint64_t width = instruction.write ? numbers_.lds_write_bytes : numbers_.lds_read_bytes;
    write_arrived(start);
    free_              = std::max(free_, start) + cycles(bytes, width) + step.conflicts;
    pair.free          = std::max(pair.free, start) + cycles(bytes, numbers_.lds_pair_bytes);
    const uint64_t end = std::max(free_, pair.free);
    while(!pair.served.empty() && pair.served.front() <= cycle)
        pair.served.pop_front();
    pair.served.push_back(end);
    return end + numbers_.lds_return_cycles;
}

uint64_t MemoryServer::held(const Step& step) const
{
    return std::max<uint64_t>(step.bytes, uint64_t{step.lines} * LINE);
}

uint64_t MemoryServer::room(uint64_t cycle, const Step& step) const
{
    uint64_t left = in_flight_;
    for(const Load& load : loads_)
    {
        if(left + held(step) <= numbers_.memory_in_flight)
            break;
        cycle = std::max(cycle, load.end);
        left -= load.bytes;
    }
    return cycle;
}

uint64_t MemoryServer::issue(uint64_t cycle, const Instruction& instruction, const Step& step)
{
    for(; !loads_.empty() && loads_.front().end <= cycle; loads_.pop_front())
        in_flight_ -= loads_.front().bytes;
    const uint64_t start = std::max(free_, cycle);
    free_ =
        start + std::max(cycles(step.bytes, numbers_.memory_bytes), uint64_t{step.lines} * numbers_.memory_line_cycles);
    const uint64_t end = free_ + numbers_.memory_latency;
    if(instruction.load && held(step) != 0)
    {
        loads_.push_back({end, held(step)});
        in_flight_ += held(step);
    }
    return end;
}
} // namespace emu

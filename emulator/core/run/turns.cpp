#include "run/turns.h"

#include "memory/memory.h"
#include "run/state.h"

#include <string>

namespace emu {
namespace {
constexpr uint64_t ROUNDS_BEFORE_A_LOOK = 512; // at all of memory

uint64_t memory_state(uint64_t sum)
{
    for(const Allocation& one : allocations())
        if(one.kind != AllocationKind::Registered)
            sum = add_bytes(sum, reinterpret_cast<const void*>(one.base), one.bytes);
    return sum;
}

uint64_t state_of(const std::vector<Runner*>& open, bool everything)
{
    uint64_t sum = open.size();
    for(const Runner* runner : open)
        sum = runner->state(sum, everything);
    return everything ? memory_state(sum) : sum;
}

std::string deadlock(size_t held, uint64_t not_started)
{
    std::string text =
        "no wave of the launch gets any further: each one waits for another, and "
        "nothing that they read changes any more (launches do not overlap the host: a kernel that waits for "
        "what the program does next ends here)";
    if(not_started != 0)
        text += "; the device holds " + std::to_string(held) + " of these workgroups at once, and " +
                std::to_string(not_started) + " have not started";
    return text;
}
} // namespace

void take_turns(const Shape& shape, std::vector<Runner*> open, uint64_t next)
{
    const auto state = [&open](bool everything) { return state_of(open, everything); };
    Watch watch(ROUNDS_BEFORE_A_LOOK);
    while(!open.empty())
    {
        for(Runner*& runner : open)
        {
            if(runner->turn())
                continue;
            runner->finish();
            if(next < shape.groups())
                runner->start(next++);
            else
                runner = nullptr;
        }
        std::erase(open, nullptr);
        if(!open.empty() && watch.went_in_circles(state))
            open.front()->report_deadlock(deadlock(open.size(), shape.groups() - next));
    }
}
} // namespace emu

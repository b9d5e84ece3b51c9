#include "run/cooperative.h"

#include "memory/memory.h"
#include "run/counters.h"
#include "run/state.h"

#include <memory>
#include <vector>

namespace emu {
namespace {

// A grid of waves and memory is a machine without input: when its state comes back, it goes in
// circles. The state is looked at after ever more rounds, and compared with that of each later
// round: first what is cheap, then everything.
class Watch
{
public:
    // After a round. `state(everything)` adds up the state of all workgroups. True: it came back.
    template <typename State>
    bool went_in_circles(State&& state)
    {
        if(++round_ < next_mark_)
            return marked_ && round_ >= next_look_ && came_back(state);
        next_mark_ *= 2;
        next_look_ = round_ + 1;
        marked_    = true;
        cheap_     = state(false);
        whole_     = state(true);
        return false;
    }

private:
    template <typename State>
    bool came_back(State&& state)
    {
        if(state(false) != cheap_)
            return false;
        next_look_ = round_ + round_ / 4; // all of memory is not looked at in each round
        return state(true) == whole_;
    }

    uint64_t round_ = 0, next_mark_ = 512, next_look_ = 0;
    bool marked_    = false;
    uint64_t cheap_ = 0, whole_ = 0;
};

uint64_t memory_state(uint64_t sum)
{
    for(const Allocation& one : allocations())
        if(one.kind != AllocationKind::Registered)
            sum = add_bytes(sum, reinterpret_cast<const void*>(one.base), one.bytes);
    return sum;
}

class Grid
{
public:
    explicit Grid(const Shape& shape) : shape_(shape), counts_(shape.kernel.program->ops.size())
    {
        const uint64_t groups = uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
        for(uint64_t i = 0; i < groups; ++i)
        {
            runners_.push_back(std::make_unique<Runner>(shape, counts_, Together::Yes));
            runners_.back()->start(i);
            open_.push_back(runners_.back().get());
        }
    }

    void run()
    {
        const auto state = [this](bool everything) { return this->state(everything); };
        Watch watch;
        while(!open_.empty())
        {
            std::erase_if(open_, [](Runner* runner) {
                const bool goes_on = runner->turn();
                if(!goes_on)
                    runner->finish();
                return !goes_on;
            });
            if(watch.went_in_circles(state))
                open_.front()->report_deadlock();
        }
    }

    void count() const
    {
        Traffic traffic;
        for(const auto& runner : runners_)
            add_traffic(traffic, runner->traffic());
        count_launch(shape_.kernel, counts_, traffic);
    }

private:
    uint64_t state(bool everything) const
    {
        uint64_t sum = open_.size();
        for(const Runner* runner : open_)
            sum = runner->state(sum, everything);
        return everything ? memory_state(sum) : sum;
    }

    const Shape& shape_;
    std::vector<uint64_t> counts_;
    std::vector<std::unique_ptr<Runner>> runners_;
    std::vector<Runner*> open_; // that still run
};

} // namespace

void run_together(const Shape& shape)
{
    const uint32_t host = host_mode();
    Grid grid(shape);
    try
    {
        grid.run();
    }
    catch(...)
    {
        load_host_mode(host);
        grid.count();
        throw;
    }
    load_host_mode(host);
    grid.count();
}

} // namespace emu

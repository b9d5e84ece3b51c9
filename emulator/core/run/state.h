// Sums of states, to see that one came back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace emu {
// Words of 8 bytes; of a rest only what there is. (The multiplier of FNV-1a.)
inline uint64_t add_bytes(uint64_t sum, const void* begin, size_t bytes)
{
    const auto* at = static_cast<const unsigned char*>(begin);
    for(; bytes > 0;)
    {
        const size_t part = bytes < 8 ? bytes : 8;
        uint64_t word     = 0;
        std::memcpy(&word, at, part);
        sum = (sum ^ word) * 0x100000001b3;
        sum ^= sum >> 29;
        at += part;
        bytes -= part;
    }
    return sum;
}

// Waves and memory are a machine without input: when its state comes back, it goes in circles. The
// state is looked at after ever more rounds, the first time after `first`, and compared with that
// of each later round: first what is cheap, then everything.
class Watch
{
public:
    explicit Watch(uint64_t first) : next_mark_(first) {}

    // After a round. `state(everything)` adds up the state of who runs. True: it came back.
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
        next_look_ = round_ + 1 + round_ / 4; // all of memory is not looked at in each round
        return state(true) == whole_;
    }

    uint64_t round_ = 0, next_mark_, next_look_ = 0;
    bool marked_    = false;
    uint64_t cheap_ = 0, whole_ = 0;
};
} // namespace emu

#include "timing/loop.h"

#include <algorithm>
#include <map>
#include <utility>

namespace emu {
Loop hot_loop(const std::vector<Step>& steps, const std::vector<Instruction>& instructions)
{
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> taken; // branch and target
    for(size_t i = 0; i + 1 < steps.size(); ++i)
        if(steps[i + 1].op <= steps[i].op)
            ++taken[{steps[i].op, steps[i + 1].op}];
    const auto has_matrix = [&](uint32_t head, uint32_t branch) {
        return std::any_of(instructions.begin() + head, instructions.begin() + branch,
                           [](const Instruction& i) { return i.unit == Unit::Matrix; });
    };
    Loop best;
    std::pair<bool, uint64_t> rank{false, 0};
    for(const auto& [way, count] : taken)
    {
        const auto& [branch, head]          = way;
        const std::pair<bool, uint64_t> own = {has_matrix(head, branch), count};
        if(own <= rank)
            continue;
        rank = own;
        best = {true, head, branch};
    }
    return best;
}
} // namespace emu

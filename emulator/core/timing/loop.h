// The hot loop of a wave: the backward branch that it took most often, of those whose loop holds an
// MFMA if there are any. Two groups of waves may have loops of their own.
#pragma once

#include "timing/instruction.h"
#include "timing/recorder.h"

#include <cstdint>
#include <vector>

namespace emu {
struct Loop
{
    bool found    = false;
    uint32_t head = 0, branch = 0; // of Recording::ops, both in the loop
};

// Whether a branch that a wave executed was taken: `at` of its steps.
inline bool is_taken(const std::vector<Step>& steps, size_t at)
{
    return at + 1 < steps.size() && steps[at + 1].op != steps[at].op + 1;
}

Loop hot_loop(const std::vector<Step>& steps, const std::vector<Instruction>& instructions);
} // namespace emu

#include "timing/phases.h"

namespace emu {
namespace {
bool limits(const Instruction& i) { return i.unit == Unit::Barrier || i.priority >= 0; }

Phase phase_of(bool matrix, bool transcendental)
{
    if(matrix)
        return transcendental ? Phase::Mixed : Phase::Matrix;
    return transcendental ? Phase::Softmax : Phase::Other;
}
} // namespace

std::vector<Part> phases_of(const std::vector<Step>& steps, const std::vector<Instruction>& instructions)
{
    const auto at   = [&](size_t step) -> const Instruction& { return instructions[steps[step].op]; };
    size_t prologue = 0, first = 0, behind = steps.size();
    for(; first < steps.size() && at(first).unit != Unit::Matrix; ++first)
        if(limits(at(first)))
            prologue = first + 1;
    if(first == steps.size())
        return {{Phase::Prologue, first}};
    while(at(behind - 1).unit != Unit::Matrix)
        --behind;
    std::vector<Part> parts{{Phase::Prologue, prologue != 0 ? prologue : first}};
    bool matrix = false, transcendental = false;
    for(size_t step = parts.front().end; step < behind; ++step)
    {
        matrix |= at(step).unit == Unit::Matrix;
        transcendental |= at(step).transcendental;
        if(!limits(at(step)) && step + 1 != behind)
            continue;
        parts.push_back({phase_of(matrix, transcendental), step + 1});
        matrix = transcendental = false;
    }
    parts.push_back({Phase::Epilogue, steps.size()});
    return parts;
}
} // namespace emu

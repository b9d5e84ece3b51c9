#include "timing/wave.h"

#include <algorithm>

namespace emu {
uint64_t Outstanding::reach(uint64_t cycle, size_t allowed)
{
    std::erase_if(ends_, [&](uint64_t end) { return end <= cycle; });
    if(ends_.size() <= allowed)
        return cycle;
    const auto last = ends_.begin() + static_cast<ptrdiff_t>(ends_.size() - allowed - 1);
    std::nth_element(ends_.begin(), last, ends_.end());
    return *last;
}

uint64_t Registers::last_of(const Cycles& cycles, const RegisterRange& range)
{
    uint64_t cycle = 0;
    for(unsigned row = range.first; row < range.first + range.count; ++row)
        cycle = std::max(cycle, cycles[row]);
    return cycle;
}

uint64_t Registers::ready(const Instruction& instruction) const
{
    uint64_t cycle = instruction.unit == Unit::Vector ? last_of(matrix_, instruction.result) : 0;
    for(unsigned i = 0; i < instruction.reads; ++i)
        cycle = std::max(cycle, last_of(result_, instruction.read[i]));
    const RegisterRange& addend = instruction.addend;
    for(unsigned row = addend.first; row < addend.first + addend.count; ++row)
        cycle = std::max(cycle, owner_[row] == addend.first ? forward_[row] : result_[row]);
    return cycle;
}

void Registers::write(const Instruction& instruction, uint64_t cycle, const Numbers& numbers)
{
    const bool matrix          = instruction.unit == Unit::Matrix;
    const RegisterRange& range = instruction.result;
    const uint64_t end         = cycle + (matrix ? instruction.matrix_cycles : instruction.port_cycles);
    const uint64_t read        = matrix ? end + numbers.matrix_result_cycles
                                        : std::max(end, end + numbers.vector_result_cycles - numbers.vector_cycles);
    for(unsigned row = range.first; row < range.first + range.count; ++row)
    {
        result_[row]  = read;
        forward_[row] = matrix ? end : read;
        owner_[row]   = range.first;
        if(matrix)
            matrix_[row] = read;
    }
}

WaveTime WaveTime::since(const WaveTime& before) const
{
    WaveTime made = *this;
    made.instructions -= before.instructions;
    made.issued -= before.issued;
    made.matrix -= before.matrix;
    made.vector -= before.vector;
    for(size_t i = 0; i < CAUSES; ++i)
        made.stalls[i] -= before.stalls[i];
    return made;
}

void WaveTime::add(const WaveTime& other)
{
    instructions += other.instructions;
    issued += other.issued;
    matrix += other.matrix;
    vector += other.vector;
    for(size_t i = 0; i < CAUSES; ++i)
        stalls[i] += other.stalls[i];
}
} // namespace emu

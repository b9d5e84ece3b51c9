// What each wave did in equal spans of time, as letters (Replayed::timeline).
#pragma once

#include "timing/numbers.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace emu {
enum class Doing : uint8_t
{
    Matrix,
    Vector,
    Memory,
    Other,
    Wait,
    Barrier,
    Stalled,
    Count
};

class Timeline
{
public:
    Timeline(const Numbers& numbers, size_t waves);
    void add(size_t wave, Doing doing, uint64_t from, uint64_t to);
    std::string letters(size_t wave) const;

private:
    using Bin = std::array<uint32_t, static_cast<size_t>(Doing::Count)>;
    uint64_t from_, width_;
    size_t count_;
    std::vector<Bin> bins_;
};
} // namespace emu

// The phases of a wave, as its instructions delimit them: parts between one s_barrier or s_setprio
// and the next, by what is executed in them.
#pragma once

#include "timing/instruction.h"
#include "timing/recorder.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emu {
enum class Phase : uint8_t
{
    Prologue, // until the last limit before the first MFMA; if there is none, until the first MFMA
    Matrix,   // MFMAs, no transcendental instruction
    Softmax,  // transcendental instructions, no MFMA
    Mixed,    // both
    Other,    // neither
    Epilogue, // after the last MFMA
    Count
};

inline constexpr size_t PHASES = static_cast<size_t>(Phase::Count);

struct Part
{
    Phase phase;
    size_t end; // the first step after it
};

// In order, without gaps, up to the last step; what limits a part is its last step. A wave without
// an MFMA is one prologue.
std::vector<Part> phases_of(const std::vector<Step>& steps, const std::vector<Instruction>& instructions);
} // namespace emu

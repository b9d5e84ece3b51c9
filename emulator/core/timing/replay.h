// The timing model: a recorded workgroup (recorder.h) replayed through the issue rules of one
// compute unit, deterministic and without regard to the order in which the emulator ran its waves.
//
// Rules; the figures are those of numbers.h:
// - Four SIMDs; wave w runs on SIMD w % 4. A wave issues in order, one instruction in issue_cycles.
//   Each SIMD has four ports, for vector and matrix instructions, for LDS and vector memory
//   together, for scalar ones, and for branches; a port takes one instruction at a time. Of waves
//   that could take a port in the same cycle the one of the highest s_setprio does, then the one
//   that waits longest, then the lowest number. Waits, s_nop and barriers need no port.
// - A vector instruction keeps its port for what its kind costs. An MFMA keeps it while it reads
//   its factors, and the SIMD's matrix unit for its passes: in between, vector instructions of all
//   waves run beside it. Packed ones don't (with packed_apart not beside those of other waves,
//   either); nor do they start right after an MFMA of their wave.
// - An MFMA's result can be read matrix_result_cycles after its passes; only an MFMA that adds to
//   exactly that result gets it at the end of the passes. A vector result can be read
//   vector_result_cycles after its issue, or later if the instruction keeps its port longer. What a
//   load brings is waited for by s_waitcnt alone, as the code has it.
// - LDS and memory: servers.h. vmcnt counts in order; lgkmcnt counts LDS in order and scalar loads
//   as they come.
// - A barrier opens when all of the workgroup's waves that have not ended have arrived.
#pragma once

#include "timing/numbers.h"
#include "timing/phases.h"
#include "timing/recorder.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace emu {
// Why a wave did not issue when it might have.
enum class Cause : uint8_t
{
    MatrixBusy,    // the matrix unit has another MFMA
    MatrixResult,  // or a vector result, not there yet
    VectorBusy,    // the wave's own instruction has the vector port
    Packed,        // a packed instruction, and MFMAs
    IssueConflict, // another wave has the port
    LdsQueue,
    MemoryQueue,
    WaitMemory, // s_waitcnt vmcnt
    WaitLds,    // s_waitcnt lgkmcnt
    Barrier,
    Count
};

inline constexpr size_t CAUSES = static_cast<size_t>(Cause::Count);

// Cycles of a wave. All of them: issued and the stalls add up to the last cycle.
struct WaveTime
{
    uint32_t simd         = 0;
    uint64_t instructions = 0;
    uint64_t end          = 0; // the cycle after its last instruction
    uint64_t issued       = 0; // slots of instructions that were issued
    uint64_t matrix       = 0; // that its MFMAs kept the matrix unit
    uint64_t vector       = 0; // that its instructions kept the vector port, MFMA left out
    std::array<uint64_t, CAUSES> stalls{};

    // What has been added to all but the SIMD and the end since `before`.
    WaveTime since(const WaveTime& before) const;
    void add(const WaveTime& other); // to the same
};

// All parts of a wave that are of one phase: times[i] adds up `count[i]` of them. A wait at the
// s_barrier that ends a part is in it.
struct PhaseTimes
{
    std::array<uint64_t, PHASES> count{};
    std::array<WaveTime, PHASES> times{};
};

// A wave's passes through the hot loop, from the first time that the branch at its end is taken to
// the last. `of` holds the difference of the wave's figures between the two.
struct LoopTime
{
    bool found    = false;
    uint32_t head = 0, branch = 0; // of Recording::ops, both in the loop
    uint64_t passes = 0, begin = 0, end = 0;
    WaveTime of;
};

struct Replayed
{
    uint64_t cycles = 0;
    std::vector<WaveTime> waves;    // of the first copy, then of the second
    std::vector<LoopTime> loops;    // by wave
    std::vector<PhaseTimes> phases; // by wave
    // By wave, a letter for each bin: X matrix and vector work together, M matrix, V vector, L LDS
    // and memory instructions, S others, W s_waitcnt, B barrier, - any other stall, . ended.
    std::vector<std::string> timeline;
};

Replayed replay(const Recording& recording, const Numbers& numbers);
} // namespace emu

// The waves of one workgroup: their start state, and running them from barrier to barrier.
#pragma once

#include "checks/banks.h"
#include "checks/lds_races.h"
#include "isa/wave.h"
#include "run/launch.h"
#include "timing/recorder.h"

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace emu {
// What all workgroups of a launch have in common.
struct Shape
{
    const Kernel& kernel;
    Dim3 grid, block;
    uint32_t lds_bytes, scratch_bytes, waves;
    uint64_t kernarg, packet, queue; // addresses
    uint64_t grid_sync;              // of what a grid's barrier counts in; 0 unless cooperative
    HostCalls& host;
    GlobalRaces* races; // null unless the check is on
    uint64_t groups() const { return uint64_t{grid.x} * grid.y * grid.z; }
};

// What was never written: zeros, POISON, or in a twin something else again.
enum class Contents
{
    Zero,
    Poison,
    Twin
};

// A workgroup's waves with their LDS and scratch.
class Waves
{
public:
    explicit Waves(const Shape& shape);
    Waves(const Waves&)            = delete;
    Waves& operator=(const Waves&) = delete;

    void start(Contents unwritten);
    Wave& operator[](size_t i) { return waves_[i]; }
    const Wave& operator[](size_t i) const { return waves_[i]; }
    uint64_t memory_state(uint64_t sum) const; // of LDS and scratch

    Workgroup group;

private:
    struct alignas(64) Chunk
    {
        uint32_t d[16];
    };

    const Shape& shape_;
    std::vector<Wave> waves_;
    std::vector<Chunk> lds_;
    std::vector<uint32_t> scratch_;
};

// What one host thread needs to run workgroups.
class Runner
{
public:
    // `counts` are added up.
    Runner(const Shape& shape, Counts& counts);
    // Run the workgroup of a linear index. Throws LaunchFault. False: it goes in circles or goes on
    // for very long, so that it may wait for others, and needs turns.
    bool run(uint64_t index);
    const Traffic& traffic() const { return group_.traffic; }

    // The same in parts: start, turns until one answers false, finish. A turn runs each wave to its
    // next barrier or its end, or until it gives way. Short turns are for workgroups that share
    // them.
    void start(uint64_t index);
    bool turn();
    void finish();
    void make_turns_short();

    // Add up what the waves that still run depend on: where they are and their scalar registers, or
    // everything of the workgroup. Equal states add up to the same.
    uint64_t state(uint64_t sum, bool everything) const;
    // Throws LaunchFault (Deadlock) at the first wave that still runs.
    [[noreturn]] void report_deadlock(const std::string& detail) const;

private:
    void run(Wave& wave);
    void look_for_race(const Wave& reader);
    void compare_barriers() const;
    void open_barrier();

    const Shape& shape_;
    Waves waves_;
    std::optional<Waves> twins_;
    std::optional<Recorder> recorder_; // of the workgroup that runs
    Workgroup& group_;
    BankConflicts banks_;
    LdsShadow shadow_;
    uint64_t index_ = 0;     // of the workgroup that runs
    bool gave_way_  = false; // a wave, in the last turn
    std::vector<uint32_t> order_;
    std::mt19937_64 random_;
    uint64_t barriers_before_ = 0, stores_before_ = 0;
};
} // namespace emu

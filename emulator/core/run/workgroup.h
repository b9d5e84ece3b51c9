// The waves of one workgroup: their start state, and running them from barrier to barrier.
#pragma once

#include "checks/banks.h"
#include "checks/checks.h"
#include "checks/probe.h"
#include "isa/wave.h"
#include "run/launch.h"
#include "timing/recorder.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace emu {

// What all workgroups of a launch have in common.
struct Shape
{
    const Kernel& kernel;
    Dim3 grid, block;
    uint32_t lds_bytes, waves;
    uint64_t kernarg, packet, queue; // addresses
    HostCalls& host;
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
    // `ops`: micro-ops of the program.
    Runner(const Shape& shape, size_t ops);
    // Run the workgroup of a linear index. Throws LaunchFault.
    void run(uint64_t index);
    const Traffic& traffic() const { return group_.traffic; }

    std::vector<uint64_t> counts; // executions of each micro-op

private:
    void run_waves(uint64_t index);

    const Shape& shape_;
    Waves waves_;
    std::optional<Waves> twins_; // or what a probe compares with
    std::optional<Probe> probe_;
    std::optional<Recorder> recorder_; // of the workgroup that runs
    Workgroup& group_;
    BankConflicts banks_;
    LdsShadow shadow_;
};

} // namespace emu

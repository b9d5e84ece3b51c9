// What the waves of one workgroup executed (options record_kernel, record_workgroup), for the
// timing model in replay.h: the micro-ops in order, and of memory instructions what their addresses
// cost. The order in which the emulator ran the waves leaves no trace in it.
#pragma once

#include "isa/wave.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace emu {
// One executed instruction.
struct Step
{
    uint32_t op;        // of Recording::ops
    uint32_t bytes;     // that LDS, scratch or global memory moved for it
    uint16_t conflicts; // cycles of LDS bank conflicts (banks.h)
    uint16_t lines;     // cache lines of global memory that its lanes touch
};

struct Recording
{
    std::string kernel;
    uint64_t workgroup = 0;        // linear index
    uint64_t launched  = 0;        // workgroups of the launch
    uint32_t first     = 0;        // number of ops[0] in its program
    uint64_t address   = 0;        // virtual, of ops[0]
    std::vector<MicroOp> ops;      // of the kernel's function
    std::vector<std::string> text; // of each of them
    std::vector<std::vector<Step>> waves;
};

// Records a workgroup while it runs.
class Recorder
{
public:
    // `launched`: workgroups of the launch; `before`: what the workgroup's thread counted until
    // now.
    Recorder(const Kernel& kernel, uint64_t workgroup, uint64_t launched, uint32_t waves, const Traffic& before);
    // After `op` was executed. Throws LaunchFault: it is of another function.
    void add(const Wave& wave, const MicroOp* op);
    // An access of the instruction that runs now: `bytes` at base + offsets[lane] for the lanes of
    // `mask`.
    void touch(uint64_t base, const uint64_t* offsets, uint64_t mask, unsigned bytes);
    // Make it the device's recording; of several launches or workgroups the longest stays if the
    // option asks for it, else the last.
    void keep();

private:
    std::unique_ptr<Recording> recording_;
    Traffic seen_; // up to the instruction before
    uint32_t lines_ = 0;
};

// Whether the options ask for this workgroup, or for the longest.
bool is_recorded(const Kernel& kernel, uint64_t workgroup);
// The one that was kept, or null. A later one does not change it.
std::shared_ptr<const Recording> kept_recording();
void forget_recording();
} // namespace emu

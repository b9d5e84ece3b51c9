// Cooperative launches: all workgroups at once, in turns, so that they can wait for each other.
#pragma once

#include "run/workgroup.h"

#include <cstdint>

namespace emu {

// What the device library's grid barrier counts in (hidden argument hidden_multigrid_sync_arg; the
// layout is one between ROCm's runtime and its device library).
struct GridSync
{
    uint64_t other_devices = 0;
    uint32_t grid = 0, grids = 0; // of a launch on several devices
    uint64_t threads_before = 0, threads = 0;
    uint32_t arrived = 0, reserved = 0;
    uint32_t group_count = 0;
};
static_assert(sizeof(GridSync) == 48);

// Run all workgroups and count what they did. Throws LaunchFault; Deadlock if no wave gets any
// further.
void run_together(const Shape& shape);

} // namespace emu

// Host threads that share the workgroups of a launch.
#pragma once

#include "run/workgroup.h"

#include <cstdint>

namespace emu {
// Run all workgroups of a launch and count what they did. Of an ordinary launch each host thread
// runs one after the other, and puts aside those that wait for others: these run in turns in the
// end, or as soon as there are `resident` of them, as many as the device holds at once. Throws
// LaunchFault: of several faults the one of the first workgroup; Deadlock if no wave gets any
// further.
void run_workgroups(const Shape& shape, uint64_t resident, Together together);
} // namespace emu

// Workgroups that run in turns, so that they can wait for each other.
#pragma once

#include "run/workgroup.h"

#include <cstdint>
#include <vector>

namespace emu {
// Run workgroups that were started to their ends. As one ends, the next of those from `next` on
// takes its place. Throws LaunchFault; Deadlock if no wave gets any further.
void take_turns(const Shape& shape, std::vector<Runner*> open, uint64_t next);
} // namespace emu

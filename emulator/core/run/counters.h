// What launches did: executed instructions and where they are, memory traffic, matrix work. Input
// of the gates and of the coverage of suites.
#pragma once

#include "isa/wave.h"
#include "run/program.h"

#include <cstdint>
#include <string>

namespace emu {
// sum += part
void add_traffic(Traffic& sum, const Traffic& part);

// Add what one launch did: executions of each micro-op, and the traffic of all its workgroups.
void count_launch(const Kernel& kernel, const Counts& executions, const Traffic& traffic);
} // namespace emu

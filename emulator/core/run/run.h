// Running one wave until it stops.
#pragma once

#include "isa/wave.h"

#include <cstdint>

namespace emu {
// Run from wave.next to the next barrier or the end, or until it gives way. `workgroup` is its
// linear index, for the trace.
void run_wave(Wave& wave, uint64_t workgroup);
} // namespace emu

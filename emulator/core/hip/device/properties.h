// Properties of the device that attributes have, too.
#pragma once

#include "hip/types.h"

namespace emu {
void fill_properties(hipDeviceProp_tR0600& properties);
} // namespace emu

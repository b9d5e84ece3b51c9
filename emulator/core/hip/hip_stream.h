#pragma once

#include "hip/hip_types.h"

namespace emu {

// Throws HipFailure (hipErrorInvalidHandle) for a stream that does not exist.
void check_stream(hipStream_t stream);

} // namespace emu

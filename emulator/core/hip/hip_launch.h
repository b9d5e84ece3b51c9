#pragma once

#include "hip/hip_types.h"
#include "isa/arch.h"
#include "run/launch.h"

namespace emu {

// The kernel of a function that a library registered, or that a module gave. Throw HipFailure.
const Kernel& registered_kernel(const void* function);
const Kernel& module_kernel(hipFunction_t function);

// Launch with HIP's checks. Arguments either one by one, or packed in `extra`. Throws HipFailure; a
// fault is recorded.
void launch_kernel(const Kernel& kernel,
                   dim3 grid,
                   dim3 block,
                   size_t dynamic_lds,
                   hipStream_t stream,
                   void** arguments,
                   void** extra);

} // namespace emu

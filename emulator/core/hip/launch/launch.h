#pragma once

#include "hip/graph/graph.h"
#include "isa/arch.h"
#include "run/launch.h"

namespace emu {
// The kernel of a function that a library registered, or that a module gave. Throw HipFailure.
const Kernel& registered_kernel(const void* function);
const Kernel& module_kernel(hipFunction_t function);

// The same for either kind of function, as graphs name it.
const Kernel& kernel_of_function(const void* function);
bool is_module_function(const void* function);

// A launch as requested: the function, its sizes, and whether all workgroups shall run
// together.
struct LaunchRequest
{
    const void* function;
    dim3 grid, block;
    size_t dynamic_lds;
    bool cooperative = false;
};

// What a launch runs with: checked, with arguments given one by one, or packed in `extra`. Throws
// HipFailure.
KernelNode prepared_launch(const LaunchRequest& request, void** arguments, void** extra);
// Throws HipFailure; a fault is recorded.
void run_kernel(const KernelNode& node);
// Launch on a stream, or add to what the stream captures.
void launch_kernel(const LaunchRequest& request, hipStream_t stream, void** arguments, void** extra);

// Bytes of a stack whose depth the compiler doesn't know (hip/device/attributes.cpp).
uint32_t stack_limit();

// Workgroups that a compute unit holds at once (hip/launch/occupancy.cpp). Throws HipFailure.
int resident_workgroups(const Kernel& kernel, int threads, size_t dynamic_lds);
unsigned registers_of(const Kernel& kernel); // vector registers, of both kinds together
// A handle of a registered kernel, the same each time.
hipFunction_t function_of(const Kernel& kernel);
} // namespace emu

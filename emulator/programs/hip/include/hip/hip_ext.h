// For the embedded toolchain alone: launches between two events. Names are those of HIP's header of
// this name.
#pragma once

#include <hip/hip_runtime.h>

extern "C" {
hipError_t hipExtLaunchKernel(const void* function,
                              dim3 grid,
                              dim3 block,
                              void** arguments,
                              size_t lds_bytes,
                              hipStream_t stream,
                              hipEvent_t start,
                              hipEvent_t stop,
                              int flags);
hipError_t hipExtModuleLaunchKernel(hipFunction_t function,
                                    uint32_t threads_x,
                                    uint32_t threads_y,
                                    uint32_t threads_z,
                                    uint32_t block_x,
                                    uint32_t block_y,
                                    uint32_t block_z,
                                    size_t lds_bytes,
                                    hipStream_t stream,
                                    void** arguments,
                                    void** extra,
                                    hipEvent_t start,
                                    hipEvent_t stop,
                                    uint32_t flags);
}

// For the embedded toolchain alone: what ordinary programs use of HIP's host API beyond what
// kernels' headers declare. Names, values and layouts are those of HIP 6.
#pragma once

#include_next <hip/hip_runtime.h>

typedef struct ihipModule_t* hipModule_t;
typedef struct ihipModuleSymbol_t* hipFunction_t;
typedef struct ihipGraph* hipGraph_t;
typedef void* hipDeviceptr_t;

enum hipDeviceAttribute_t
{
    hipDeviceAttributeMaxThreadsPerBlock      = 56,
    hipDeviceAttributeMultiprocessorCount     = 63,
    hipDeviceAttributeMaxSharedMemoryPerBlock = 74,
    hipDeviceAttributeWarpSize                = 87,
};

struct hipFuncAttributes
{
    int binaryVersion;
    int cacheModeCA;
    size_t constSizeBytes;
    size_t localSizeBytes;
    int maxDynamicSharedSizeBytes;
    int maxThreadsPerBlock;
    int numRegs;
    int preferredShmemCarveout;
    int ptxVersion;
    size_t sharedSizeBytes;
};

extern "C" {
hipError_t hipMallocManaged(void** pointer, size_t bytes, unsigned int flags);
hipError_t hipMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height);
hipError_t hipMemcpy2DAsync(void* to,
                            size_t to_pitch,
                            const void* from,
                            size_t from_pitch,
                            size_t width,
                            size_t height,
                            hipMemcpyKind kind,
                            hipStream_t stream);
hipError_t hipMemset2D(void* to, size_t pitch, int value, size_t width, size_t height);
hipError_t hipMemcpyToSymbol(
    const void* symbol, const void* from, size_t bytes, size_t offset, hipMemcpyKind kind);
hipError_t hipMemcpyFromSymbol(
    void* to, const void* symbol, size_t bytes, size_t offset, hipMemcpyKind kind);
hipError_t hipGetSymbolAddress(void** address, const void* symbol);
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device);
hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer);
hipError_t hipFuncGetAttributes(hipFuncAttributes* attributes, const void* function);
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                        const void* function,
                                                        int threads,
                                                        size_t dynamic_lds);
hipError_t hipStreamAddCallback(hipStream_t stream,
                                void (*function)(hipStream_t, hipError_t, void*),
                                void* argument,
                                unsigned int flags);
hipError_t hipModuleLoad(hipModule_t* module, const char* path);
hipError_t hipModuleUnload(hipModule_t module);
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name);
hipError_t hipModuleLaunchKernel(hipFunction_t function,
                                 unsigned grid_x,
                                 unsigned grid_y,
                                 unsigned grid_z,
                                 unsigned block_x,
                                 unsigned block_y,
                                 unsigned block_z,
                                 unsigned lds_bytes,
                                 hipStream_t stream,
                                 void** arguments,
                                 void** extra);
hipError_t hipGraphCreate(hipGraph_t* graph, unsigned int flags);
hipError_t hipCtxSynchronize();
}

// HIP's header has it as a template, for kernels of every type.
template <typename Kernel>
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                        Kernel* function,
                                                        int threads,
                                                        size_t dynamic_lds = 0)
{
    const void* address = reinterpret_cast<const void*>(function);
    return hipOccupancyMaxActiveBlocksPerMultiprocessor(blocks, address, threads, dynamic_lds);
}

// The host API: the C ABI of libamdhip64.so.7, for the calls that kernels' host code and test
// harnesses make.
//
// Any library with this ABI can stand behind it: a GPU's runtime or an emulator's. Values and
// offsets are therefore part of the contract, and the static assertions below hold them.
#pragma once

#include "hip/detail/qualifiers.h"
#include "hip/detail/vectors.h"
#include "hip/hip_version.h"

#include <stddef.h>
#include <stdint.h>

typedef enum hipError_t
{
    hipSuccess                     = 0,
    hipErrorInvalidValue           = 1,
    hipErrorOutOfMemory            = 2,
    hipErrorNotInitialized         = 3,
    hipErrorDeinitialized          = 4,
    hipErrorInvalidConfiguration   = 9,
    hipErrorInvalidMemcpyDirection = 21,
    hipErrorInvalidDeviceFunction  = 98,
    hipErrorNoDevice               = 100,
    hipErrorInvalidDevice          = 101,
    hipErrorInvalidImage           = 200,
    hipErrorNoBinaryForGpu         = 209,
    hipErrorInvalidHandle          = 400,
    hipErrorNotFound               = 500,
    hipErrorNotReady               = 600,
    hipErrorIllegalAddress         = 700,
    hipErrorLaunchOutOfResources   = 701,
    hipErrorLaunchTimeOut          = 702,
    hipErrorLaunchFailure          = 719,
    hipErrorNotSupported           = 801,
    hipErrorUnknown                = 999,
} hipError_t;

typedef enum hipMemcpyKind
{
    hipMemcpyHostToHost     = 0,
    hipMemcpyHostToDevice   = 1,
    hipMemcpyDeviceToHost   = 2,
    hipMemcpyDeviceToDevice = 3,
    hipMemcpyDefault        = 4,
} hipMemcpyKind;

typedef int hipDevice_t;
typedef struct ihipStream_t* hipStream_t;
typedef struct ihipEvent_t* hipEvent_t;

#define hipStreamDefault      0x00
#define hipStreamNonBlocking  0x01
#define hipEventDefault       0x00
#define hipEventDisableTiming 0x02
#define hipHostMallocDefault  0x00

// Device properties since HIP 6.0. Only fields that are read have names; the gaps keep the others'
// places (bytes).
typedef struct hipDeviceProp_tR0600
{
    char name[256];
    unsigned char gap_256[288 - 256];
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    int regsPerBlock;
    int warpSize;
    size_t memPitch;
    int maxThreadsPerBlock;
    int maxThreadsDim[3];
    int maxGridSize[3];
    int clockRate;
    size_t totalConstMem;
    int major;
    int minor;
    unsigned char gap_368[388 - 368];
    int multiProcessorCount;
    unsigned char gap_392[1160 - 392];
    char gcnArchName[256];
    size_t maxSharedMemoryPerMultiProcessor;
    unsigned char gap_1424[1472 - 1424];
} hipDeviceProp_tR0600;

static_assert(sizeof(hipDeviceProp_tR0600) == 1472, "hipDeviceProp_tR0600");
static_assert(offsetof(hipDeviceProp_tR0600, totalGlobalMem) == 288, "hipDeviceProp_tR0600");
static_assert(offsetof(hipDeviceProp_tR0600, warpSize) == 308, "hipDeviceProp_tR0600");
static_assert(offsetof(hipDeviceProp_tR0600, major) == 360, "hipDeviceProp_tR0600");
static_assert(offsetof(hipDeviceProp_tR0600, minor) == 364, "hipDeviceProp_tR0600");
static_assert(offsetof(hipDeviceProp_tR0600, multiProcessorCount) == 388, "hipDeviceProp_tR0600");
static_assert(offsetof(hipDeviceProp_tR0600, gcnArchName) == 1160, "hipDeviceProp_tR0600");

// The unversioned names mean the current struct; the unversioned symbol in the library fills the
// old, shorter one.
#define hipDeviceProp_t        hipDeviceProp_tR0600
#define hipGetDeviceProperties hipGetDevicePropertiesR0600

extern "C" {

hipError_t hipInit(unsigned int flags);
hipError_t hipRuntimeGetVersion(int* version);
hipError_t hipDriverGetVersion(int* version);

hipError_t hipGetDeviceCount(int* count);
hipError_t hipGetDevice(int* device);
hipError_t hipSetDevice(int device);
hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* properties, int device);
hipError_t hipDeviceSynchronize(void);
hipError_t hipDeviceReset(void);

const char* hipGetErrorName(hipError_t error);
const char* hipGetErrorString(hipError_t error);
hipError_t hipGetLastError(void);
hipError_t hipPeekAtLastError(void);

hipError_t hipMalloc(void** pointer, size_t bytes);
hipError_t hipFree(void* pointer);
hipError_t hipHostMalloc(void** pointer, size_t bytes, unsigned int flags);
hipError_t hipHostFree(void* pointer);
hipError_t hipMemGetInfo(size_t* free_bytes, size_t* total_bytes);
hipError_t hipMemcpy(void* to, const void* from, size_t bytes, hipMemcpyKind kind);
hipError_t hipMemcpyAsync(
    void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream);
hipError_t hipMemset(void* to, int value, size_t bytes);
hipError_t hipMemsetAsync(void* to, int value, size_t bytes, hipStream_t stream);

hipError_t hipStreamCreate(hipStream_t* stream);
hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned int flags);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamQuery(hipStream_t stream);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int flags);
hipError_t hipExtStreamGetCUMask(hipStream_t stream, uint32_t words, uint32_t* mask);

hipError_t hipEventCreate(hipEvent_t* event);
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned int flags);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipEventSynchronize(hipEvent_t event);
hipError_t hipEventQuery(hipEvent_t event);
hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t stop);
hipError_t hipEventDestroy(hipEvent_t event);

// The three calls that clang makes of kernel<<<grid, block, lds, stream>>>(...).
hipError_t hipLaunchKernel(const void* function,
                           dim3 grid,
                           dim3 block,
                           void** arguments,
                           size_t lds_bytes,
                           hipStream_t stream);
hipError_t __hipPushCallConfiguration(dim3 grid,
                                      dim3 block,
                                      size_t lds_bytes   = 0,
                                      hipStream_t stream = nullptr);
hipError_t __hipPopCallConfiguration(dim3* grid,
                                     dim3* block,
                                     size_t* lds_bytes,
                                     hipStream_t* stream);
}

// C++ conveniences of the original: typed pointers and default arguments.
template <typename T>
static inline hipError_t hipMalloc(T** pointer, size_t bytes)
{
    return hipMalloc(reinterpret_cast<void**>(pointer), bytes);
}

static inline hipError_t hipEventRecord(hipEvent_t event) { return hipEventRecord(event, nullptr); }
static inline hipError_t hipMemsetAsync(void* to, int value, size_t bytes)
{
    return hipMemsetAsync(to, value, bytes, nullptr);
}

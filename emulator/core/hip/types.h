// The types of the HIP ABI (libamdhip64.so.7), as far as the functions here use them.
//
// Values and offsets are those of HIP 6 and 7; emulator/tests/test_emulator_hip.py compares them
// with the headers that kernels are compiled with.
#pragma once

#include <cstddef>
#include <cstdint>

#define HIP_API extern "C" __attribute__((visibility("default")))

// name, number, text. (Texts are ROCm's.)
// clang-format off
#define EMU_HIP_ERRORS(X) \
    X(hipSuccess, 0, "no error") \
    X(hipErrorInvalidValue, 1, "invalid argument") \
    X(hipErrorOutOfMemory, 2, "out of memory") \
    X(hipErrorNotInitialized, 3, "initialization error") \
    X(hipErrorDeinitialized, 4, "driver shutting down") \
    X(hipErrorInvalidConfiguration, 9, "invalid configuration argument") \
    X(hipErrorInvalidSymbol, 13, "invalid device symbol") \
    X(hipErrorInvalidDevicePointer, 17, "invalid device pointer") \
    X(hipErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy") \
    X(hipErrorInvalidDeviceFunction, 98, "invalid device function") \
    X(hipErrorNoDevice, 100, "no ROCm-capable device is detected") \
    X(hipErrorInvalidDevice, 101, "invalid device ordinal") \
    X(hipErrorInvalidImage, 200, "device kernel image is invalid") \
    X(hipErrorInvalidContext, 201, "invalid device context") \
    X(hipErrorNoBinaryForGpu, 209, "no kernel image is available for execution on the device") \
    X(hipErrorContextAlreadyInUse, 216, "exclusive-thread device already in use by a different thread") \
    X(hipErrorFileNotFound, 301, "file not found") \
    X(hipErrorInvalidHandle, 400, "invalid resource handle") \
    X(hipErrorIllegalState, 401, "the operation cannot be performed in the present state") \
    X(hipErrorNotFound, 500, "named symbol not found") \
    X(hipErrorNotReady, 600, "device not ready") \
    X(hipErrorIllegalAddress, 700, "an illegal memory access was encountered") \
    X(hipErrorLaunchOutOfResources, 701, "too many resources requested for launch") \
    X(hipErrorLaunchTimeOut, 702, "the launch timed out and was terminated") \
    X(hipErrorHostMemoryAlreadyRegistered, 712, "part or all of the requested memory range is already mapped") \
    X(hipErrorHostMemoryNotRegistered, 713, "pointer does not correspond to a registered memory region") \
    X(hipErrorLaunchFailure, 719, "unspecified launch failure") \
    X(hipErrorCooperativeLaunchTooLarge, 720, "too many blocks in cooperative launch") \
    X(hipErrorNotSupported, 801, "operation not supported") \
    X(hipErrorStreamCaptureUnsupported, 900, "operation not permitted when stream is capturing") \
    X(hipErrorStreamCaptureInvalidated, 901, "operation failed due to a previous error during capture") \
    X(hipErrorStreamCaptureMerge, 902, "operation would result in a merge of separate capture sequences") \
    X(hipErrorStreamCaptureUnmatched, 903, "capture was not ended in the same stream as it began") \
    X(hipErrorStreamCaptureUnjoined, 904, "capturing stream has unjoined work") \
    X(hipErrorStreamCaptureIsolation, 905, "dependency created on uncaptured work in another stream") \
    X(hipErrorStreamCaptureImplicit, 906, "operation would make the legacy stream depend on a capturing blocking stream") \
    X(hipErrorCapturedEvent, 907, "operation not permitted on an event last recorded in a capturing stream") \
    X(hipErrorStreamCaptureWrongThread, 908, "attempt to terminate a thread-local capture sequence from another thread") \
    X(hipErrorGraphExecUpdateFailure, 910, "the graph update was not performed because it included " \
      "changes which violated constraints specific to instantiated graph update") \
    X(hipErrorUnknown, 999, "unknown error")
// clang-format on

enum hipError_t : int
{
#define X(name, number, text) name = number,
    EMU_HIP_ERRORS(X)
#undef X
};

enum hipMemcpyKind : int
{
    hipMemcpyHostToHost     = 0,
    hipMemcpyHostToDevice   = 1,
    hipMemcpyDeviceToHost   = 2,
    hipMemcpyDeviceToDevice = 3,
    hipMemcpyDefault        = 4,
};

struct dim3
{
    uint32_t x, y, z;
};

typedef struct ihipStream_t* hipStream_t;
typedef struct ihipEvent_t* hipEvent_t;
typedef struct ihipModule_t* hipModule_t;
typedef struct ihipModuleSymbol_t* hipFunction_t;
typedef struct ihipMemPoolHandle_t* hipMemPool_t;
typedef struct ihipGraph* hipGraph_t;
typedef struct hipGraphNode* hipGraphNode_t;
typedef struct hipGraphExec* hipGraphExec_t;
typedef void* hipDeviceptr_t;

// Numbers of streams that have no object: the default one by its old name, and that of each thread.
inline constexpr uintptr_t LEGACY_STREAM = 1, PER_THREAD_STREAM = 2;

// Fields that no attribute has (hip/device/attributes.cpp has the others' places). The rest is zero.
struct hipDeviceProp_tR0600
{
    char name[256];
    char uuid[16];
    unsigned char gap_272[288 - 272];
    size_t totalGlobalMem;
    unsigned char gap_296[1160 - 296];
    char gcnArchName[256];
    unsigned char gap_1416[1428 - 1416];
    unsigned arch; // bits of hipDeviceArch_t
    unsigned char gap_1432[1472 - 1432];
};
static_assert(sizeof(hipDeviceProp_tR0600) == 1472);
static_assert(offsetof(hipDeviceProp_tR0600, totalGlobalMem) == 288);
static_assert(offsetof(hipDeviceProp_tR0600, gcnArchName) == 1160);
static_assert(offsetof(hipDeviceProp_tR0600, arch) == 1428);

struct hipPointerAttribute_t
{
    int type; // hipMemoryType: 1 host, 2 device, 3 managed
    int device;
    void* devicePointer;
    void* hostPointer;
    int isManaged;
    unsigned allocationFlags;
};

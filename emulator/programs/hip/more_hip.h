// Parts of HIP's host API that include/hip/hip_runtime.h lacks: graphs, pools, cooperative
// launches, managed memory. Names, values and layouts are those of HIP 6.
#pragma once

#include "check.h"

#if __has_include(<hip/detail/qualifiers.h>) // of the embedded toolchain; hipcc has all of it

typedef struct hipGraphNode* hipGraphNode_t;
typedef struct hipGraphExec* hipGraphExec_t;
typedef struct ihipMemPoolHandle_t* hipMemPool_t;
typedef void (*hipHostFn_t)(void*);

enum hipStreamCaptureMode
{
    hipStreamCaptureModeGlobal      = 0,
    hipStreamCaptureModeThreadLocal = 1,
    hipStreamCaptureModeRelaxed     = 2,
};

enum hipStreamCaptureStatus
{
    hipStreamCaptureStatusNone   = 0,
    hipStreamCaptureStatusActive = 1,
};

enum hipLimit_t
{
    hipLimitStackSize = 0,
};

enum hipGraphNodeType
{
    hipGraphNodeTypeKernel = 0,
    hipGraphNodeTypeHost   = 3,
};

enum hipGraphExecUpdateResult
{
    hipGraphExecUpdateSuccess              = 0,
    hipGraphExecUpdateErrorTopologyChanged = 2,
};

enum hipMemPoolAttr
{
    hipMemPoolReuseFollowEventDependencies = 1,
    hipMemPoolAttrReleaseThreshold         = 4,
    hipMemPoolAttrUsedMemCurrent           = 7,
    hipMemPoolAttrUsedMemHigh              = 8,
};

enum hipMemLocationType
{
    hipMemLocationTypeInvalid = 0,
    hipMemLocationTypeDevice  = 1,
};

enum hipMemAllocationType
{
    hipMemAllocationTypeInvalid = 0,
    hipMemAllocationTypePinned  = 1,
};

enum hipMemoryAdvise
{
    hipMemAdviseSetReadMostly        = 1,
    hipMemAdviseSetPreferredLocation = 3,
};

enum hipMemRangeAttribute
{
    hipMemRangeAttributeReadMostly           = 1,
    hipMemRangeAttributePreferredLocation    = 2,
    hipMemRangeAttributeLastPrefetchLocation = 4,
};

enum hipDriverProcAddressQueryResult
{
    HIP_GET_PROC_ADDRESS_SUCCESS          = 0,
    HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
};

#define hipCpuDeviceId (-1)

struct hipKernelNodeParams
{
    dim3 blockDim;
    void** extra;
    void* func;
    dim3 gridDim;
    void** kernelParams;
    unsigned int sharedMemBytes;
};

struct hipMemsetParams
{
    void* dst;
    unsigned int elementSize;
    size_t height;
    size_t pitch;
    unsigned int value;
    size_t width;
};

struct hipHostNodeParams
{
    hipHostFn_t fn;
    void* userData;
};

struct hipMemLocation
{
    hipMemLocationType type;
    int id;
};

struct hipMemPoolProps
{
    hipMemAllocationType allocType;
    int handleTypes;
    hipMemLocation location;
    void* win32SecurityAttributes;
    size_t maxSize;
    unsigned char reserved[56];
};

extern "C" {
hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned int flags, int priority);
hipError_t hipStreamGetPriority(hipStream_t stream, int* priority);
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode);
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph);
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status);
hipError_t hipStreamGetCaptureInfo(hipStream_t stream,
                                   hipStreamCaptureStatus* status,
                                   unsigned long long* id);
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode);
hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void* argument);
hipError_t hipGraphDestroy(hipGraph_t graph);
hipError_t hipGraphAddKernelNode(hipGraphNode_t* node,
                                 hipGraph_t graph,
                                 const hipGraphNode_t* dependencies,
                                 size_t count,
                                 const hipKernelNodeParams* params);
hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t* node,
                                   hipGraph_t graph,
                                   const hipGraphNode_t* dependencies,
                                   size_t count,
                                   void* to,
                                   const void* from,
                                   size_t bytes,
                                   hipMemcpyKind kind);
hipError_t hipGraphAddMemsetNode(hipGraphNode_t* node,
                                 hipGraph_t graph,
                                 const hipGraphNode_t* dependencies,
                                 size_t count,
                                 const hipMemsetParams* params);
hipError_t hipGraphAddHostNode(hipGraphNode_t* node,
                               hipGraph_t graph,
                               const hipGraphNode_t* dependencies,
                               size_t count,
                               const hipHostNodeParams* params);
hipError_t hipGraphAddEmptyNode(hipGraphNode_t* node,
                                hipGraph_t graph,
                                const hipGraphNode_t* dependencies,
                                size_t count);
hipError_t hipGraphAddEventRecordNode(hipGraphNode_t* node,
                                      hipGraph_t graph,
                                      const hipGraphNode_t* dependencies,
                                      size_t count,
                                      hipEvent_t event);
hipError_t hipGraphAddChildGraphNode(hipGraphNode_t* node,
                                     hipGraph_t graph,
                                     const hipGraphNode_t* dependencies,
                                     size_t count,
                                     hipGraph_t child);
hipError_t hipGraphAddDependencies(hipGraph_t graph,
                                   const hipGraphNode_t* from,
                                   const hipGraphNode_t* to,
                                   size_t count);
hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t* nodes, size_t* count);
hipError_t hipGraphGetRootNodes(hipGraph_t graph, hipGraphNode_t* nodes, size_t* count);
hipError_t hipGraphGetEdges(hipGraph_t graph,
                            hipGraphNode_t* from,
                            hipGraphNode_t* to,
                            size_t* count);
hipError_t hipGraphNodeGetType(hipGraphNode_t node, hipGraphNodeType* type);
hipError_t hipGraphKernelNodeGetParams(hipGraphNode_t node, hipKernelNodeParams* params);
hipError_t hipGraphKernelNodeSetParams(hipGraphNode_t node, const hipKernelNodeParams* params);
hipError_t hipGraphExecKernelNodeSetParams(hipGraphExec_t exec,
                                           hipGraphNode_t node,
                                           const hipKernelNodeParams* params);
hipError_t hipGraphClone(hipGraph_t* clone, hipGraph_t graph);
hipError_t hipGraphNodeFindInClone(hipGraphNode_t* node, hipGraphNode_t original, hipGraph_t clone);
hipError_t hipGraphInstantiate(
    hipGraphExec_t* exec, hipGraph_t graph, hipGraphNode_t* node, char* log, size_t bytes);
hipError_t hipGraphExecUpdate(hipGraphExec_t exec,
                              hipGraph_t graph,
                              hipGraphNode_t* node,
                              hipGraphExecUpdateResult* result);
hipError_t hipGraphExecDestroy(hipGraphExec_t exec);
hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream);
hipError_t hipMallocAsync(void** pointer, size_t bytes, hipStream_t stream);
hipError_t hipFreeAsync(void* pointer, hipStream_t stream);
hipError_t hipMallocFromPoolAsync(void** pointer,
                                  size_t bytes,
                                  hipMemPool_t pool,
                                  hipStream_t stream);
hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t* pool, int device);
hipError_t hipDeviceGetMemPool(hipMemPool_t* pool, int device);
hipError_t hipDeviceSetMemPool(int device, hipMemPool_t pool);
hipError_t hipMemPoolCreate(hipMemPool_t* pool, const hipMemPoolProps* properties);
hipError_t hipMemPoolDestroy(hipMemPool_t pool);
hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t bytes);
hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value);
hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value);
hipError_t hipLaunchCooperativeKernel(const void* function,
                                      dim3 grid,
                                      dim3 block,
                                      void** arguments,
                                      unsigned int lds_bytes,
                                      hipStream_t stream);
hipError_t hipMemAdvise(const void* pointer, size_t bytes, hipMemoryAdvise advice, int device);
hipError_t hipMemPrefetchAsync(const void* pointer, size_t bytes, int device, hipStream_t stream);
hipError_t hipMemRangeGetAttribute(
    void* value, size_t room, hipMemRangeAttribute attribute, const void* pointer, size_t bytes);
hipError_t hipStreamWriteValue32(hipStream_t stream, void* to, uint32_t value, unsigned int flags);
hipError_t hipStreamWaitValue32(
    hipStream_t stream, void* at, uint32_t value, unsigned int condition, uint32_t mask);
hipError_t hipGetProcAddress(const char* symbol,
                             void** function,
                             int version,
                             uint64_t flags,
                             hipDriverProcAddressQueryResult* status);
hipError_t hipMemcpyAsync_spt(
    void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream);
}

#endif

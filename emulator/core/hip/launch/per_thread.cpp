// The variants of calls whose default stream is that of the calling thread (hipcc
// -fgpu-default-stream=per-thread). A call that waits does the same in both; the others differ by
// where they are captured.
#include "hip/graph/graph.h"
#include "hip/types.h"

namespace {
hipStream_t mine(hipStream_t stream) { return stream ? stream : reinterpret_cast<hipStream_t>(PER_THREAD_STREAM); }
} // namespace

using Callback     = void (*)(hipStream_t, hipError_t, void*);
using HostFunction = void (*)(void*);

// Declare a call and define its variant: parameters before the stream and after it, and the same
// as arguments.
#define PER_THREAD(name, parameters, ...) \
    HIP_API hipError_t name parameters;   \
    HIP_API hipError_t name##_spt parameters { return name(__VA_ARGS__); }

// clang-format off
PER_THREAD(hipMemcpy, (void* to, const void* from, size_t bytes, hipMemcpyKind kind), to, from, bytes, kind)
PER_THREAD(hipMemcpyAsync, (void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream),
           to, from, bytes, kind, mine(stream))
PER_THREAD(hipMemcpyToSymbol,
           (const void* symbol, const void* from, size_t bytes, size_t offset, hipMemcpyKind kind),
           symbol, from, bytes, offset, kind)
PER_THREAD(hipMemcpyFromSymbol,
           (void* to, const void* symbol, size_t bytes, size_t offset, hipMemcpyKind kind),
           to, symbol, bytes, offset, kind)
PER_THREAD(hipMemcpyToSymbolAsync,
           (const void* symbol, const void* from, size_t bytes, size_t offset, hipMemcpyKind kind, hipStream_t stream),
           symbol, from, bytes, offset, kind, mine(stream))
PER_THREAD(hipMemcpyFromSymbolAsync,
           (void* to, const void* symbol, size_t bytes, size_t offset, hipMemcpyKind kind, hipStream_t stream),
           to, symbol, bytes, offset, kind, mine(stream))
PER_THREAD(hipMemcpy2D,
           (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
            hipMemcpyKind kind),
           to, to_pitch, from, from_pitch, width, height, kind)
PER_THREAD(hipMemcpy2DAsync,
           (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
            hipMemcpyKind kind, hipStream_t stream),
           to, to_pitch, from, from_pitch, width, height, kind, mine(stream))
PER_THREAD(hipMemcpy3D, (const hipMemcpy3DParms* box), box)
PER_THREAD(hipMemcpy3DAsync, (const hipMemcpy3DParms* box, hipStream_t stream), box, mine(stream))
PER_THREAD(hipMemset, (void* to, int value, size_t bytes), to, value, bytes)
PER_THREAD(hipMemsetAsync, (void* to, int value, size_t bytes, hipStream_t stream), to, value, bytes, mine(stream))
PER_THREAD(hipMemset2D, (void* to, size_t pitch, int value, size_t width, size_t height),
           to, pitch, value, width, height)
PER_THREAD(hipMemset2DAsync, (void* to, size_t pitch, int value, size_t width, size_t height, hipStream_t stream),
           to, pitch, value, width, height, mine(stream))
PER_THREAD(hipMemset3D, (hipPitchedPtr to, int value, hipExtent extent), to, value, extent)
PER_THREAD(hipMemset3DAsync, (hipPitchedPtr to, int value, hipExtent extent, hipStream_t stream),
           to, value, extent, mine(stream))
PER_THREAD(hipStreamQuery, (hipStream_t stream), mine(stream))
PER_THREAD(hipStreamSynchronize, (hipStream_t stream), mine(stream))
PER_THREAD(hipStreamGetPriority, (hipStream_t stream, int* priority), mine(stream), priority)
PER_THREAD(hipStreamGetFlags, (hipStream_t stream, unsigned* flags), mine(stream), flags)
PER_THREAD(hipStreamWaitEvent, (hipStream_t stream, hipEvent_t event, unsigned flags), mine(stream), event, flags)
PER_THREAD(hipStreamAddCallback, (hipStream_t stream, Callback function, void* argument, unsigned flags),
           mine(stream), function, argument, flags)
PER_THREAD(hipLaunchHostFunc, (hipStream_t stream, HostFunction function, void* argument),
           mine(stream), function, argument)
PER_THREAD(hipEventRecord, (hipEvent_t event, hipStream_t stream), event, mine(stream))
PER_THREAD(hipLaunchKernel,
           (const void* function, dim3 grid, dim3 block, void** arguments, size_t lds_bytes, hipStream_t stream),
           function, grid, block, arguments, lds_bytes, mine(stream))
PER_THREAD(hipLaunchCooperativeKernel,
           (const void* function, dim3 grid, dim3 block, void** arguments, unsigned lds_bytes, hipStream_t stream),
           function, grid, block, arguments, lds_bytes, mine(stream))
PER_THREAD(hipGraphLaunch, (hipGraphExec_t exec, hipStream_t stream), exec, mine(stream))
PER_THREAD(hipStreamBeginCapture, (hipStream_t stream, int mode), mine(stream), mode)
PER_THREAD(hipStreamEndCapture, (hipStream_t stream, hipGraph_t* graph), mine(stream), graph)
PER_THREAD(hipStreamIsCapturing, (hipStream_t stream, int* status), mine(stream), status)
PER_THREAD(hipStreamGetCaptureInfo, (hipStream_t stream, int* status, unsigned long long* id),
           mine(stream), status, id)
PER_THREAD(hipStreamGetCaptureInfo_v2,
           (hipStream_t stream, int* status, unsigned long long* id, hipGraph_t* graph,
            const hipGraphNode_t** dependencies, size_t* count),
           mine(stream), status, id, graph, dependencies, count)
// clang-format on

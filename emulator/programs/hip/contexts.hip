// Calls of the driver's kind, by name: contexts, the device's number, copies by parameters,
// attributes of pointers, objects of the program in graphs. Prints a line for each, "name value".
#include "more_hip.h"

#include <cstring>

#if __has_include(<hip/detail/qualifiers.h>) // of the embedded toolchain; hipcc has all of it
typedef struct ihipCtx_t* hipCtx_t;
typedef struct hipUserObject* hipUserObject_t;
struct hipUUID
{
    char bytes[16];
};
enum hipMemoryType
{
    hipMemoryTypeHost   = 1,
    hipMemoryTypeDevice = 2,
};
enum hipPointer_attribute
{
    HIP_POINTER_ATTRIBUTE_MEMORY_TYPE      = 2,
    HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
    HIP_POINTER_ATTRIBUTE_RANGE_SIZE       = 12,
};
struct hip_Memcpy2D
{
    size_t srcXInBytes, srcY;
    hipMemoryType srcMemoryType;
    const void* srcHost;
    void* srcDevice;
    void* srcArray;
    size_t srcPitch, dstXInBytes, dstY;
    hipMemoryType dstMemoryType;
    void* dstHost;
    void* dstDevice;
    void* dstArray;
    size_t dstPitch, WidthInBytes, Height;
};
#define hipUserObjectNoDestructorSync 1
#define hipGraphUserObjectMove        1
extern "C" {
hipError_t hipDeviceGetUuid(hipUUID* uuid, int device);
hipError_t hipDevicePrimaryCtxRetain(hipCtx_t* context, int device);
hipError_t hipDevicePrimaryCtxRelease(int device);
hipError_t hipCtxPushCurrent(hipCtx_t context);
hipError_t hipCtxPopCurrent(hipCtx_t* context);
hipError_t hipCtxSetCurrent(hipCtx_t context);
hipError_t hipCtxGetCurrent(hipCtx_t* context);
hipError_t hipMemcpyParam2D(const hip_Memcpy2D* copy);
hipError_t hipPointerGetAttribute(void* to, hipPointer_attribute attribute, void* pointer);
hipError_t hipUserObjectCreate(
    hipUserObject_t* object, void* pointer, hipHostFn_t destroy, unsigned count, unsigned flags);
hipError_t hipGraphRetainUserObject(hipGraph_t graph,
                                    hipUserObject_t object,
                                    unsigned count,
                                    unsigned flags);
hipError_t hipGraphDebugDotPrint(hipGraph_t graph, const char* path, unsigned flags);
}
#endif

static void name_of(const char* name, hipError_t error)
{
    std::printf("%s %s\n", name, hipGetErrorName(error));
    (void)hipGetLastError();
}

static void contexts()
{
    hipCtx_t primary, current, popped = nullptr;
    HIP_CHECK(hipDevicePrimaryCtxRetain(&primary, 0));
    name_of("retain_other", hipDevicePrimaryCtxRetain(&primary, 1));
    name_of("pop_without_push", hipCtxPopCurrent(&popped));
    HIP_CHECK(hipCtxPushCurrent(primary));
    HIP_CHECK(hipCtxGetCurrent(&current));
    HIP_CHECK(hipCtxPopCurrent(&popped));
    HIP_CHECK(hipCtxSetCurrent(primary));
    HIP_CHECK(hipDevicePrimaryCtxRelease(0));
    std::printf("same %d\n", primary == current && primary == popped);
    hipUUID uuid, again;
    HIP_CHECK(hipDeviceGetUuid(&uuid, 0));
    HIP_CHECK(hipDeviceGetUuid(&again, 0));
    std::printf("uuid %d\n", std::memcmp(&uuid, &again, sizeof uuid) == 0 && uuid.bytes[0] != 0);
}

// Rows of 8 bytes from a pitch of 32: the second and third one, from their fifth byte on.
static void copies()
{
    char rows[4 * 32], some[2 * 8];
    for(size_t i = 0; i < sizeof rows; ++i)
        rows[i] = static_cast<char>(i);
    void* device;
    HIP_CHECK(hipMalloc(&device, sizeof rows));
    HIP_CHECK(hipMemcpy(device, rows, sizeof rows, hipMemcpyHostToDevice));
    hip_Memcpy2D copy{};
    copy.srcXInBytes   = 4;
    copy.srcY          = 1;
    copy.srcMemoryType = hipMemoryTypeDevice;
    copy.srcDevice     = device;
    copy.srcPitch      = 32;
    copy.dstMemoryType = hipMemoryTypeHost;
    copy.dstHost       = some;
    copy.dstPitch      = 8;
    copy.WidthInBytes  = 8;
    copy.Height        = 2;
    HIP_CHECK(hipMemcpyParam2D(&copy));
    std::printf("rows %d %d %d\n", some[0], some[7], some[8]);
    char* const inside = static_cast<char*>(device) + 5;
    void* start;
    size_t bytes;
    int type;
    HIP_CHECK(hipPointerGetAttribute(&start, HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
    HIP_CHECK(hipPointerGetAttribute(&bytes, HIP_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
    HIP_CHECK(hipPointerGetAttribute(&type, HIP_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
    std::printf("range %d %zu %d\n", start == device, bytes, type == hipMemoryTypeDevice);
    name_of("of_host", hipPointerGetAttribute(&type, HIP_POINTER_ATTRIBUTE_MEMORY_TYPE, rows));
    name_of("free_inside", hipFree(inside));
    HIP_CHECK(hipFree(device));
}

static void destroy(void* count) { ++*static_cast<int*>(count); }

// An object goes with the last of a graph and what was made of it.
static void objects(const char* file)
{
    int destroyed = 0;
    hipUserObject_t object;
    hipGraph_t graph;
    hipGraphExec_t exec;
    hipGraphNode_t node;
    void* memory;
    HIP_CHECK(hipMalloc(&memory, 4));
    HIP_CHECK(hipGraphCreate(&graph, 0));
    HIP_CHECK(hipGraphAddMemcpyNode1D(
        &node, graph, nullptr, 0, memory, &destroyed, 4, hipMemcpyHostToDevice));
    HIP_CHECK(hipUserObjectCreate(&object, &destroyed, destroy, 1, hipUserObjectNoDestructorSync));
    HIP_CHECK(hipGraphRetainUserObject(graph, object, 1, hipGraphUserObjectMove));
    HIP_CHECK(hipGraphDebugDotPrint(graph, file, 0));
    HIP_CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    HIP_CHECK(hipGraphDestroy(graph));
    std::printf("with_exec %d\n", destroyed);
    HIP_CHECK(hipGraphExecDestroy(exec));
    std::printf("without %d\n", destroyed);
    HIP_CHECK(hipFree(memory));
}

int main(int count, char** words)
{
    int devices = -1;
    name_of("devices", hipGetDeviceCount(&devices));
    if(devices == 0)
    {
        void* memory;
        name_of("malloc", hipMalloc(&memory, 4));
        return 0;
    }
    contexts();
    copies();
    if(count > 1)
        objects(words[1]);
    return 0;
}

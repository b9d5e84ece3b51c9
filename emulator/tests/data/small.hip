// A kernel library in small: what clang makes of __global__, __device__ and <<<>>> must work with
// the emulator's runtime.
#include <hip/hip_runtime.h>

__device__ uint64_t table[32];

__global__ void touch(uint64_t* out, uint64_t value)
{
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
__global__ void trap_after(int* out) { *out = 1; }

extern "C" {
hipError_t hipMemcpyToSymbol(
    const void* symbol, const void* from, size_t bytes, size_t offset, hipMemcpyKind kind);
hipError_t hipMemcpyFromSymbol(
    void* to, const void* symbol, size_t bytes, size_t offset, hipMemcpyKind kind);

int small_touch(uint64_t* out, uint64_t value, unsigned groups, unsigned threads, size_t lds)
{
    touch<<<dim3(groups), dim3(threads), lds>>>(out, value);
    return hipGetLastError();
}

int small_trap(int* out)
{
    trap_after<<<dim3(2, 3, 4), dim3(64)>>>(out);
    return hipPeekAtLastError();
}

// Through the runtime and back; -1 if what comes back is something else.
int small_table(uint64_t value)
{
    uint64_t back  = 0;
    const int into = hipMemcpyToSymbol(&table, &value, 8, 240, hipMemcpyHostToDevice);
    const int from = hipMemcpyFromSymbol(&back, &table, 8, 240, hipMemcpyDeviceToHost);
    return into ? into : from ? from : back == value ? 0 : -1;
}

// Fields as the compiler of kernels sees them: its header's offsets, the runtime's values.
int small_properties(hipDeviceProp_t* properties, uint64_t* values)
{
    const int status = hipGetDeviceProperties(properties, 0);
    values[0]        = sizeof *properties;
    values[1]        = properties->totalGlobalMem;
    values[2]        = properties->sharedMemPerBlock;
    values[3]        = properties->regsPerBlock;
    values[4]        = properties->warpSize;
    values[5]        = properties->maxThreadsPerBlock;
    values[6]        = properties->maxThreadsDim[2];
    values[7]        = properties->maxGridSize[0];
    values[8]        = properties->major;
    values[9]        = properties->minor;
    values[10]       = properties->multiProcessorCount;
    values[11]       = properties->maxSharedMemoryPerMultiProcessor;
    return status;
}
const char* small_name(const hipDeviceProp_t* properties) { return properties->name; }
const char* small_arch(const hipDeviceProp_t* properties) { return properties->gcnArchName; }

// Every call of the header that a kernel library or a harness makes; the number of the first that
// failed, 0 if none.
int small_calls(void)
{
    int number = 0, device = -1, count = 0, version = 0;
    void *pointer = nullptr, *host = nullptr;
    char bytes[64]    = {1, 2, 3};
    size_t free_bytes = 0, total = 0;
    hipStream_t stream = nullptr;
    hipEvent_t start = nullptr, stop = nullptr;
    float elapsed    = -1;
    uint32_t mask[8] = {};
#define STEP(call)           \
    ++number;                \
    if((call) != hipSuccess) \
    return number
    STEP(hipInit(0));
    STEP(hipRuntimeGetVersion(&version));
    STEP(hipDriverGetVersion(&version));
    STEP(hipGetDeviceCount(&count));
    STEP(hipSetDevice(0));
    STEP(hipGetDevice(&device));
    STEP(hipStreamCreate(&stream));
    STEP(hipEventCreate(&start));
    STEP(hipEventCreateWithFlags(&stop, hipEventDefault));
    STEP(hipMalloc(&pointer, 64));
    STEP(hipHostMalloc(&host, 64, hipHostMallocDefault));
    STEP(hipMemGetInfo(&free_bytes, &total));
    STEP(hipEventRecord(start, stream));
    STEP(hipMemcpy(pointer, bytes, 64, hipMemcpyHostToDevice));
    STEP(hipMemcpyAsync(host, pointer, 64, hipMemcpyDeviceToHost, stream));
    STEP(hipMemset(pointer, 0, 64));
    STEP(hipMemsetAsync(pointer, 9, 64, stream));
    STEP(hipStreamWaitEvent(stream, start, 0));
    STEP(hipEventRecord(stop, stream));
    STEP(hipStreamSynchronize(stream));
    STEP(hipStreamQuery(stream));
    STEP(hipEventSynchronize(stop));
    STEP(hipEventQuery(stop));
    STEP(hipEventElapsedTime(&elapsed, start, stop));
    STEP(hipExtStreamGetCUMask(stream, 8, mask));
    STEP(hipDeviceSynchronize());
    STEP(hipGetLastError());
    STEP(hipEventDestroy(start));
    STEP(hipEventDestroy(stop));
    STEP(hipStreamDestroy(stream));
    STEP(hipHostFree(host));
    STEP(hipFree(pointer));
    ++number;
    const bool right = device == 0 && count == 1 && version / 10000000 == HIP_VERSION_MAJOR &&
                       elapsed >= 0 && total > free_bytes && mask[0] == ~0u;
    return right ? 0 : number;
}
}

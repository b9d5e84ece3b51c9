// A kernel library in small: what clang makes of __global__, __device__ and <<<>>> must work with
// the emulator's runtime.
#include <hip/hip_runtime.h>

__device__ uint64_t table[32];

__global__ void __launch_bounds__(256) touch(uint64_t* out, uint64_t value)
{
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
__global__ void other(int* out) { *out = 1; }

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

// Calls that no program of programs/hip makes; the number of the first that failed, 0 if none.
int small_calls(void)
{
    int number = 0, device = -1, version = 0;
    size_t free_bytes = 0, total = 0;
    uint32_t mask[8] = {};
#define STEP(call)           \
    ++number;                \
    if((call) != hipSuccess) \
    return number
    STEP(hipInit(0));
    STEP(hipRuntimeGetVersion(&version));
    STEP(hipDriverGetVersion(&version));
    STEP(hipSetDevice(0));
    STEP(hipGetDevice(&device));
    STEP(hipMemGetInfo(&free_bytes, &total));
    STEP(hipExtStreamGetCUMask(nullptr, 8, mask));
    ++number;
    const bool right = device == 0 && version / 10000000 == HIP_VERSION_MAJOR &&
                       total >= free_bytes && mask[0] == ~0u;
    return right ? 0 : number;
}
}

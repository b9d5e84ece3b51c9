// Calls whose depth or target the compiler can't know, by the first argument. `recursion DEPTH
// [BYTES]` recurses with the stack that is limited to so many bytes. `pointer FILE` calls a
// function of the loaded module by its address, `null` a pointer that was never set, `host` an
// address of the host's code, and `data` one of memory.
#include "more_hip.h"

#include <cstring>

extern "C" hipError_t hipDeviceGetLimit(size_t* value, hipLimit_t limit);
extern "C" hipError_t hipDeviceSetLimit(hipLimit_t limit, size_t value);

typedef int (*Function)(int);

// More than a tail call: what it adds is kept on the stack meanwhile.
__device__ __attribute__((noinline)) int sum_to(int n, volatile int* values)
{
    if(n == 0)
        return 0;
    volatile int mine = values[n % 7];
    const int below   = sum_to(n - 1, values);
    return below + mine + n;
}

__global__ void recurse(int* out, int depth, int* values)
{
    out[threadIdx.x] = sum_to(depth, values);
}

__device__ int plus_seven(int value) { return value + 7; }
__device__ int times_three(int value) { return value * 3; }
__device__ Function chosen = times_three;

// The module's `chosen` is read by this kernel, which runs in another module.
extern "C" __global__ void address_of_function(uint64_t* out)
{
    out[0] = reinterpret_cast<uint64_t>(chosen);
    out[1] = reinterpret_cast<uint64_t>(static_cast<Function>(plus_seven));
}

extern "C" __global__ void call(int* out, const uint64_t* function)
{
    const int i = threadIdx.x;
    out[i]      = reinterpret_cast<Function>(*function)(i) + 1000;
}

static int print(const int* on_device)
{
    int first, last;
    const hipError_t ended = hipDeviceSynchronize();
    std::printf("%s\n", hipGetErrorName(ended));
    if(ended != hipSuccess)
        return 0;
    HIP_CHECK(hipMemcpy(&first, on_device, sizeof first, hipMemcpyDeviceToHost));
    HIP_CHECK(hipMemcpy(&last, on_device + 63, sizeof last, hipMemcpyDeviceToHost));
    std::printf("%d %d\n", first, last);
    return 0;
}

static int recursion(int* out, int depth, const char* limit)
{
    int* values;
    const int given[7] = {1, 2, 3, 4, 5, 6, 7};
    HIP_CHECK(hipMalloc(&values, sizeof given));
    HIP_CHECK(hipMemcpy(values, given, sizeof given, hipMemcpyHostToDevice));
    size_t bytes = 0;
    if(limit)
        std::printf("%s ",
                    hipGetErrorName(hipDeviceSetLimit(hipLimitStackSize,
                                                      static_cast<size_t>(std::atoll(limit)))));
    HIP_CHECK(hipDeviceGetLimit(&bytes, hipLimitStackSize));
    std::printf("%zu ", bytes);
    recurse<<<dim3(1), dim3(64)>>>(out, depth, values);
    return print(out);
}

static int call_of_module(int* out, uint64_t* address, const char* path)
{
    hipModule_t module;
    hipFunction_t asks;
    HIP_CHECK(hipModuleLoad(&module, path));
    HIP_CHECK(hipModuleGetFunction(&asks, module, "address_of_function"));
    void* arguments[] = {&address};
    HIP_CHECK(hipModuleLaunchKernel(asks, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    call<<<dim3(2), dim3(64)>>>(out, address);
    print(out);
    call<<<dim3(2), dim3(64)>>>(out, address + 1);
    print(out);
    HIP_CHECK(hipModuleUnload(module));
    call<<<dim3(2), dim3(64)>>>(out, address);
    return print(out);
}

int main(int count, char** words)
{
    int* out;
    uint64_t* address;
    HIP_CHECK(hipMalloc(&out, 64 * sizeof(int)));
    HIP_CHECK(hipMalloc(&address, 2 * sizeof(uint64_t)));
    if(std::strcmp(words[1], "recursion") == 0)
        return recursion(out, std::atoi(words[2]), count > 3 ? words[3] : nullptr);
    if(std::strcmp(words[1], "pointer") == 0)
        return call_of_module(out, address, words[2]);
    const uint64_t places[] = {
        0, reinterpret_cast<uint64_t>(&main), reinterpret_cast<uint64_t>(out)};
    const int which = std::strcmp(words[1], "null") == 0   ? 0
                      : std::strcmp(words[1], "host") == 0 ? 1
                                                           : 2;
    HIP_CHECK(hipMemcpy(address, places + which, sizeof *places, hipMemcpyHostToDevice));
    call<<<dim3(1), dim3(64)>>>(out, address);
    return print(out);
}

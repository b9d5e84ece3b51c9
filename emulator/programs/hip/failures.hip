// Errors, by the first argument: `write` writes past an allocation, `absent` calls a function that
// the emulator lacks, `module FILE` loads code and runs its kernel `fill`.
#include "check.h"

#include <cstring>

extern "C" __global__ void fill(int* out, int n, int value)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if(i < n)
        out[i] = value;
}

static int write_behind()
{
    int* out;
    HIP_CHECK(hipMalloc(&out, 100 * sizeof(int)));
    fill<<<dim3(2), dim3(64)>>>(out, 101, 1);
    std::printf("%s\n", hipGetErrorName(hipDeviceSynchronize()));
    std::printf("%s\n", hipGetErrorName(hipMalloc(&out, 4)));
    return 0;
}

static int absent()
{
    for(int i = 0; i < 2; ++i)
        std::printf("%s\n", hipGetErrorName(hipCtxSynchronize()));
    return 0;
}

static int run_module(const char* path)
{
    hipModule_t module;
    hipFunction_t function;
    const hipError_t loaded = hipModuleLoad(&module, path);
    if(loaded != hipSuccess)
    {
        std::printf("%s\n", hipGetErrorName(loaded));
        return 5;
    }
    HIP_CHECK(hipModuleGetFunction(&function, module, "fill"));
    int* out;
    int n = 70, value = 9, sum = 0, back[70];
    HIP_CHECK(hipMalloc(&out, sizeof back));
    void* arguments[] = {&out, &n, &value};
    HIP_CHECK(hipModuleLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
    HIP_CHECK(hipMemcpy(back, out, sizeof back, hipMemcpyDeviceToHost));
    for(const int one : back)
        sum += one;
    std::printf("%d\n", sum);
    HIP_CHECK(hipModuleUnload(module));
    return 0;
}

int main(int count, char** words)
{
    if(count > 2)
        return run_module(words[2]);
    return std::strcmp(words[1], "write") == 0 ? write_behind() : absent();
}

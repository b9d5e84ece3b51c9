// Launches a kernel of the program, and a kernel of the module in the argument, between events.
// Each kernel adds its number to the buffer.
#include "check.h"

#include <hip/hip_ext.h>

constexpr int N = 200;

extern "C" __global__ void add(int* out, int n, int value)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if(i < n)
        out[i] += value;
}

// The names that these functions have in programs compiled with older headers of HIP.
hipError_t
older_launch(hipFunction_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, size_t, hipStream_t, void**, void**, hipEvent_t, hipEvent_t, uint32_t) __asm__(
    "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjm"
    "P12ihipStream_tPPvS4_P11ihipEvent_tS6_j");
hipError_t
oldest_launch(hipFunction_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, size_t, hipStream_t, void**, void**, hipEvent_t, hipEvent_t) __asm__(
    "_Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjm"
    "P12ihipStream_tPPvS4_P11ihipEvent_tS6_");

static const char* said(hipEvent_t start, hipEvent_t stop)
{
    float milliseconds      = -1;
    const hipError_t status = hipEventElapsedTime(&milliseconds, start, stop);
    return status == hipSuccess && milliseconds < 0 ? "backwards" : hipGetErrorName(status);
}

int main(int, char** words)
{
    hipModule_t module;
    hipFunction_t function;
    HIP_CHECK(hipModuleLoad(&module, words[1]));
    HIP_CHECK(hipModuleGetFunction(&function, module, "add"));
    hipStream_t stream;
    HIP_CHECK(hipStreamCreate(&stream));
    hipEvent_t events[8];
    for(hipEvent_t& event : events)
        HIP_CHECK(hipEventCreate(&event));
    int* out;
    int n = N, back[N];
    HIP_CHECK(hipMalloc(&out, sizeof back));
    HIP_CHECK(hipMemset(out, 0, sizeof back));
    int value         = 1;
    void* arguments[] = {&out, &n, &value};
    const void* own   = reinterpret_cast<const void*>(add);

    std::printf("%s\n", said(events[0], events[1]));
    HIP_CHECK(
        hipExtLaunchKernel(own, dim3(4), dim3(64), arguments, 0, stream, events[0], events[1], 0));
    HIP_CHECK(hipStreamSynchronize(stream));
    std::printf("%s\n", said(events[0], events[1]));

    value = 10; // sizes in threads
    HIP_CHECK(hipExtModuleLaunchKernel(
        function, 256, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr, events[2], events[3], 0));
    HIP_CHECK(hipStreamSynchronize(stream));
    std::printf("%s\n", said(events[2], events[3]));
    std::printf("%s\n", said(events[0], events[3]));

    value = 100; // one event, and none
    HIP_CHECK(
        hipExtLaunchKernel(own, dim3(4), dim3(64), arguments, 0, stream, nullptr, events[5], 0));
    HIP_CHECK(hipExtModuleLaunchKernel(
        function, 256, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr, nullptr, nullptr, 0));
    HIP_CHECK(hipStreamSynchronize(stream));
    std::printf("%s\n", said(events[3], events[5]));
    std::printf("%s\n", said(events[4], events[5]));

    value = 1000;
    HIP_CHECK(older_launch(
        function, 256, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr, events[6], nullptr, 0));
    HIP_CHECK(oldest_launch(
        function, 256, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr, nullptr, events[7]));
    HIP_CHECK(hipStreamSynchronize(stream));
    std::printf("%s\n", said(events[6], events[7]));

    HIP_CHECK(hipMemcpy(back, out, sizeof back, hipMemcpyDeviceToHost));
    std::printf("%d %d\n", back[0], back[N - 1]);
    HIP_CHECK(hipModuleUnload(module));
    return 0;
}

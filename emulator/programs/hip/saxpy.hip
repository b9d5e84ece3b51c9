// y = a x + y on two streams, with pinned memory, events and a callback. Writes the result to
// standard output as floats.
#include "check.h"

__global__ void saxpy(int n, float a, const float* x, float* y)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if(i < n)
        y[i] = a * x[i] + y[i];
}

static void count(hipStream_t, hipError_t status, void* calls)
{
    if(status == hipSuccess)
        ++*static_cast<int*>(calls);
}

int main(int, char** words)
{
    const int n       = std::atoi(words[1]);
    const float a     = static_cast<float>(std::atof(words[2]));
    const size_t size = n * sizeof(float);
    float *x, *y, *device_x, *device_y;
    HIP_CHECK(hipHostMalloc(reinterpret_cast<void**>(&x), 2 * size, 0));
    HIP_CHECK(hipHostMalloc(reinterpret_cast<void**>(&y), 2 * size, 0));
    HIP_CHECK(hipMalloc(&device_x, 2 * size));
    HIP_CHECK(hipMalloc(&device_y, 2 * size));
    for(int i = 0; i < 2 * n; ++i)
    {
        x[i] = static_cast<float>(i % 1000);
        y[i] = static_cast<float>(i % 7);
    }
    hipStream_t streams[2];
    hipEvent_t start, stop;
    HIP_CHECK(hipEventCreate(&start));
    HIP_CHECK(hipEventCreate(&stop));
    HIP_CHECK(hipEventRecord(start, nullptr));
    int calls = 0;
    for(int half = 0; half < 2; ++half)
    {
        const size_t at = static_cast<size_t>(half) * n;
        HIP_CHECK(hipStreamCreate(&streams[half]));
        hipStream_t stream = streams[half];
        HIP_CHECK(hipMemcpyAsync(device_x + at, x + at, size, hipMemcpyHostToDevice, stream));
        HIP_CHECK(hipMemcpyAsync(device_y + at, y + at, size, hipMemcpyHostToDevice, stream));
        saxpy<<<dim3((n + 255) / 256), dim3(256), 0, stream>>>(n, a, device_x + at, device_y + at);
        HIP_CHECK(hipGetLastError());
        HIP_CHECK(hipMemcpyAsync(y + at, device_y + at, size, hipMemcpyDeviceToHost, stream));
        HIP_CHECK(hipStreamAddCallback(stream, count, &calls, 0));
    }
    HIP_CHECK(hipEventRecord(stop, nullptr));
    HIP_CHECK(hipEventSynchronize(stop));
    float milliseconds = -1;
    HIP_CHECK(hipEventElapsedTime(&milliseconds, start, stop));
    for(hipStream_t stream : streams)
    {
        HIP_CHECK(hipStreamSynchronize(stream));
        HIP_CHECK(hipStreamDestroy(stream));
    }
    if(calls != 2 || milliseconds < 0)
        return 4;
    std::fwrite(y, sizeof(float), 2 * n, stdout);
    HIP_CHECK(hipFree(device_x));
    HIP_CHECK(hipFree(device_y));
    HIP_CHECK(hipHostFree(x));
    HIP_CHECK(hipHostFree(y));
    return 0;
}

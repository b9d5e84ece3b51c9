// An ordinary program: a stream that waits for an event of another stream, LDS, atomics, f64 with
// functions of the device library, printf in a kernel. It prints statistics of
// f(x) = sin(x)^2 + x^1.5 tanh(x) / sqrt(x + 1) in equal steps: each workgroup's sum, the sum of
// all, the count of values in each unit interval, and the largest value.
#include "check.h"
#include "device_library.h"

#include <vector>

constexpr int THREADS = 192, BINS = 6;

struct Result
{
    double sum;
    unsigned long long largest; // the bits of a positive f64
    unsigned bins[BINS];
};

__global__ void values(int n, double step, double* out)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if(i >= n)
        return;
    const double x = (i + 0.5) * step, s = sin(x);
    out[i] = s * s + pow(x, 1.5) * tanh(x) / sqrt(x + 1.0);
}

__global__ void __launch_bounds__(THREADS) reduce(int n, const double* values, Result* result)
{
    extern __shared__ double part[];
    __shared__ unsigned bins[BINS];
    const int i       = blockIdx.x * THREADS + threadIdx.x;
    const double mine = i < n ? values[i] : 0.0;
    part[threadIdx.x] = mine;
    if(threadIdx.x < BINS)
        bins[threadIdx.x] = 0;
    __syncthreads();
    if(i < n)
    {
        atomicAdd(&bins[static_cast<int>(mine)], 1u);
        atomicMax(&result->largest, __builtin_bit_cast(unsigned long long, mine));
    }
    for(int left = THREADS; left % 2 == 0; left /= 2)
    {
        if(static_cast<int>(threadIdx.x) < left / 2)
            part[threadIdx.x] += part[threadIdx.x + left / 2];
        __syncthreads();
    }
    if(threadIdx.x < BINS)
        atomicAdd(&result->bins[threadIdx.x], bins[threadIdx.x]);
    if(threadIdx.x == 0)
    {
        const double sum = part[0] + part[1] + part[2]; // 192 is 3 times a power of two
        atomicAdd(&result->sum, sum);
        printf("workgroup %d: %.17g\n", static_cast<int>(blockIdx.x), sum);
    }
}

int main(int, char** words)
{
    const int n = std::atoi(words[1]), workgroups = (n + THREADS - 1) / THREADS;
    double* device;
    Result *result, *host;
    HIP_CHECK(hipMalloc(&device, n * sizeof(double)));
    HIP_CHECK(hipMalloc(&result, sizeof(Result)));
    HIP_CHECK(hipHostMalloc(reinterpret_cast<void**>(&host), sizeof(Result), 0));
    hipStream_t first, second;
    hipEvent_t start, ready, stop;
    HIP_CHECK(hipStreamCreate(&first));
    HIP_CHECK(hipStreamCreateWithFlags(&second, hipStreamNonBlocking));
    HIP_CHECK(hipEventCreate(&start));
    HIP_CHECK(hipEventCreateWithFlags(&ready, hipEventDisableTiming));
    HIP_CHECK(hipEventCreate(&stop));

    HIP_CHECK(hipEventRecord(start, first));
    values<<<dim3(workgroups), dim3(THREADS), 0, first>>>(n, 5.0 / n, device);
    HIP_CHECK(hipGetLastError());
    HIP_CHECK(hipEventRecord(ready, first));
    HIP_CHECK(hipMemsetAsync(result, 0, sizeof(Result), second));
    HIP_CHECK(hipStreamWaitEvent(second, ready, 0));
    reduce<<<dim3(workgroups), dim3(THREADS), THREADS * sizeof(double), second>>>(
        n, device, result);
    HIP_CHECK(hipGetLastError());
    HIP_CHECK(hipMemcpyAsync(host, result, sizeof(Result), hipMemcpyDeviceToHost, second));
    HIP_CHECK(hipEventRecord(stop, second));
    HIP_CHECK(hipEventSynchronize(stop));
    float milliseconds = -1;
    HIP_CHECK(hipEventElapsedTime(&milliseconds, start, stop));
    HIP_CHECK(hipStreamQuery(second));

    std::printf("sum %.17g\n", host->sum);
    for(const unsigned count : host->bins)
        std::printf("%u ", count);
    std::printf("\nlargest %llx\n", host->largest);
    std::printf("events %s\n", milliseconds >= 0 ? "in order" : "out of order");
    for(hipEvent_t event : {start, ready, stop})
        HIP_CHECK(hipEventDestroy(event));
    HIP_CHECK(hipStreamDestroy(first));
    HIP_CHECK(hipStreamDestroy(second));
    HIP_CHECK(hipFree(device));
    HIP_CHECK(hipFree(result));
    HIP_CHECK(hipHostFree(host));
    return 0;
}

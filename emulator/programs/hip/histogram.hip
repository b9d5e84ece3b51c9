// A histogram of the bytes on standard input, with counters in dynamic LDS, and the largest byte.
// Writes both to standard output as 32-bit words.
#include "check.h"

#include <vector>

extern __shared__ unsigned local_counts[];

__global__ void histogram(const unsigned char* bytes, int n, unsigned* counts, unsigned* largest)
{
    for(unsigned i = threadIdx.x; i < 256; i += blockDim.x)
        local_counts[i] = 0;
    __syncthreads();
    for(int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    {
        atomicAdd(&local_counts[bytes[i]], 1u);
        atomicMax(largest, bytes[i]);
    }
    __syncthreads();
    for(unsigned i = threadIdx.x; i < 256; i += blockDim.x)
        atomicAdd(&counts[i], local_counts[i]);
}

int main()
{
    std::vector<unsigned char> bytes;
    for(int c; (c = std::getchar()) != EOF;)
        bytes.push_back(static_cast<unsigned char>(c));
    unsigned char* device;
    unsigned* counts;
    HIP_CHECK(hipMalloc(&device, bytes.size()));
    HIP_CHECK(hipMalloc(&counts, 257 * sizeof(unsigned)));
    HIP_CHECK(hipMemset(counts, 0, 257 * sizeof(unsigned)));
    HIP_CHECK(hipMemcpy(device, bytes.data(), bytes.size(), hipMemcpyHostToDevice));
    histogram<<<dim3(5), dim3(192), 256 * sizeof(unsigned)>>>(
        device, static_cast<int>(bytes.size()), counts, counts + 256);
    HIP_CHECK(hipDeviceSynchronize());
    unsigned result[257];
    HIP_CHECK(hipMemcpy(result, counts, sizeof result, hipMemcpyDeviceToHost));
    std::fwrite(result, sizeof(unsigned), 257, stdout);
    return 0;
}

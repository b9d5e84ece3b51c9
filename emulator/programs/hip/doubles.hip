// Arithmetic in f64: sqrt(i) / (i + 1/3) for i from 1 on, summed by a tree in LDS. Writes all
// values and then the sums of the blocks to standard output as doubles.
#include "check.h"

#include <vector>

constexpr int THREADS = 128;

__global__ void __launch_bounds__(THREADS) terms(double* out, double* sums)
{
    __shared__ double part[THREADS];
    const int i       = blockIdx.x * THREADS + threadIdx.x;
    const double x    = i + 1.0;
    const double t    = sqrt(x) / (x + 1.0 / 3.0);
    out[i]            = t;
    part[threadIdx.x] = t;
    for(int half = THREADS / 2; half > 0; half /= 2)
    {
        __syncthreads();
        if(static_cast<int>(threadIdx.x) < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    if(threadIdx.x == 0)
        sums[blockIdx.x] = part[0];
}

int main()
{
    constexpr int BLOCKS = 9, N = BLOCKS * THREADS;
    double* out;
    HIP_CHECK(hipMallocManaged(reinterpret_cast<void**>(&out), (N + BLOCKS) * sizeof(double), 1));
    terms<<<dim3(BLOCKS), dim3(THREADS)>>>(out, out + N);
    HIP_CHECK(hipDeviceSynchronize());
    std::fwrite(out, sizeof(double), N + BLOCKS, stdout);
    return 0;
}

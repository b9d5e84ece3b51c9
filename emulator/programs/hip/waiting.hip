// Ordinary launches whose waves wait for other waves, by the first argument. `later` and `counted`
// wait for the last workgroup, and `counted` counts its reads. `waves` wait for a wave of their own
// workgroup without a barrier. `looks` waits for the last workgroup, with a barrier between its
// looks. `never`, `all` and `meets` wait without end, `meets` at barriers. The second argument is
// the number of workgroups.
#include "more_hip.h"

#include <cstdlib>
#include <cstring>

constexpr int THREADS = 256, WAVE = 64;

__device__ static unsigned look(unsigned* flag)
{
    return __hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT);
}

// Each workgroup but the last waits for what the last one writes, and writes it itself, plus its
// number.
__global__ void later(unsigned* flag, unsigned* out)
{
    if(blockIdx.x + 1 == gridDim.x)
        __hip_atomic_store(flag, 1000u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
    while(look(flag) == 0)
    {
    }
    if(threadIdx.x == 0)
        out[blockIdx.x] = look(flag) + blockIdx.x;
}

__global__ void counted(unsigned* flag, unsigned* out)
{
    if(blockIdx.x + 1 == gridDim.x)
        __hip_atomic_store(flag, 1000u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
    unsigned looks = 1;
    for(; look(flag) == 0; ++looks)
        __builtin_amdgcn_s_sleep(2);
    if(threadIdx.x == 0)
        out[blockIdx.x] = looks > 0 ? look(flag) + blockIdx.x : 0;
}

// Each wave but the last waits for the next one.
__global__ void waves(unsigned* flag, unsigned* out)
{
    __shared__ unsigned done[THREADS / WAVE + 1];
    const unsigned wave = threadIdx.x / WAVE;
    if(threadIdx.x <= THREADS / WAVE)
        done[threadIdx.x] = threadIdx.x == THREADS / WAVE ? 1000 : 0;
    __syncthreads();
    unsigned seen;
    while((seen = __hip_atomic_load(
               &done[wave + 1], __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP)) == 0)
    {
    }
    __hip_atomic_store(&done[wave], seen + 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
    if(threadIdx.x == 0)
        out[blockIdx.x] = seen + look(flag);
}

__global__ void never(unsigned* flag, unsigned* out)
{
    if(blockIdx.x == 1)
        while(look(flag) == 0)
        {
        }
    out[blockIdx.x] = blockIdx.x;
}

__global__ void looks(unsigned* flag, unsigned* out)
{
    if(blockIdx.x + 1 == gridDim.x)
        __hip_atomic_store(flag, 1000u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
    __shared__ unsigned seen;
    do
    {
        __syncthreads();
        if(threadIdx.x == 0)
            seen = look(flag);
        __syncthreads();
    } while(seen == 0);
    if(threadIdx.x == 0)
        out[blockIdx.x] = seen + blockIdx.x;
}

__global__ void meets(unsigned* flag, unsigned* out)
{
    while(look(flag) == 0)
        __syncthreads();
    out[blockIdx.x] = blockIdx.x;
}

// A barrier of the whole grid.
__global__ void all(unsigned* flag, unsigned* out)
{
    if(threadIdx.x == 0)
    {
        __hip_atomic_fetch_add(flag, 1u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
        while(look(flag) < gridDim.x)
        {
        }
        out[blockIdx.x] = look(flag);
    }
}

int main(int, char** words)
{
    const struct
    {
        const char* name;
        void (*kernel)(unsigned*, unsigned*);
    } kernels[]      = {{"later", later},
                        {"counted", counted},
                        {"waves", waves},
                        {"never", never},
                        {"all", all},
                        {"looks", looks},
                        {"meets", meets}};
    const int groups = std::atoi(words[2]);
    unsigned *flag, *out;
    HIP_CHECK(hipMalloc(&flag, 4));
    HIP_CHECK(hipMalloc(&out, 4 * groups));
    HIP_CHECK(hipMemset(flag, 0, 4));
    for(const auto& one : kernels)
        if(std::strcmp(words[1], one.name) == 0)
            one.kernel<<<dim3(groups), dim3(THREADS)>>>(flag, out);
    const hipError_t ended = hipDeviceSynchronize();
    std::printf("%s\n", hipGetErrorName(ended));
    for(int i = 0; ended == hipSuccess && i < groups; ++i)
    {
        unsigned value;
        HIP_CHECK(hipMemcpy(&value, out + i, sizeof value, hipMemcpyDeviceToHost));
        std::printf("%u\n", value);
    }
    return 0;
}

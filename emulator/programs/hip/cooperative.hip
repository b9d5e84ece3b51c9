// Cooperative launches, by the first argument. `sum` waits for the whole grid by its own barrier,
// `library` by the device library's. `stuck` waits for a workgroup that never arrives, `spin` does
// so without sleeping. `large` requests more workgroups than fit.
#include "more_hip.h"

#include <cstring>

constexpr int THREADS = 128;

// All workgroups have arrived `round` times.
__device__ static void wait_for_grid(unsigned* arrived, unsigned wanted)
{
    __syncthreads();
    if(threadIdx.x == 0)
    {
        __hip_atomic_fetch_add(arrived, 1u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
        while(__hip_atomic_load(arrived, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) < wanted)
            __builtin_amdgcn_s_sleep(1);
    }
    __syncthreads();
}

// Each round all threads add up what the neighbouring workgroup had in the round before.
__global__ void rotate(unsigned* values, unsigned* arrived, int rounds)
{
    const unsigned groups = gridDim.x, at = blockIdx.x * THREADS + threadIdx.x;
    for(int round = 0; round < rounds; ++round)
    {
        const unsigned next = (blockIdx.x + 1) % groups * THREADS + threadIdx.x;
        const unsigned seen =
            __hip_atomic_load(&values[next], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
        wait_for_grid(arrived, groups * (2 * round + 1));
        values[at] = 3 * values[at] + seen;
        wait_for_grid(arrived, groups * (2 * round + 2));
    }
}

// What the runtime hands to the device library (hidden argument hidden_multigrid_sync_arg).
struct GridInformation
{
    unsigned long other_devices;
    unsigned grid, grids;
    unsigned long threads_before, threads;
    unsigned arrived, reserved, groups;
};

__global__ void ask_library(unsigned* out)
{
    using hidden = const __attribute__((address_space(4))) unsigned long;
    auto* info =
        reinterpret_cast<GridInformation*>(((hidden*)__builtin_amdgcn_implicitarg_ptr())[88 / 8]);
    if(!info)
    {
        out[gridDim.x] = 1;
        return;
    }
    if(threadIdx.x == 0)
        __hip_atomic_store(&out[blockIdx.x], 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    wait_for_grid(&info->arrived, info->groups);
    unsigned sum = 0;
    for(unsigned i = 0; i < gridDim.x; ++i)
        sum += __hip_atomic_load(&out[i], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    if(threadIdx.x == 0)
        out[gridDim.x + 1 + blockIdx.x] = sum;
}

__global__ void wait_for_nobody(unsigned* arrived)
{
    if(blockIdx.x > 0)
        wait_for_grid(arrived, gridDim.x);
}

__global__ void spin(unsigned* arrived)
{
    while(__hip_atomic_fetch_add(arrived, 0u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) == 0)
    {
    }
}

static int print(const unsigned* device, int count)
{
    for(int i = 0; i < count; ++i)
    {
        unsigned value;
        HIP_CHECK(hipMemcpy(&value, device + i, sizeof value, hipMemcpyDeviceToHost));
        std::printf("%u\n", value);
    }
    return 0;
}

template <typename... Arguments>
static hipError_t launch(void (*kernel)(Arguments...), int groups, Arguments... given)
{
    void* arguments[] = {&given...};
    return hipLaunchCooperativeKernel(
        reinterpret_cast<const void*>(kernel), dim3(groups), dim3(THREADS), arguments, 0, nullptr);
}

int main(int, char** words)
{
    constexpr int GROUPS = 7, COUNT = GROUPS * THREADS;
    unsigned *values, *arrived, start[COUNT];
    for(int i = 0; i < COUNT; ++i)
        start[i] = i;
    HIP_CHECK(hipMalloc(&values, sizeof start));
    HIP_CHECK(hipMalloc(&arrived, 4));
    HIP_CHECK(hipMemset(arrived, 0, 4));
    const char* what = words[1];
    if(std::strcmp(what, "sum") == 0)
    {
        HIP_CHECK(hipMemcpy(values, start, sizeof start, hipMemcpyHostToDevice));
        HIP_CHECK(launch(rotate, GROUPS, values, arrived, 5));
        const int done = print(values, COUNT);
        HIP_CHECK(hipFree(values));
        HIP_CHECK(hipFree(arrived));
        return done;
    }
    if(std::strcmp(what, "library") == 0)
    {
        HIP_CHECK(hipMemset(values, 0, sizeof start));
        HIP_CHECK(launch(ask_library, GROUPS, values));
        ask_library<<<dim3(GROUPS), dim3(THREADS)>>>(values);
        return print(values, 2 * GROUPS + 1);
    }
    if(std::strcmp(what, "large") == 0)
    {
        int resident;
        HIP_CHECK(hipOccupancyMaxActiveBlocksPerMultiprocessor(
            &resident, reinterpret_cast<const void*>(wait_for_nobody), THREADS, 0));
        const int fit = 2 * resident; // of two compute units
        std::printf("%s\n", hipGetErrorName(launch(wait_for_nobody, fit + 1, arrived)));
        std::printf("%s\n", hipGetErrorName(launch(rotate, fit, values, arrived, 0)));
        return 0;
    }
    const bool stuck = std::strcmp(what, "stuck") == 0;
    std::printf(
        "%s\n",
        hipGetErrorName(stuck ? launch(wait_for_nobody, 3, arrived) : launch(spin, 2, arrived)));
    return 0;
}

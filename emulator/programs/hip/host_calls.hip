// Calls from kernels to the host, by the first argument: `check` fails an assertion in lane 5 of
// the second workgroup, `function` lets the host call a function of the program, `service` requests
// an unknown service.
#include "check.h"
#include "device_library.h"

#include <cassert>
#include <cstring>

typedef long pair_of_words __attribute__((ext_vector_type(2)));
extern "C" __device__ pair_of_words __ockl_hostcall_preview(
    unsigned, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
extern "C" __device__ pair_of_words __ockl_call_host_function(
    uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

__global__ void check(const int* values)
{
    printf("workgroup %u\n", blockIdx.x);
    DEVICE_CHECK(values[blockIdx.x * blockDim.x + threadIdx.x] == 0);
}

__global__ void call(uint64_t function, uint64_t* out)
{
    const uint64_t i  = threadIdx.x;
    const auto answer = __ockl_call_host_function(function, i, 2, 3, 4, 5, 6, 7);
    out[2 * i]        = answer.x;
    out[2 * i + 1]    = answer.y;
}

__global__ void ask_service() { __ockl_hostcall_preview(99, 0, 0, 0, 0, 0, 0, 0, 0); }

static void sum_and_product(uint64_t* out, const uint64_t* in)
{
    out[0] = 0;
    out[1] = 1;
    for(int i = 0; i < 7; ++i)
    {
        out[0] += in[i];
        out[1] *= in[i];
    }
}

int main(int, char** words)
{
    uint64_t* data;
    HIP_CHECK(hipMallocManaged(reinterpret_cast<void**>(&data), 8192, 1));
    std::memset(data, 0, 8192);
    if(std::strcmp(words[1], "check") == 0)
    {
        auto* const values = reinterpret_cast<int*>(data);
        values[64 + 5]     = 1;
        check<<<dim3(2), dim3(64)>>>(values);
    }
    else if(std::strcmp(words[1], "function") == 0)
    {
        call<<<dim3(1), dim3(40)>>>(reinterpret_cast<uint64_t>(sum_and_product), data);
    }
    else
    {
        ask_service<<<dim3(1), dim3(1)>>>();
    }
    std::printf("%s\n", hipGetErrorName(hipDeviceSynchronize()));
    if(std::strcmp(words[1], "function") == 0)
        for(int i = 0; i < 40; ++i)
            std::printf("%llu %llu\n",
                        static_cast<unsigned long long>(data[2 * i]),
                        static_cast<unsigned long long>(data[2 * i + 1]));
    return 0;
}

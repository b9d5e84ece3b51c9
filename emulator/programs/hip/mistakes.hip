// Mistakes with memory, by the first argument: `double`, `inside` and `foreign` free memory wrongly
// in a kernel, `overrun`, `reuse` and `leak` use malloc() in one wrongly; `twice` and `later` free
// memory of the device twice on the host, `null` and `host` give a kernel such a pointer, `endless`
// counts for ever, `grid` synchronises the grid of an ordinary launch, `sizes` is right. `fresh`
// reads what malloc() gave; `past`, `source`, `direction`, `clear` and `variable` are copies and a
// fill of memory that is not there, `destroyed` launches on a stream that is gone.
#include "check.h"
#include "device_library.h"

#include <cstring>

extern "C" hipError_t hipFreeAsync(void* pointer, hipStream_t stream);

__global__ void free_twice(int*)
{
    void* const pointer = device_malloc(24);
    device_free(pointer);
    device_free(pointer);
}

__global__ void free_inside(int*)
{
    auto* const pointer = static_cast<char*>(device_malloc(24));
    device_free(pointer + 8);
}

__global__ void free_foreign(int* out) { device_free(out + 1); }

__global__ void overrun(int* out)
{
    auto* const all = static_cast<int*>(device_malloc(10 * sizeof(int)));
    for(int i = 0; i < 10 + out[0]; ++i)
        all[i] = i;
    out[1 + threadIdx.x] = all[9];
    device_free(all);
}

__global__ void reuse(int* out)
{
    auto* const all = static_cast<int*>(device_malloc(10 * sizeof(int)));
    all[3]          = 4;
    device_free(all);
    out[threadIdx.x] = static_cast<volatile int*>(all)[3];
}

__global__ void fresh(int* out)
{
    auto* const all  = static_cast<volatile int*>(device_malloc(10 * sizeof(int)));
    out[threadIdx.x] = all[3];
    device_free(const_cast<int*>(all));
}

__device__ int variable[8];

__global__ void leak(int** out) { out[threadIdx.x] = static_cast<int*>(device_malloc(40)); }

// Sizes of all kinds, each filled to its last byte.
__global__ void sizes(int* out)
{
    for(int i = 1; i < 4000; i += 1 + i / 8)
    {
        auto* const bytes = static_cast<unsigned char*>(device_malloc(i));
        for(int at = 0; at < i; ++at)
            bytes[at] = static_cast<unsigned char>(at + threadIdx.x);
        out[threadIdx.x] += bytes[i - 1];
        device_free(bytes);
    }
    device_free(nullptr);
}

__global__ void set(int* out) { out[threadIdx.x] = 7; }

__global__ void count(unsigned* out)
{
    unsigned number = 1;
    while(number != 0)
    {
        number += 2;
        *static_cast<volatile unsigned*>(out) = number;
    }
}

// As grid_group::sync() of the device library begins.
__global__ void synchronise(int* out)
{
    using hidden = const __attribute__((address_space(4))) unsigned long;
    auto* arrived =
        reinterpret_cast<unsigned*>(((hidden*)__builtin_amdgcn_implicitarg_ptr())[88 / 8] + 32);
    out[0] = static_cast<int>(atomicAdd(arrived, 1u));
}

// Copies and fills of memory that is not there; false for other names.
static bool misuse(const char* how, int* out)
{
    const auto is   = [how](const char* name) { return std::strcmp(how, name) == 0; };
    int values[260] = {};
    hipError_t status;
    if(is("past"))
        status = hipMemcpy(out, values, 1028, hipMemcpyHostToDevice);
    else if(is("source"))
        status = hipMemcpyAsync(values, out + 1, 1024, hipMemcpyDeviceToHost, nullptr);
    else if(is("direction"))
        status = hipMemcpy(out, values, 1024, hipMemcpyDeviceToHost);
    else if(is("clear"))
        status = hipMemset(out, 0, 1025);
    else if(is("variable"))
        status = hipMemcpyToSymbol(variable, values, 36, 0, hipMemcpyHostToDevice);
    else
        return false;
    std::printf("%s\n", hipGetErrorName(status));
    return true;
}

static int run(const char* how, int* out)
{
    if(misuse(how, out))
        return hipFree(out) == hipSuccess ? 0 : 1;
    const auto is = [how](const char* name) { return std::strcmp(how, name) == 0; };
    int on_the_stack[64];
    if(is("twice") || is("later"))
    {
        HIP_CHECK(is("later") ? hipFreeAsync(out, nullptr) : hipFree(out));
        if(is("later"))
            std::printf("%s\n", hipGetErrorName(hipFreeAsync(out, nullptr)));
        else
            std::printf("%s\n", hipGetErrorName(hipFree(out)));
        return 0;
    }
    if(is("destroyed"))
    {
        hipStream_t stream;
        HIP_CHECK(hipStreamCreate(&stream));
        HIP_CHECK(hipStreamDestroy(stream));
        set<<<dim3(1), dim3(64), 0, stream>>>(out);
    }
    if(is("fresh"))
        fresh<<<dim3(1), dim3(1)>>>(out);
    if(is("double"))
        free_twice<<<dim3(1), dim3(64)>>>(out);
    if(is("inside"))
        free_inside<<<dim3(1), dim3(64)>>>(out);
    if(is("foreign"))
        free_foreign<<<dim3(1), dim3(64)>>>(out);
    if(is("overrun"))
    {
        const int more = 1;
        HIP_CHECK(hipMemcpy(out, &more, sizeof more, hipMemcpyHostToDevice));
        overrun<<<dim3(1), dim3(64)>>>(out);
    }
    if(is("reuse"))
        reuse<<<dim3(1), dim3(64)>>>(out);
    if(is("leak"))
        leak<<<dim3(1), dim3(32)>>>(reinterpret_cast<int**>(out));
    if(is("sizes"))
        sizes<<<dim3(1), dim3(128)>>>(out);
    if(is("null"))
        set<<<dim3(1), dim3(64)>>>(nullptr);
    if(is("host"))
        set<<<dim3(1), dim3(64)>>>(on_the_stack);
    if(is("set"))
        for(int i = 0; i < 3; ++i)
            set<<<dim3(1), dim3(64)>>>(out);
    if(is("endless"))
        count<<<dim3(1), dim3(64)>>>(reinterpret_cast<unsigned*>(out));
    if(is("grid"))
        synchronise<<<dim3(1), dim3(64)>>>(out);
    const hipError_t status = hipDeviceSynchronize();
    std::printf("%s\n", hipGetErrorName(status));
    return status == hipSuccess && hipFree(out) == hipSuccess ? 0 : 1;
}

int main(int, char** words)
{
    int* out;
    HIP_CHECK(hipMalloc(&out, 256 * sizeof(int)));
    HIP_CHECK(hipMemset(out, 0, 256 * sizeof(int)));
    return run(words[1], out);
}

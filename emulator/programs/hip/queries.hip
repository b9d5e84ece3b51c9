// Device variables, rectangles of memory, and properties of device and kernel, as lines "name
// value". With `attributes`: the number and value of each attribute that the runtime implements.
#include "check.h"

__device__ int table[4] = {1, 2, 3, 4};
__constant__ int factor = 10;

__global__ void __launch_bounds__(256) scale()
{
    __shared__ int copy[16384]; // 64 KiB: two workgroups fill 160 KiB, one fills 64
    copy[threadIdx.x] = table[threadIdx.x % 4];
    __syncthreads();
    if(threadIdx.x < 4)
        table[threadIdx.x] = copy[255 - threadIdx.x] * factor;
}

static void say(const char* name, long long value) { std::printf("%s %lld\n", name, value); }

static void symbols()
{
    const int seven = 7;
    HIP_CHECK(hipMemcpyToSymbol(
        static_cast<const void*>(&factor), &seven, sizeof seven, 0, hipMemcpyHostToDevice));
    scale<<<dim3(1), dim3(256)>>>();
    int back[4];
    HIP_CHECK(hipMemcpyFromSymbol(
        back, static_cast<const void*>(&table), sizeof back, 0, hipMemcpyDeviceToHost));
    void* address;
    HIP_CHECK(hipGetSymbolAddress(&address, static_cast<const void*>(&table)));
    int third;
    HIP_CHECK(
        hipMemcpy(&third, static_cast<int*>(address) + 2, sizeof third, hipMemcpyDeviceToHost));
    say("table0", back[0]);
    say("table3", back[3]);
    say("third_by_address", third);
}

static void rectangles()
{
    unsigned char* device;
    size_t pitch;
    HIP_CHECK(hipMallocPitch(reinterpret_cast<void**>(&device), &pitch, 100, 3));
    HIP_CHECK(hipMemset2D(device, pitch, 5, 100, 3));
    unsigned char host[3][10] = {};
    HIP_CHECK(hipMemcpy2DAsync(host, 10, device + 91, pitch, 9, 3, hipMemcpyDeviceToHost, nullptr));
    int sum = 0;
    for(const auto& row : host)
        for(const unsigned char byte : row)
            sum += byte;
    say("wide_enough", pitch >= 100);
    say("sum", sum);
}

static void attributes()
{
    for(int number = 0; number < 20000; ++number)
    {
        int value;
        if(hipDeviceGetAttribute(&value, static_cast<hipDeviceAttribute_t>(number), 0) ==
           hipSuccess)
            std::printf("%d %d\n", number, value);
    }
}

int main(int count, char**)
{
    if(count > 1)
    {
        attributes();
        return 0;
    }
    symbols();
    rectangles();
    hipDeviceProp_t properties;
    HIP_CHECK(hipGetDeviceProperties(&properties, 0));
    std::printf("arch %s\n", properties.gcnArchName);
    int value;
    HIP_CHECK(hipDeviceGetAttribute(&value, hipDeviceAttributeWarpSize, 0));
    say("warp", value);
    HIP_CHECK(hipDeviceGetAttribute(&value, hipDeviceAttributeMaxSharedMemoryPerBlock, 0));
    say("lds", value);
    HIP_CHECK(hipDeviceGetAttribute(&value, hipDeviceAttributeMultiprocessorCount, 0));
    say("compute_units", value);
    HIP_CHECK(hipDeviceCanAccessPeer(&value, 0, 0));
    say("peer", value);
    hipFuncAttributes attributes;
    HIP_CHECK(hipFuncGetAttributes(&attributes, reinterpret_cast<const void*>(scale)));
    say("kernel_lds", static_cast<long long>(attributes.sharedSizeBytes));
    say("kernel_threads", attributes.maxThreadsPerBlock);
    HIP_CHECK(hipOccupancyMaxActiveBlocksPerMultiprocessor(
        &value, reinterpret_cast<const void*>(scale), 256, 0));
    say("resident", value);
    return 0;
}

// Memory that kernels allocate, by the first argument. `blocks`: in three rounds, 3000 threads
// allocate, and another kernel checks and frees the memory; prints addresses and sizes of the first
// round. `exhaust`: allocates blocks of 64 GiB until the memory is full, frees them and tries
// again.
#include "check.h"
#include "device_library.h"

#include <cstring>
#include <vector>

constexpr int BLOCKS = 25, THREADS = 120, N = BLOCKS * THREADS;

__host__ __device__ size_t size_of(int i, int round)
{
    return i % 50 == 0 ? 5000 + i : 1 + (i * 37 + round) % 3072;
}

__device__ unsigned char byte_of(int i, size_t at)
{
    return static_cast<unsigned char>(i * 7 + at);
}

__global__ void fill(unsigned char** pointers, int* failed, int round)
{
    const int i = blockIdx.x * THREADS + threadIdx.x;
    auto* bytes = static_cast<unsigned char*>(device_malloc(size_of(i, round)));
    pointers[i] = bytes;
    if(!bytes)
        atomicAdd(failed, 1);
    else
        for(size_t at = 0; at < size_of(i, round); at += 1 + at / 16)
            bytes[at] = byte_of(i, at);
}

__global__ void check_and_free(unsigned char** pointers, int* failed, int round)
{
    const int i = N - 1 - (blockIdx.x * THREADS + threadIdx.x); // another thread than before
    if(!pointers[i])
        return;
    for(size_t at = 0; at < size_of(i, round); at += 1 + at / 16)
        if(pointers[i][at] != byte_of(i, at))
            atomicAdd(failed, 1000000);
    device_free(pointers[i]);
}

__global__ void exhaust(void** blocks, int* counts)
{
    constexpr int MOST = 16;
    int count          = 0;
    while(count < MOST && (blocks[count] = device_malloc(size_t{64} << 30)))
        ++count;
    counts[0] = count;
    for(int i = 0; i < count; ++i)
        device_free(blocks[i]);
    void* const again = device_malloc(size_t{64} << 30);
    counts[1]         = again != nullptr;
    device_free(again);
    device_free(nullptr);
    counts[2] = device_malloc(0) == nullptr;
}

static void blocks()
{
    unsigned char** pointers;
    int* failed;
    HIP_CHECK(hipMallocManaged(reinterpret_cast<void**>(&pointers), N * sizeof *pointers, 1));
    HIP_CHECK(hipMallocManaged(reinterpret_cast<void**>(&failed), sizeof *failed, 1));
    for(int round = 0; round < 3; ++round)
    {
        *failed = 0;
        fill<<<dim3(BLOCKS), dim3(THREADS)>>>(pointers, failed, round);
        HIP_CHECK(hipDeviceSynchronize());
        if(round == 0)
            for(int i = 0; i < N; ++i)
                std::printf(
                    "%llu %zu\n", reinterpret_cast<unsigned long long>(pointers[i]), size_of(i, 0));
        check_and_free<<<dim3(BLOCKS), dim3(THREADS)>>>(pointers, failed, round);
        HIP_CHECK(hipDeviceSynchronize());
        std::printf("failed %d\n", *failed);
    }
}

int main(int, char** words)
{
    if(std::strcmp(words[1], "blocks") == 0)
    {
        blocks();
        return 0;
    }
    int* counts;
    void** addresses;
    HIP_CHECK(hipMallocManaged(reinterpret_cast<void**>(&counts), 3 * sizeof(int), 1));
    HIP_CHECK(hipMallocManaged(reinterpret_cast<void**>(&addresses), 16 * sizeof(void*), 1));
    exhaust<<<dim3(1), dim3(1)>>>(addresses, counts);
    HIP_CHECK(hipDeviceSynchronize());
    std::printf("%d %d %d\n", counts[0], counts[1], counts[2]);
    return 0;
}

// Mistakes that checks report, by the first argument, which is the name of a kernel below. With a
// second argument the same kernel runs without its mistake.
#include "check.h"

#include <cstring>

constexpr int THREADS = 128, GROUPS = 2;

#define WHOLE_WAVE (threadIdx.x < 64)

// ---- Decisions by memory that was never written, unless the host fills `in`.

// No value of `in` that a check could make up is 5, so that what is stored differs in no lane.
__global__ void selected(const unsigned* in, unsigned* out, unsigned*, bool)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    out[i]           = in[i] == 5 ? 1 : 2;
}

// A minimum of floats, whatever number is made up.
__global__ void least(const unsigned* in, unsigned* out, unsigned*, bool)
{
    const unsigned i   = blockIdx.x * THREADS + threadIdx.x;
    const float number = __builtin_bit_cast(float, in[i]);
    out[i]             = __builtin_bit_cast(unsigned, __builtin_fminf(number, -1e38f));
}

__global__ void added(const unsigned* in, unsigned* out, unsigned*, bool)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    atomicAdd(const_cast<unsigned*>(in) + i, 1);
    out[i] = 1;
}

__global__ void voted(const unsigned* in, unsigned* out, unsigned*, bool)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    out[i]           = __any(in[i] == 5);
}

__global__ void branched(const unsigned* in, unsigned* out, unsigned*, bool)
{
    if(in[blockIdx.x] == 5)
        out[blockIdx.x * THREADS + threadIdx.x] = 1;
}

__global__ void counted(const unsigned* in, unsigned* out, unsigned*, bool)
{
    unsigned sum = 0;
    for(unsigned i = 0; i < in[blockIdx.x] && i < 4; ++i)
        sum = sum * 3 + i + threadIdx.x;
    out[blockIdx.x * THREADS + threadIdx.x] = sum;
}

// The host copies all of what is half written.
__global__ void copied(const unsigned*, unsigned* out, unsigned*, bool wrong)
{
    if(!wrong || threadIdx.x < THREADS / 2)
        out[blockIdx.x * THREADS + threadIdx.x] = 1;
}

struct Padded
{
    int number; // and four bytes that no one writes
    double value;
};

__global__ void copied_structures(const unsigned*, unsigned* out, unsigned*, bool wrong)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    if(i >= (wrong ? 32 : GROUPS * THREADS * sizeof(unsigned) / sizeof(Padded)))
        return;
    Padded* const structures = reinterpret_cast<Padded*>(out);
    structures[i].number     = 1;
    structures[i].value      = 2;
}

__global__ void local_select(const unsigned*, unsigned* out, unsigned* word, bool wrong)
{
    volatile unsigned local[8];
    for(unsigned i = 0; i < (wrong ? 4 : 8); ++i)
        local[i] = i;
    out[blockIdx.x * THREADS + threadIdx.x] = local[4 + word[0]] == 5 ? 1 : 2;
}

// ---- A load's destination written before the wait.

__global__ void vector_overwritten(const unsigned* in, unsigned* out, unsigned*, bool wrong)
{
    const unsigned* p = in + threadIdx.x;
    unsigned r;
    if(wrong)
        asm volatile(
            "global_load_dword %0, %1, off\n"
            "v_mov_b32 %0, 5\n"
            "s_waitcnt vmcnt(0)"
            : "=&v"(r)
            : "v"(p)
            : "memory");
    else // loads return in order
        asm volatile(
            "global_load_dword %0, %1, off\n"
            "global_load_dword %0, %1, off\n"
            "s_waitcnt vmcnt(0)\n"
            "v_mov_b32 %0, 5"
            : "=&v"(r)
            : "v"(p)
            : "memory");
    out[blockIdx.x * THREADS + threadIdx.x] = r;
}

// ---- An atomic that is not aligned, in LDS by a generic address.

__global__ void misaligned(const unsigned*, unsigned* out, unsigned* word, bool wrong)
{
    __shared__ unsigned s[2];
    if(threadIdx.x < 2)
        s[threadIdx.x] = 0;
    __syncthreads();
    char* at = reinterpret_cast<char*>(word[0] == 0 ? s : out);
    atomicAdd(reinterpret_cast<unsigned*>(at + (wrong ? 2 : 0)), 1);
    __syncthreads();
    out[blockIdx.x * THREADS + threadIdx.x] = s[0];
}

// ---- Accesses without an order.

__global__ void lanes_of_lds(const unsigned*, unsigned* out, unsigned*, bool wrong)
{
    __shared__ unsigned s;
    if(WHOLE_WAVE)
        s = wrong ? threadIdx.x : blockIdx.x;
    __syncthreads();
    out[blockIdx.x * THREADS + threadIdx.x] = s;
}

__global__ void lanes_of_memory(const unsigned*, unsigned* out, unsigned*, bool wrong)
{
    if(WHOLE_WAVE)
        out[blockIdx.x * THREADS] = wrong ? threadIdx.x : blockIdx.x;
}

// One workgroup does an atomic, the other one a store.
__device__ void store_beside_atomic(unsigned group, unsigned* out, unsigned* word, bool wrong)
{
    if(threadIdx.x != 0)
        return;
    if(blockIdx.x == group)
        __hip_atomic_fetch_add(word, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    else if(wrong)
        *word = 7;
    else
        __hip_atomic_store(word, 7u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    out[blockIdx.x] = 1;
}

__global__ void atomic_and_store(const unsigned*, unsigned* out, unsigned* word, bool wrong)
{
    store_beside_atomic(0, out, word, wrong);
}

__global__ void store_and_atomic(const unsigned*, unsigned* out, unsigned* word, bool wrong)
{
    store_beside_atomic(1, out, word, wrong);
}

__global__ void atomic_and_load(const unsigned*, unsigned* out, unsigned* word, bool wrong)
{
    if(threadIdx.x != 0)
        return;
    if(blockIdx.x == 0)
        __hip_atomic_fetch_add(word, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    else if(wrong)
        out[1] = *word;
    else
        out[1] = __hip_atomic_load(word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

__global__ void swapped(const unsigned*, unsigned* out, unsigned* word, bool wrong)
{
    if(wrong)
        *word = 5;
    unsigned next = *word;
    for(unsigned before = ~next; before != next;)
        next = atomicCAS(word, before = next, next + 1);
    out[blockIdx.x] = 1;
}

__global__ void atomic_of_lds_and_load(const unsigned*, unsigned* out, unsigned*, bool wrong)
{
    __shared__ unsigned s;
    if(threadIdx.x == 0)
        s = 0;
    __syncthreads();
    if(WHOLE_WAVE)
        atomicAdd(&s, 1);
    if(!wrong)
        __syncthreads();
    out[blockIdx.x * THREADS + threadIdx.x] = s;
}

__global__ void flag(const unsigned*, unsigned* out, unsigned* word, bool wrong)
{
    if(threadIdx.x != 0)
        return;
    volatile unsigned* ready = word + 1;
    if(blockIdx.x == 0)
    {
        word[0] = 9;
        if(!wrong)
            __threadfence();
        *ready = 1;
    }
    else
    {
        while(*ready == 0)
            ;
        if(!wrong)
            __threadfence();
        out[0] = word[0];
    }
}

__global__ void waves_of_lds(const unsigned*, unsigned* out, unsigned*, bool wrong)
{
    __shared__ unsigned s[THREADS];
    s[threadIdx.x] = threadIdx.x;
    if(!wrong)
        __syncthreads();
    out[blockIdx.x * THREADS + threadIdx.x] = s[threadIdx.x ^ 64];
}

__global__ void groups_of_memory(const unsigned*, unsigned* out, unsigned* word, bool wrong)
{
    word[threadIdx.x + (wrong ? 0 : blockIdx.x * THREADS)] = threadIdx.x + blockIdx.x;
    out[blockIdx.x * THREADS + threadIdx.x]                = 1;
}

// ---- What other lanes hold, and barriers.

__global__ void shuffled(const unsigned*, unsigned* out, unsigned*, bool wrong)
{
    const int value = threadIdx.x * 3, at = (threadIdx.x + 32) % 64;
    int other = wrong ? 0 : __shfl(value, at);
    if(threadIdx.x % 64 < 32)
    {
        if(wrong)
            other = __shfl(value, at);
        out[blockIdx.x * THREADS + threadIdx.x] = other;
    }
}

// A sum over the lanes that are on; what the last lanes get from beyond them is not used.
__global__ void reduced(const unsigned*, unsigned* out, unsigned*, bool wrong)
{
    int value = threadIdx.x;
    for(int distance = 32; distance > 0; distance /= 2)
    {
        const int other = __shfl_down(value, distance);
        value += wrong || threadIdx.x + distance < 48 ? other : 0;
    }
    if(threadIdx.x == 0)
        out[blockIdx.x] = value;
}

__global__ void divergent(const unsigned*, unsigned* out, unsigned*, bool wrong)
{
    if(!wrong || threadIdx.x % 2 == 0)
        __syncthreads();
    out[blockIdx.x * THREADS + threadIdx.x] = 1;
}

struct Kernel
{
    const char* name;
    void (*run)(const unsigned*, unsigned*, unsigned*, bool);
    bool fills; // `in` holds values; else without the mistake alone
    int threads;
};

#define KERNEL(name) {#name, name, true, THREADS}
#define READS(name)  {#name, name, false, THREADS}

// clang-format off
const Kernel KERNELS[] = {
    READS(selected), READS(least), READS(added), READS(voted), READS(branched), READS(counted),
    KERNEL(copied), KERNEL(copied_structures), KERNEL(local_select), KERNEL(vector_overwritten),
    KERNEL(misaligned), KERNEL(lanes_of_lds), KERNEL(lanes_of_memory),
    KERNEL(atomic_and_store), KERNEL(atomic_and_load), KERNEL(store_and_atomic), KERNEL(swapped), KERNEL(atomic_of_lds_and_load),
    KERNEL(flag), KERNEL(waves_of_lds), KERNEL(groups_of_memory), KERNEL(shuffled), {"reduced", reduced, true, 48},
    KERNEL(divergent),
};
// clang-format on

int main(int count, char** words)
{
    constexpr size_t BYTES = GROUPS * THREADS * sizeof(unsigned);
    const bool wrong       = count == 2;
    for(const Kernel& kernel : KERNELS)
    {
        if(std::strcmp(kernel.name, words[1]) != 0)
            continue;
        unsigned *in, *out, *word, values[GROUPS * THREADS];
        HIP_CHECK(hipMalloc(reinterpret_cast<void**>(&in), BYTES));
        HIP_CHECK(hipMalloc(reinterpret_cast<void**>(&out), BYTES));
        HIP_CHECK(hipMalloc(reinterpret_cast<void**>(&word), BYTES));
        HIP_CHECK(hipMemset(word, 0, BYTES));
        if(kernel.fills || !wrong)
            HIP_CHECK(hipMemset(in, 0, BYTES));
        if(std::strncmp(kernel.name, "copied", 6) != 0)
            HIP_CHECK(hipMemset(out, 0, BYTES));
        kernel.run<<<dim3(GROUPS), dim3(kernel.threads)>>>(in, out, word, wrong);
        HIP_CHECK(hipDeviceSynchronize());
        HIP_CHECK(hipMemcpy(values, out, BYTES, hipMemcpyDeviceToHost));
        std::printf("%u\n", values[0]);
        for(unsigned* pointer : {in, out, word})
            HIP_CHECK(hipFree(pointer));
        return 0;
    }
    return 1;
}

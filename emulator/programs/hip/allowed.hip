// What the hardware allows and a check might refuse, by the first argument: LDS atomics of two
// waves (`atomics`), copies from any byte of global memory and LDS (`bytes`), a load whose result
// replaces its address (`list`), waves that store one value to LDS by a generic address
// (`generic`), a copy of structures with padding (`padding`), numbers of 8 bytes
// at multiples of 4 in LDS (`wide`). Each prints its numbers.
#include "check.h"

#include <cstring>
#include <vector>

constexpr int THREADS = 128;

__global__ void atomics(int* out)
{
    __shared__ int sum, most, exchanged;
    if(threadIdx.x == 0)
        sum = most = exchanged = 0;
    __syncthreads();
    const int before = atomicAdd(&sum, 1);
    atomicMax(&most, before);
    atomicCAS(&exchanged, 0, 7);
    __syncthreads();
    out[threadIdx.x] = sum + most + exchanged;
}

__global__ void bytes(const char* in, int* out)
{
    __shared__ char copy[5 * THREADS];
    for(int i = threadIdx.x; i < 5 * THREADS; i += THREADS)
        copy[i] = in[i];
    __syncthreads();
    const int at = 5 * threadIdx.x + 1; // to the last byte
    int far, near;
    __builtin_memcpy(&far, in + at, 4);
    __builtin_memcpy(&near, copy + at, 4);
    __builtin_memcpy(reinterpret_cast<char*>(out + THREADS) + at, &far, 4);
    out[threadIdx.x] = far - near + static_cast<unsigned char>(in[at]);
}

struct Node
{
    Node* next;
    int value;
};

__global__ void list(const Node* node, int* out)
{
    int sum = 0;
    for(; node != nullptr; node = node->next)
        sum += node->value;
    out[threadIdx.x] = sum;
}

struct Padded
{
    int number; // and four bytes that no one writes
    double value;
};

__global__ void padding(int* out)
{
    __shared__ Padded s[THREADS];
    s[threadIdx.x].number = threadIdx.x;
    s[threadIdx.x].value  = 2;
    __syncthreads();
    Padded* const to = reinterpret_cast<Padded*>(out + 2 * THREADS);
    to[threadIdx.x]  = s[THREADS - 1 - threadIdx.x];
    out[threadIdx.x] = to[threadIdx.x].number + static_cast<int>(to[threadIdx.x].value);
}

__global__ void wide(int* out)
{
    __shared__ __attribute__((aligned(8))) char s[8 * THREADS + 8];
    double* const to = reinterpret_cast<double*>(s + 8 * threadIdx.x + 4 * gridDim.x);
    *to              = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = static_cast<int>(*to);
}

__global__ void generic(int* out)
{
    __shared__ int same;
    int* const to = blockIdx.x == 0 ? &same : out;
    *to           = 5;
    __syncthreads();
    out[threadIdx.x] = same;
}

int main(int, char** words)
{
    int* out;
    HIP_CHECK(hipMalloc(reinterpret_cast<void**>(&out), 8 * THREADS * sizeof(int)));
    void* in;
    HIP_CHECK(hipMalloc(&in, 5 * THREADS));
    if(std::strcmp(words[1], "atomics") == 0)
        atomics<<<dim3(1), dim3(THREADS)>>>(out);
    else if(std::strcmp(words[1], "generic") == 0)
        generic<<<dim3(1), dim3(THREADS)>>>(out);
    else if(std::strcmp(words[1], "wide") == 0)
        wide<<<dim3(1), dim3(THREADS)>>>(out);
    else if(std::strcmp(words[1], "padding") == 0)
        padding<<<dim3(1), dim3(THREADS)>>>(out);
    else if(std::strcmp(words[1], "bytes") == 0)
    {
        std::vector<char> values(5 * THREADS);
        for(size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<char>(i);
        HIP_CHECK(hipMemcpy(in, values.data(), values.size(), hipMemcpyHostToDevice));
        bytes<<<dim3(1), dim3(THREADS)>>>(static_cast<char*>(in), out);
    }
    else
    {
        Node* const nodes  = static_cast<Node*>(in);
        const Node whole[] = {{nodes + 1, 3}, {nodes + 2, 4}, {nullptr, 5}};
        HIP_CHECK(hipMemcpy(nodes, whole, sizeof whole, hipMemcpyHostToDevice));
        list<<<dim3(1), dim3(THREADS)>>>(nodes, out);
    }
    std::vector<int> values(THREADS);
    HIP_CHECK(hipMemcpy(values.data(), out, THREADS * sizeof(int), hipMemcpyDeviceToHost));
    for(const int value : values)
        std::printf("%d\n", value);
    HIP_CHECK(hipFree(in));
    HIP_CHECK(hipFree(out));
    return 0;
}

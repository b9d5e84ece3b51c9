// Two streams that use one buffer, by the first argument. In wrong order: `kernels` write it,
// `copy` reads it to the host while a kernel writes, `fill`, `unwaited` has an event without a
// wait for it, `nonblocking` does not wait for the default stream. In order: by an `event`, by the
// `host` that waits, by the `default` stream, by a `query`; `halves` of the buffer, `reads`,
// `atomics`, the `same` value, a `graph` twice. `early` reads memory of the host before it waits,
// `late` after that, and `told` gets them from a kernel with a fence. `zeros` are copied over
// zeros. Memory of a pool is `allocated` or `freed` by another stream than uses it, or in order
// (`pool`). `forked` is a graph with two nodes, of which the second one does not wait, in `joined`
// it does.
#include "more_hip.h"

#include <cstring>

constexpr int N = 1024, BYTES = N * sizeof(int);

__global__ void add(int* all, int value) { all[blockIdx.x * blockDim.x + threadIdx.x] += value; }

__global__ void set(int* all, int value) { all[blockIdx.x * blockDim.x + threadIdx.x] = value; }

__global__ void tell(int* all)
{
    all[blockIdx.x * blockDim.x + threadIdx.x] = 5;
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
}

__global__ void count(int* all) { atomicAdd(all, 1); }

__global__ void sum_up(const int* all, int* out)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i]      = all[i] + all[N - 1 - i];
}

// The host's part of one buffer, while a kernel fills it.
static void share(hipStream_t stream, int* host, bool waits, bool tells)
{
    if(tells)
        tell<<<dim3(4), dim3(N / 4), 0, stream>>>(host);
    else
        set<<<dim3(4), dim3(N / 4), 0, stream>>>(host, 5);
    if(waits)
        HIP_CHECK(hipStreamSynchronize(stream));
    std::printf("%d\n", host[7]);
    HIP_CHECK(hipMemcpyAsync(host, host + N / 2, BYTES / 2, hipMemcpyDefault, stream));
    HIP_CHECK(hipDeviceSynchronize());
    std::printf("%d\n", host[7]);
}

static void replay(hipStream_t one, hipStream_t two, int* all)
{
    hipGraph_t graph;
    hipGraphExec_t exec;
    HIP_CHECK(hipStreamBeginCapture(one, hipStreamCaptureModeGlobal));
    add<<<dim3(4), dim3(N / 4), 0, one>>>(all, 1);
    HIP_CHECK(hipStreamEndCapture(one, &graph));
    HIP_CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    HIP_CHECK(hipGraphLaunch(exec, one));
    HIP_CHECK(hipGraphLaunch(exec, two));
}

static void use_pool(hipStream_t one, hipStream_t two, hipEvent_t event, bool allocates, bool frees)
{
    void* memory;
    HIP_CHECK(hipMallocAsync(&memory, BYTES, one));
    HIP_CHECK(hipEventRecord(event, one));
    if(!allocates)
        HIP_CHECK(hipStreamWaitEvent(two, event, 0));
    set<<<dim3(4), dim3(N / 4), 0, two>>>(static_cast<int*>(memory), 5);
    HIP_CHECK(hipEventRecord(event, two));
    if(!frees)
        HIP_CHECK(hipStreamWaitEvent(one, event, 0));
    HIP_CHECK(hipFreeAsync(memory, one));
}

static void fork(hipStream_t one, hipStream_t two, hipEvent_t event, int* all, bool joined)
{
    hipGraph_t graph;
    hipGraphExec_t exec;
    HIP_CHECK(hipStreamBeginCapture(one, hipStreamCaptureModeGlobal));
    if(!joined)
        HIP_CHECK(hipEventRecord(event, one));
    add<<<dim3(4), dim3(N / 4), 0, one>>>(all, 1);
    if(joined)
        HIP_CHECK(hipEventRecord(event, one));
    HIP_CHECK(hipStreamWaitEvent(two, event, 0));
    add<<<dim3(4), dim3(N / 4), 0, two>>>(all, 1);
    HIP_CHECK(hipEventRecord(event, two));
    HIP_CHECK(hipStreamWaitEvent(one, event, 0));
    HIP_CHECK(hipStreamEndCapture(one, &graph));
    HIP_CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    for(int i = 0; i < 2; ++i)
        HIP_CHECK(hipGraphLaunch(exec, one));
    set<<<dim3(4), dim3(N / 4), 0, one>>>(all, 5);
    HIP_CHECK(hipStreamSynchronize(one));
}

int main(int, char** words)
{
    const auto is = [how = words[1]](const char* name) { return std::strcmp(how, name) == 0; };
    hipStream_t one, two;
    hipEvent_t event;
    HIP_CHECK(hipStreamCreate(&one));
    HIP_CHECK(hipStreamCreateWithFlags(&two, is("nonblocking") ? hipStreamNonBlocking : 0));
    HIP_CHECK(hipEventCreate(&event));
    int *all, *out, *host;
    HIP_CHECK(hipMalloc(reinterpret_cast<void**>(&all), BYTES));
    HIP_CHECK(hipMalloc(reinterpret_cast<void**>(&out), 2 * BYTES));
    HIP_CHECK(hipHostMalloc(reinterpret_cast<void**>(&host), BYTES, 0));
    HIP_CHECK(hipMemset(all, 0, BYTES));
    const dim3 grid(4), block(N / 4);

    if(is("early") || is("late") || is("told"))
        share(one, host, is("late"), is("told"));
    else if(is("reads"))
        sum_up<<<grid, block, 0, one>>>(all, out);
    else if(is("halves"))
        add<<<dim3(2), block, 0, one>>>(all, 1);
    else if(is("atomics"))
        count<<<grid, block, 0, one>>>(all);
    else if(is("nonblocking") || is("default"))
        add<<<grid, block>>>(all, 1);
    else if(is("graph"))
        replay(one, two, all);
    else if(is("allocated") || is("freed") || is("pool"))
        use_pool(one, two, event, is("allocated"), is("freed"));
    else if(is("forked") || is("joined"))
        fork(one, two, event, all, is("joined"));
    else if(is("zeros"))
        sum_up<<<grid, block, 0, one>>>(all, out);
    else
        set<<<grid, block, 0, one>>>(all, 5);

    HIP_CHECK(hipEventRecord(event, one));
    if(is("event"))
        HIP_CHECK(hipStreamWaitEvent(two, event, 0));
    if(is("host"))
        HIP_CHECK(hipStreamSynchronize(one));
    if(is("query"))
        while(hipEventQuery(event) != hipSuccess)
        {
        }

    if(is("copy"))
        HIP_CHECK(hipMemcpyAsync(host, all, BYTES, hipMemcpyDeviceToHost, two));
    else if(is("zeros"))
        HIP_CHECK(hipMemcpyAsync(all, all + N / 2, BYTES / 2, hipMemcpyDeviceToDevice, two));
    else if(is("fill"))
        HIP_CHECK(hipMemsetAsync(all, 1, BYTES, two));
    else if(is("reads"))
        sum_up<<<grid, block, 0, two>>>(all, out + N);
    else if(is("halves"))
        add<<<dim3(2), block, 0, two>>>(all + N / 2, 1);
    else if(is("atomics"))
        count<<<grid, block, 0, two>>>(all);
    else if(is("same"))
        set<<<grid, block, 0, two>>>(all, 5);
    else if(!is("graph") && !is("early") && !is("late") && !is("told"))
        add<<<grid, block, 0, two>>>(all, 2);

    HIP_CHECK(hipDeviceSynchronize());
    HIP_CHECK(hipFree(all));
    HIP_CHECK(hipFree(out));
    HIP_CHECK(hipHostFree(host));
    HIP_CHECK(hipEventDestroy(event));
    HIP_CHECK(hipStreamDestroy(one));
    HIP_CHECK(hipStreamDestroy(two));
    return 0;
}

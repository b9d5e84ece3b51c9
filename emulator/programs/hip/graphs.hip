// Graphs, by the first argument: `capture` of two streams, `nodes` made by hand, `errors` while a
// stream is captured, `memory` of a graph's own. One line "name value.." each.
#include "more_hip.h"

#include <cstring>
#include <thread>

__global__ void scale(int* x, int factor) { x[threadIdx.x] *= factor; }
__global__ void add(int* x, int summand) { x[threadIdx.x] += summand; }
__global__ void sum(const int* x, const int* y, int* out)
{
    out[threadIdx.x] = x[threadIdx.x] + y[threadIdx.x];
}

constexpr int N = 64, BYTES = N * sizeof(int);

static void say(const char* name, hipError_t error)
{
    std::printf("%s %s\n", name, hipGetErrorName(error));
    (void)hipGetLastError();
}

static void count(void* calls) { ++*static_cast<int*>(calls); }

static int* device_ints(int value)
{
    int* memory;
    HIP_CHECK(hipMalloc(&memory, BYTES));
    HIP_CHECK(hipMemset(memory, value, BYTES));
    return memory;
}

static int first_of(const int* device)
{
    int value;
    HIP_CHECK(hipMemcpy(&value, device, sizeof value, hipMemcpyDeviceToHost));
    return value;
}

// 3 (x + 5) on one stream, 2 y on another, added up on the first.
static int capture()
{
    int host[N], back[N], calls = 0;
    int *x = device_ints(0), *y = device_ints(0), *out = device_ints(0);
    hipStream_t first, second;
    hipEvent_t fork, join;
    HIP_CHECK(hipStreamCreate(&first));
    HIP_CHECK(hipStreamCreate(&second));
    HIP_CHECK(hipEventCreate(&fork));
    HIP_CHECK(hipEventCreate(&join));
    HIP_CHECK(hipStreamBeginCapture(first, hipStreamCaptureModeGlobal));
    HIP_CHECK(hipMemcpyAsync(x, host, BYTES, hipMemcpyHostToDevice, first));
    HIP_CHECK(hipEventRecord(fork, first));
    HIP_CHECK(hipStreamWaitEvent(second, fork, 0));
    HIP_CHECK(hipMemcpyAsync(y, host, BYTES, hipMemcpyHostToDevice, second));
    int summand = 5;
    add<<<dim3(1), dim3(N), 0, first>>>(x, summand);
    summand = 1000; // was copied
    scale<<<dim3(1), dim3(N), 0, second>>>(y, 2);
    HIP_CHECK(hipEventRecord(join, second));
    scale<<<dim3(1), dim3(N), 0, first>>>(x, 3);
    HIP_CHECK(hipStreamWaitEvent(first, join, 0));
    sum<<<dim3(1), dim3(N), 0, first>>>(x, y, out);
    HIP_CHECK(hipMemcpyAsync(back, out, BYTES, hipMemcpyDeviceToHost, first));
    HIP_CHECK(hipLaunchHostFunc(first, count, &calls));
    hipStreamCaptureStatus state;
    HIP_CHECK(hipStreamIsCapturing(second, &state));
    hipGraph_t graph;
    HIP_CHECK(hipStreamEndCapture(first, &graph));
    std::printf("capturing %d calls %d\n", state, calls);
    HIP_CHECK(hipStreamIsCapturing(second, &state));
    size_t nodes, edges, roots;
    HIP_CHECK(hipGraphGetNodes(graph, nullptr, &nodes));
    HIP_CHECK(hipGraphGetEdges(graph, nullptr, nullptr, &edges));
    HIP_CHECK(hipGraphGetRootNodes(graph, nullptr, &roots));
    std::printf("capturing %d nodes %zu edges %zu roots %zu\n", state, nodes, edges, roots);
    hipGraphExec_t exec;
    HIP_CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    HIP_CHECK(hipGraphDestroy(graph));
    for(int run = 0; run < 3; ++run)
    {
        for(int i = 0; i < N; ++i)
            host[i] = 100 * run + i;
        HIP_CHECK(hipGraphLaunch(exec, first));
        HIP_CHECK(hipStreamSynchronize(first));
        for(int i = 0; i < N; i += 21)
            std::printf("out %d %d %d\n", run, i, back[i]);
    }
    HIP_CHECK(hipGraphExecDestroy(exec));
    std::printf("capturing %d calls %d\n", state, calls);
    return 0;
}

static hipGraphNode_t kernel_node(hipGraph_t graph, void (*kernel)(int*, int), int* x, int value)
{
    void* arguments[] = {&x, &value};
    hipKernelNodeParams params{};
    params.func         = reinterpret_cast<void*>(kernel);
    params.gridDim      = dim3(1);
    params.blockDim     = dim3(N);
    params.kernelParams = arguments;
    hipGraphNode_t node;
    HIP_CHECK(hipGraphAddKernelNode(&node, graph, nullptr, 0, &params));
    return node;
}

// The nodes are made in another order than they shall run in: 1, times 10, plus 4.
static int nodes()
{
    int* x = device_ints(0);
    hipGraph_t graph, child, clone;
    hipGraphExec_t exec;
    HIP_CHECK(hipGraphCreate(&graph, 0));
    hipGraphNode_t plus = kernel_node(graph, add, x, 4), times = kernel_node(graph, scale, x, 10),
                   set;
    const hipMemsetParams one{x, 4, 1, 0, 1, N};
    HIP_CHECK(hipGraphAddMemsetNode(&set, graph, nullptr, 0, &one));
    const hipGraphNode_t from[] = {times, set}, to[] = {plus, times};
    HIP_CHECK(hipGraphAddDependencies(graph, from, to, 2));
    int calls = 0;
    hipGraphNodeType type;
    const hipHostNodeParams host{count, &calls};
    hipGraphNode_t last;
    HIP_CHECK(hipGraphAddHostNode(&last, graph, &plus, 1, &host));
    HIP_CHECK(hipGraphNodeGetType(last, &type));
    HIP_CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    HIP_CHECK(hipGraphLaunch(exec, nullptr));
    std::printf("order %d calls %d type %d\n", first_of(x), calls, type);

    hipKernelNodeParams params;
    HIP_CHECK(hipGraphKernelNodeGetParams(times, &params));
    std::printf(
        "factor %d threads %u\n", *static_cast<int*>(params.kernelParams[1]), params.blockDim.x);
    int factor             = 20;
    params.kernelParams[1] = &factor;
    HIP_CHECK(hipGraphExecKernelNodeSetParams(exec, times, &params));
    factor = 0;
    HIP_CHECK(hipGraphLaunch(exec, nullptr));
    std::printf("set %d\n", first_of(x));

    HIP_CHECK(hipGraphClone(&clone, graph));
    hipGraphNode_t of_clone, at;
    HIP_CHECK(hipGraphNodeFindInClone(&of_clone, plus, clone));
    HIP_CHECK(hipGraphKernelNodeGetParams(of_clone, &params));
    int summand            = 7;
    params.kernelParams[1] = &summand;
    HIP_CHECK(hipGraphKernelNodeSetParams(of_clone, &params));
    hipGraphExecUpdateResult result;
    HIP_CHECK(hipGraphExecUpdate(exec, clone, &at, &result));
    HIP_CHECK(hipGraphLaunch(exec, nullptr));
    std::printf("updated %d result %d\n", first_of(x), result);

    HIP_CHECK(hipGraphCreate(&child, 0));
    kernel_node(child, add, x, 100);
    hipGraphNode_t nested;
    HIP_CHECK(hipGraphAddChildGraphNode(&nested, graph, &last, 1, child));
    HIP_CHECK(hipGraphDestroy(child));
    say("update", hipGraphExecUpdate(exec, graph, &at, &result));
    std::printf("result %d\n", result);
    HIP_CHECK(hipGraphExecDestroy(exec));
    HIP_CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    HIP_CHECK(hipGraphLaunch(exec, nullptr));
    std::printf("child %d\n", first_of(x));

    say("twice", hipGraphAddDependencies(graph, from, to, 1));
    HIP_CHECK(hipGraphAddDependencies(graph, &nested, &set, 1));
    hipGraphExec_t none;
    say("cycle", hipGraphInstantiate(&none, graph, nullptr, nullptr, 0));
    HIP_CHECK(hipGraphDestroy(graph));
    say("gone", hipGraphLaunch(reinterpret_cast<hipGraphExec_t>(graph), nullptr));
    say("gone", hipGraphNodeGetType(plus, &type));
    return 0;
}

// What one call does to a capture, and how that ends.
template <typename Call>
static void during(const char* name, hipStreamCaptureMode mode, Call call)
{
    hipStream_t stream;
    hipGraph_t graph = nullptr;
    HIP_CHECK(hipStreamCreateWithFlags(&stream, 0));
    HIP_CHECK(hipStreamBeginCapture(stream, mode));
    const hipError_t error = call(stream), end = hipStreamEndCapture(stream, &graph);
    std::printf("%s %s %s\n", name, hipGetErrorName(error), hipGetErrorName(end));
    (void)hipGetLastError();
    HIP_CHECK(hipStreamDestroy(stream));
}

static int errors()
{
    const auto global = hipStreamCaptureModeGlobal, relaxed = hipStreamCaptureModeRelaxed;
    static int* memory  = device_ints(0);
    static int* pointer = nullptr;
    static hipEvent_t event, outside;
    static hipStream_t other;
    HIP_CHECK(hipStreamCreate(&other));
    HIP_CHECK(hipEventCreate(&event));
    HIP_CHECK(hipEventCreate(&outside));
    HIP_CHECK(hipEventRecord(outside, other));
    const auto allocate  = [](hipStream_t) { return hipMalloc(&pointer, 4); };
    const auto elsewhere = [](hipStream_t) {
        hipError_t error;
        std::thread([&] { error = hipMalloc(&pointer, 4); }).join();
        return error;
    };
    during("malloc", global, allocate);
    during("malloc_local", hipStreamCaptureModeThreadLocal, allocate);
    during("malloc_relaxed", relaxed, allocate);
    during("thread", global, elsewhere);
    during("thread_local", hipStreamCaptureModeThreadLocal, elsewhere);
    during("synchronize", relaxed, [](hipStream_t stream) { return hipStreamSynchronize(stream); });
    during("device", relaxed, [](hipStream_t) { return hipDeviceSynchronize(); });
    during("copy", relaxed, [](hipStream_t) { return hipMemset(memory, 0, 4); });
    during("event", relaxed, [](hipStream_t stream) {
        HIP_CHECK(hipEventRecord(event, stream));
        return hipEventSynchronize(event);
    });
    during("isolation", relaxed, [](hipStream_t stream) {
        return hipStreamWaitEvent(stream, outside, 0);
    });
    during("after", relaxed, [](hipStream_t stream) {
        (void)hipStreamSynchronize(stream);
        return hipMemsetAsync(memory, 0, 4, stream);
    });
    during("unjoined", relaxed, [](hipStream_t stream) {
        HIP_CHECK(hipEventRecord(event, stream));
        HIP_CHECK(hipStreamWaitEvent(other, event, 0));
        return hipMemsetAsync(memory, 0, 4, other);
    });
    during("unmatched", relaxed, [](hipStream_t stream) {
        HIP_CHECK(hipEventRecord(event, stream));
        HIP_CHECK(hipStreamWaitEvent(other, event, 0));
        hipGraph_t graph;
        return hipStreamEndCapture(other, &graph);
    });
    during("twice", relaxed, [](hipStream_t stream) {
        return hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal);
    });
    during("wrong_thread", global, [](hipStream_t stream) {
        hipError_t error;
        hipGraph_t graph;
        std::thread([&] { error = hipStreamEndCapture(stream, &graph); }).join();
        return error;
    });
    say("default", hipStreamBeginCapture(nullptr, hipStreamCaptureModeGlobal));
    hipGraph_t graph;
    say("none", hipStreamEndCapture(other, &graph));
    return 0;
}

// Memory that a captured stream allocates and frees: there while the graph runs, gone afterwards.
static int memory()
{
    hipStream_t stream;
    hipGraph_t graph;
    hipGraphExec_t exec;
    int* own;
    int* out = device_ints(0);
    HIP_CHECK(hipStreamCreate(&stream));
    HIP_CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
    HIP_CHECK(hipMallocAsync(reinterpret_cast<void**>(&own), BYTES, stream));
    HIP_CHECK(hipMemsetAsync(own, 1, BYTES, stream));
    sum<<<dim3(1), dim3(N), 0, stream>>>(own, own, out);
    HIP_CHECK(hipFreeAsync(own, stream));
    HIP_CHECK(hipStreamEndCapture(stream, &graph));
    HIP_CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    for(int run = 0; run < 2; ++run)
    {
        HIP_CHECK(hipMemset(out, 0, BYTES));
        HIP_CHECK(hipGraphLaunch(exec, stream));
        std::printf("out %d\n", first_of(out));
    }
    scale<<<dim3(1), dim3(1)>>>(own, 2);
    say("after", hipDeviceSynchronize());
    return 0;
}

int main(int, char** words)
{
    if(std::strcmp(words[1], "capture") == 0)
        return capture();
    if(std::strcmp(words[1], "nodes") == 0)
        return nodes();
    return std::strcmp(words[1], "errors") == 0 ? errors() : memory();
}

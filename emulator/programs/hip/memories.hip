// Pools, managed memory, streams' values and variants of calls, by the first argument: `pools`,
// `freed` (used after hipFreeAsync), `managed`, `refused` or `streams`. One line "name value" each.
#include "more_hip.h"

#include <cstring>

__managed__ int counter = 40;

__global__ void bump(int* x) { x[threadIdx.x] += 1; }
__global__ void bump_managed() { counter += 2; }

static void say(const char* name, long long value) { std::printf("%s %lld\n", name, value); }
static void name_of(const char* name, hipError_t error)
{
    std::printf("%s %s\n", name, hipGetErrorName(error));
    (void)hipGetLastError();
}

static long long attribute(hipMemPool_t pool, hipMemPoolAttr number)
{
    unsigned long long value = 0;
    HIP_CHECK(hipMemPoolGetAttribute(pool, number, &value));
    return static_cast<long long>(value);
}

static int pools()
{
    constexpr hipMemPoolAttr USED      = hipMemPoolAttrUsedMemCurrent,
                             USED_HIGH = hipMemPoolAttrUsedMemHigh,
                             THRESHOLD = hipMemPoolAttrReleaseThreshold;
    hipMemPool_t first, own;
    HIP_CHECK(hipDeviceGetDefaultMemPool(&first, 0));
    void *a, *b, *c;
    HIP_CHECK(hipMallocAsync(&a, 1000, nullptr));
    HIP_CHECK(hipMallocAsync(&b, 24, nullptr));
    say("used", attribute(first, USED));
    HIP_CHECK(hipFreeAsync(a, nullptr));
    HIP_CHECK(hipFree(b));
    say("freed", attribute(first, USED));
    say("high", attribute(first, USED_HIGH));
    unsigned long long zero = 0, most = 1 << 20;
    HIP_CHECK(hipMemPoolSetAttribute(first, USED_HIGH, &zero));
    say("reset", attribute(first, USED_HIGH));
    name_of("high_mark", hipMemPoolSetAttribute(first, USED_HIGH, &most));
    name_of("current", hipMemPoolSetAttribute(first, USED, &zero));
    HIP_CHECK(hipMemPoolSetAttribute(first, THRESHOLD, &most));
    say("threshold", attribute(first, THRESHOLD));
    int reuse = 0;
    HIP_CHECK(hipMemPoolGetAttribute(first, hipMemPoolReuseFollowEventDependencies, &reuse));
    say("reuse", reuse);

    hipMemPoolProps properties{};
    name_of("no_location", hipMemPoolCreate(&own, &properties));
    properties.allocType     = hipMemAllocationTypePinned;
    properties.location.type = hipMemLocationTypeDevice;
    HIP_CHECK(hipMemPoolCreate(&own, &properties));
    HIP_CHECK(hipMallocFromPoolAsync(&c, 77, own, nullptr));
    HIP_CHECK(hipDeviceSetMemPool(0, own));
    HIP_CHECK(hipMallocAsync(&a, 23, nullptr));
    say("own", attribute(own, USED));
    HIP_CHECK(hipMemPoolTrimTo(own, 0));
    HIP_CHECK(hipMemPoolDestroy(own));
    hipMemPool_t now;
    HIP_CHECK(hipDeviceGetMemPool(&now, 0));
    say("default_again", now == first);
    name_of("destroyed", hipMallocFromPoolAsync(&b, 4, own, nullptr));
    name_of("default", hipMemPoolDestroy(first));
    HIP_CHECK(hipFreeAsync(c, nullptr));
    return 0;
}

static int twice()
{
    int* x;
    HIP_CHECK(hipMallocAsync(reinterpret_cast<void**>(&x), 64 * sizeof(int), nullptr));
    HIP_CHECK(hipFreeAsync(x, nullptr));
    name_of("twice", hipFreeAsync(x, nullptr));
    return 0;
}

static int freed()
{
    int* x;
    HIP_CHECK(hipMallocAsync(reinterpret_cast<void**>(&x), 64 * sizeof(int), nullptr));
    bump<<<dim3(1), dim3(64)>>>(x);
    HIP_CHECK(hipDeviceSynchronize());
    HIP_CHECK(hipFreeAsync(x, nullptr));
    bump<<<dim3(1), dim3(64)>>>(x);
    name_of("after", hipDeviceSynchronize());
    return 0;
}

static int managed()
{
    bump_managed<<<dim3(1), dim3(1)>>>();
    HIP_CHECK(hipDeviceSynchronize());
    say("counter", counter);
    counter = 7;
    bump_managed<<<dim3(1), dim3(1)>>>();
    HIP_CHECK(hipDeviceSynchronize());
    say("counter", counter);
    int* x;
    HIP_CHECK(hipMallocManaged(reinterpret_cast<void**>(&x), 8192, 1));
    int value;
    const auto ask = [&](const char* name, hipMemRangeAttribute which, size_t bytes) {
        HIP_CHECK(hipMemRangeGetAttribute(&value, sizeof value, which, x, bytes));
        say(name, value);
    };
    ask("location", hipMemRangeAttributePreferredLocation, 8192);
    HIP_CHECK(hipMemAdvise(x, 8192, hipMemAdviseSetPreferredLocation, 0));
    HIP_CHECK(hipMemAdvise(x, 4096, hipMemAdviseSetReadMostly, 0));
    HIP_CHECK(hipMemPrefetchAsync(x, 8192, hipCpuDeviceId, nullptr));
    ask("location", hipMemRangeAttributePreferredLocation, 8192);
    ask("read_mostly", hipMemRangeAttributeReadMostly, 4096);
    ask("read_mostly_partly", hipMemRangeAttributeReadMostly, 8192);
    ask("prefetched", hipMemRangeAttributeLastPrefetchLocation, 8192);
    return 0;
}

static int refused()
{
    int* x;
    HIP_CHECK(hipMallocManaged(reinterpret_cast<void**>(&x), 8192, 1));
    name_of("too_long", hipMemPrefetchAsync(x, 8193, 0, nullptr));
    name_of("device", hipMemPrefetchAsync(x, 8192, 3, nullptr));
    return 0;
}

static int streams()
{
    int value = 0;
    hipStream_t stream;
    for(const int priority : {-1, 0, 5})
    {
        HIP_CHECK(hipStreamCreateWithPriority(&stream, 1, priority));
        HIP_CHECK(hipStreamGetPriority(stream, &value));
        say("priority", value);
    }
    unsigned* word;
    HIP_CHECK(hipMalloc(&word, 8));
    HIP_CHECK(hipStreamWriteValue32(stream, word, 12, 0));
    HIP_CHECK(hipStreamWaitValue32(stream, word, 12, 1, ~0u));
    HIP_CHECK(hipStreamWaitValue32(stream, word, 4, 1, 4));
    name_of("never_written", hipStreamWaitValue32(stream, word, 13, 0, ~0u));
    // The stream of this thread is captured, the default one is not.
    hipStream_t mine = reinterpret_cast<hipStream_t>(2);
    hipGraph_t graph;
    unsigned zero = 0, seen = 1;
    HIP_CHECK(hipStreamBeginCapture(mine, hipStreamCaptureModeRelaxed));
    HIP_CHECK(hipMemcpyAsync_spt(word, &zero, 4, hipMemcpyHostToDevice, nullptr));
    HIP_CHECK(hipMemcpyAsync(&seen, word, 4, hipMemcpyDeviceToHost, nullptr));
    HIP_CHECK(hipStreamEndCapture(mine, &graph));
    size_t nodes;
    HIP_CHECK(hipGraphGetNodes(graph, nullptr, &nodes));
    say("seen", seen);
    say("nodes", static_cast<long long>(nodes));
    void* function;
    hipDriverProcAddressQueryResult state;
    HIP_CHECK(hipGetProcAddress("hipGetErrorName", &function, 600, 0, &state));
    std::printf("by_name %s %d\n",
                reinterpret_cast<const char* (*)(hipError_t)>(function)(hipErrorUnknown),
                state);
    name_of("no_name", hipGetProcAddress("hipNothing", &function, 600, 0, &state));
    say("status", state);
    return 0;
}

int main(int, char** words)
{
    const char* what = words[1];
    if(std::strcmp(what, "pools") == 0)
        return pools();
    if(std::strcmp(what, "twice") == 0)
        return twice();
    if(std::strcmp(what, "freed") == 0)
        return freed();
    if(std::strcmp(what, "refused") == 0)
        return refused();
    return std::strcmp(what, "managed") == 0 ? managed() : streams();
}

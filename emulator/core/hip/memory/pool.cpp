// Memory pools and allocations in a stream's order. Nothing is held back: what is freed is gone, so
// that a use after it is seen; what a pool counts are its live allocations.
#include "hip/call.h"
#include "hip/graph/capture.h"
#include "hip/memory/memory.h"

#include <algorithm>
#include <cstring>

struct ihipMemPoolHandle_t
{
    std::vector<emu::Allocation> allocations = {}; // some of them freed since
    uint64_t high                            = 0;  // most bytes at once since it was set to 0
    uint64_t threshold                       = 0;
    int reuse[3]                             = {1, 1, 1}; // settings that decide nothing here
    unsigned access                          = 3;
};

namespace emu {
namespace {
// Layouts and numbers of HIP 6 and 7 (hip_runtime_api.h).
struct Location
{
    int type, id;
};
struct PoolProperties
{
    int allocation_type, handle_types;
    Location location;
    void* security;
    size_t most_bytes;
    unsigned char reserved[56];
};
static_assert(sizeof(PoolProperties) == 88);
struct AccessDescription
{
    Location location;
    unsigned flags;
};
constexpr int PINNED = 1, DEVICE = 1;
enum Attribute : int
{
    REUSE_FIRST      = 1,
    REUSE_LAST       = 3,
    THRESHOLD        = 4,
    RESERVED_CURRENT = 5,
    RESERVED_HIGH    = 6,
    USED_CURRENT     = 7,
    USED_HIGH        = 8,
};

struct Pools
{
    std::mutex mutex; // of the pools, too
    ihipMemPoolHandle_t default_pool;
    std::set<hipMemPool_t> live = {&default_pool};
    hipMemPool_t current        = &default_pool;
};

Pools& pools()
{
    static Pools& only = *new Pools;
    return only;
}

// An allocation and its end are operations of their stream: what uses the memory comes in between.
void change_all(const Allocation& one)
{
    if(Operation* const now = current_operation())
        now->touch(Access::Store, one.base, one.bytes, true);
}

// With pools().mutex held.
ihipMemPoolHandle_t& pool_of(hipMemPool_t pool)
{
    require(pool && pools().live.count(pool), hipErrorInvalidValue, "not a live memory pool");
    return *pool;
}

bool is_live(const Allocation& one)
{
    Allocation found;
    return find_allocation(one.base, &found) && found.id == one.id;
}

uint64_t used(ihipMemPoolHandle_t& pool)
{
    std::erase_if(pool.allocations, [](const Allocation& one) { return !is_live(one); });
    uint64_t bytes = 0;
    for(const Allocation& one : pool.allocations)
        bytes += one.bytes;
    return bytes;
}

// An address for a node's memory, which comes to be when the node runs.
AllocateNode reserved(void** pointer, size_t bytes)
{
    new_memory(pointer, bytes, AllocationKind::Device);
    free_memory(*pointer, false);
    return {*pointer, bytes};
}

void allocate_in(hipMemPool_t handle, void** pointer, size_t bytes, hipStream_t stream)
{
    require(pointer, hipErrorInvalidValue, "null pointer");
    check_stream(stream);
    *pointer = nullptr;
    if(bytes == 0 || captured(stream, [&] { return reserved(pointer, bytes); }))
        return;
    std::lock_guard lock(pools().mutex);
    ihipMemPoolHandle_t& pool = pool_of(handle ? handle : pools().current);
    new_memory(pointer, bytes, AllocationKind::Device);
    Allocation made;
    find_allocation(reinterpret_cast<uint64_t>(*pointer), &made);
    change_all(made);
    pool.allocations.push_back(made);
    pool.high = std::max(pool.high, used(pool));
}

template <typename Value>
void store(void* to, Value value)
{
    std::memcpy(to, &value, sizeof value);
}

void get_attribute(ihipMemPoolHandle_t& pool, int attribute, void* value)
{
    if(attribute >= REUSE_FIRST && attribute <= REUSE_LAST)
        return store(value, pool.reuse[attribute - REUSE_FIRST]);
    switch(attribute)
    {
        case THRESHOLD: return store(value, pool.threshold);
        case RESERVED_CURRENT:
        case USED_CURRENT: return store(value, used(pool));
        case RESERVED_HIGH:
        case USED_HIGH: return store(value, std::max(pool.high, used(pool)));
        default: throw HipFailure(hipErrorInvalidValue, "no such attribute of a memory pool");
    }
}

void set_attribute(ihipMemPoolHandle_t& pool, int attribute, const void* value)
{
    if(attribute >= REUSE_FIRST && attribute <= REUSE_LAST)
    {
        std::memcpy(&pool.reuse[attribute - REUSE_FIRST], value, sizeof(int));
        return;
    }
    uint64_t given;
    std::memcpy(&given, value, sizeof given);
    const bool mark = attribute == RESERVED_HIGH || attribute == USED_HIGH;
    require(attribute == THRESHOLD || (mark && given == 0), hipErrorInvalidValue,
            "an attribute that can't be set, or a high mark that is not set to 0");
    (mark ? pool.high : pool.threshold) = given;
}

template <typename Body>
hipError_t pool_call(const char* function, hipMemPool_t pool, const void* pointer, Body&& body)
{
    return hip_call(function, Needs::Device, [&] {
        require(pointer, hipErrorInvalidValue, "null pointer");
        std::lock_guard lock(pools().mutex);
        body(pool_of(pool));
    });
}

hipError_t answer_pool(const char* function, hipMemPool_t* pool, int device, const hipMemPool_t& which)
{
    return hip_call(function, Needs::Device, [&] {
        require(pool, hipErrorInvalidValue, "null pointer");
        check_device(device);
        std::lock_guard lock(pools().mutex);
        *pool = which;
    });
}
} // namespace
} // namespace emu

using emu::pools;

HIP_API hipError_t hipMallocAsync(void** pointer, size_t bytes, hipStream_t stream)
{
    return hip_call("hipMallocAsync", Needs::Device, [&] { emu::allocate_in(nullptr, pointer, bytes, stream); });
}

HIP_API hipError_t hipMallocFromPoolAsync(void** pointer, size_t bytes, hipMemPool_t pool, hipStream_t stream)
{
    return hip_call("hipMallocFromPoolAsync", Needs::Device, [&] {
        require(pool, hipErrorInvalidValue, "null pool");
        emu::allocate_in(pool, pointer, bytes, stream);
    });
}

HIP_API hipError_t hipFreeAsync(void* pointer, hipStream_t stream)
{
    return hip_call("hipFreeAsync", Needs::Nothing, [&] {
        require(pointer, hipErrorInvalidValue, "null pointer");
        if(emu::captured(stream, [&] { return emu::FreeNode{pointer}; }))
            return;
        if(emu::Allocation freed; emu::find_allocation(reinterpret_cast<uint64_t>(pointer), &freed))
            emu::change_all(freed);
        emu::free_memory(pointer, false);
        require(emu::fault_status() == hipSuccess, emu::fault_status(), "a launch faulted before");
    });
}

HIP_API hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t* pool, int device)
{
    return emu::answer_pool("hipDeviceGetDefaultMemPool", pool, device, &pools().default_pool);
}

HIP_API hipError_t hipDeviceGetMemPool(hipMemPool_t* pool, int device)
{
    return emu::answer_pool("hipDeviceGetMemPool", pool, device, pools().current);
}

HIP_API hipError_t hipDeviceSetMemPool(int device, hipMemPool_t pool)
{
    return emu::pool_call("hipDeviceSetMemPool", pool, pool, [&](ihipMemPoolHandle_t& that) {
        emu::check_device(device);
        pools().current = &that;
    });
}

HIP_API hipError_t hipMemPoolCreate(hipMemPool_t* pool, const emu::PoolProperties* properties)
{
    return hip_call("hipMemPoolCreate", Needs::Device, [&] {
        require(pool && properties, hipErrorInvalidValue, "null pointer");
        require(properties->allocation_type == emu::PINNED && properties->location.type == emu::DEVICE &&
                    properties->location.id == 0,
                hipErrorInvalidValue, "a pool holds pinned memory of device 0");
        std::lock_guard lock(pools().mutex);
        *pool = *pools().live.insert(new ihipMemPoolHandle_t).first;
    });
}

// What was allocated in it stays until it is freed.
HIP_API hipError_t hipMemPoolDestroy(hipMemPool_t pool)
{
    return emu::pool_call("hipMemPoolDestroy", pool, pool, [](ihipMemPoolHandle_t& that) {
        require(&that != &pools().default_pool, hipErrorInvalidValue, "the default pool stays");
        if(pools().current == &that)
            pools().current = &pools().default_pool;
        pools().live.erase(&that);
        delete &that;
    });
}

HIP_API hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t)
{
    return emu::pool_call("hipMemPoolTrimTo", pool, pool, [](ihipMemPoolHandle_t&) {});
}

HIP_API hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, int attribute, void* value)
{
    return emu::pool_call("hipMemPoolGetAttribute", pool, value,
                          [&](ihipMemPoolHandle_t& that) { emu::get_attribute(that, attribute, value); });
}

HIP_API hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, int attribute, void* value)
{
    return emu::pool_call("hipMemPoolSetAttribute", pool, value,
                          [&](ihipMemPoolHandle_t& that) { emu::set_attribute(that, attribute, value); });
}

HIP_API hipError_t hipMemPoolSetAccess(hipMemPool_t pool, const emu::AccessDescription* list, size_t count)
{
    return emu::pool_call("hipMemPoolSetAccess", pool, list, [&](ihipMemPoolHandle_t& that) {
        for(size_t i = 0; i < count; ++i)
        {
            require(list[i].location.type == emu::DEVICE && list[i].location.id == 0, hipErrorInvalidDevice,
                    "there is one emulated device, number 0");
            that.access = list[i].flags;
        }
    });
}

HIP_API hipError_t hipMemPoolGetAccess(unsigned* flags, hipMemPool_t pool, emu::Location* location)
{
    return emu::pool_call("hipMemPoolGetAccess", pool, flags, [&](ihipMemPoolHandle_t& that) {
        require(location && location->type == emu::DEVICE && location->id == 0, hipErrorInvalidValue,
                "there is one emulated device, number 0");
        *flags = that.access;
    });
}

// Memory: allocation, copies, fills. Every device range is checked against the allocations.
#include "hip/memory/memory.h"

#include "hip/call.h"
#include "hip/graph/capture.h"
#include "hip/launch/stream.h"
#include "run/options.h"
#include "standalone/settings.h"

#include <cstring>

namespace emu {
namespace {
bool is_ours(const void* pointer)
{
    Allocation found;
    return find_allocation(reinterpret_cast<uint64_t>(pointer), &found);
}

// Report a copy to the host of what no one has written (option uninitialised_memory). Less than this
// between written bytes may be the padding of a structure.
void report_unwritten(uint64_t from, size_t bytes)
{
    constexpr uint64_t PADDING = 16;
    const uint64_t first = (from + 3) & ~uint64_t{3}, end = (from + bytes) & ~uint64_t{3};
    uint64_t unwritten = 0, place = 0;
    for(uint64_t at = first; at < end;)
    {
        uint64_t written = at;
        while(written < end && never_written(written))
            written += 4;
        if(written - at >= PADDING || (written != at && written - at == end - first))
        {
            place = unwritten == 0 ? at : place;
            unwritten += written - at;
        }
        at = written + 4;
    }
    Allocation source;
    if(unwritten != 0 && find_allocation(place, &source))
        report_defect("uninitialised_memory", "a copy of " + std::to_string(bytes) + " bytes to the host has " +
                                                  std::to_string(unwritten) + " that were never written, from byte " +
                                                  std::to_string(place - source.base) + " of allocation " +
                                                  std::to_string(source.id) + " on");
}

template <typename T>
void set(void* to, T value, size_t count)
{
    if(count == 0)
        return;
    require(to, hipErrorInvalidValue, "null pointer");
    require(count <= SIZE_MAX / sizeof(T), hipErrorInvalidValue, "too many elements");
    check_range(to, count * sizeof(T), "the destination");
    std::lock_guard lock(device_mutex());
    if(Operation* const now = current_operation())
        now->touch(Access::Store, reinterpret_cast<uint64_t>(to), count * sizeof(T), true);
    if(sizeof(T) == 1 || value == 0)
    {
        fill(to, static_cast<int>(value), count * sizeof(T));
        return;
    }
    for(size_t i = 0; i < count; ++i)
        std::memcpy(static_cast<char*>(to) + i * sizeof(T), &value, sizeof value);
}
} // namespace

void fail_with_memory(const std::string& what, const std::string& text)
{
    if(options().heap != 0 && settings().quiet == 0) // as of every call that fails
        report_defect("heap", what + text);
    throw HipFailure(hipErrorInvalidValue, text);
}

void new_memory(void** pointer, size_t bytes, AllocationKind kind)
{
    require(pointer, hipErrorInvalidValue, "null pointer");
    *pointer = nullptr;
    if(bytes == 0)
        return; // as ROCm does: success and null
    std::lock_guard lock(device_mutex());
    *pointer = allocate(bytes, kind);
    if(*pointer)
        return;
    const bool fits = bytes <= capacity() - bytes_in_use();
    throw HipFailure(hipErrorOutOfMemory,
                     "no room for " + std::to_string(bytes) + " bytes: " + std::to_string(bytes_in_use()) + " of " +
                         std::to_string(capacity()) + " in use" +
                         (fits ? "; this process gets no more addresses there (ulimit -v limits them)" : ""));
}

void free_memory(void* pointer, bool host)
{
    if(!pointer)
        return;
    std::lock_guard lock(device_mutex());
    Allocation found;
    const auto address = reinterpret_cast<uint64_t>(pointer);
    const bool known   = find_allocation(address, &found) && found.base == address;
    const bool fits = known && (host ? found.kind == AllocationKind::Host
                                     : found.kind == AllocationKind::Device || found.kind == AllocationKind::Managed);
    if(!fits)
    {
        fail_with_memory("the host frees ", hex_text(address) + ", " + why_not_freed(address));
    }
    release(pointer);
}

void allocate_again(void* address, size_t bytes)
{
    std::lock_guard lock(device_mutex());
    set_placement(Placement::Fixed, reinterpret_cast<uint64_t>(address));
    require(allocate(bytes, AllocationKind::Device) == address, hipErrorInvalidValue,
            "the graph's memory was not freed since the last launch, or has no room");
}

void check_range(const void* pointer, size_t bytes, const char* what)
{
    Allocation found;
    const auto address = reinterpret_cast<uint64_t>(pointer);
    if(find_allocation(address, &found) && bytes <= found.base + found.bytes - address)
        return;
    std::string text = std::string(what) + " [" + hex_text(address) + ", +" + std::to_string(bytes) + ") ";
    int64_t distance = 0;
    if(find_allocation(address, &found))
        text += "ends " + std::to_string(bytes - (found.base + found.bytes - address)) +
                " bytes past the allocation of " + std::to_string(found.bytes) + " bytes at " + hex_text(found.base);
    else if(const std::string foreign = foreign_memory(address); !foreign.empty())
        text += "is " + foreign;
    else if(nearest(address, &found, &distance))
        text += "is outside the allocations; the nearest has " + std::to_string(found.bytes) + " bytes at " +
                hex_text(found.base) + (found.freed ? " and was freed" : "");
    else
        text += "is not device memory: nothing was allocated";
    fail_with_memory(std::string(current_function()) + ": ", text);
}

void copy_memory(void* to, const void* from, size_t bytes, hipMemcpyKind kind)
{
    require(kind >= hipMemcpyHostToHost && kind <= hipMemcpyDefault, hipErrorInvalidMemcpyDirection,
            "unknown direction");
    if(bytes == 0)
        return;
    require(to && from, hipErrorInvalidValue, "null pointer");
    // What an allocation holds is checked for every direction: ROCm looks the pointers up
    // as well.
    if(kind == hipMemcpyHostToDevice || kind == hipMemcpyDeviceToDevice || is_ours(to))
        check_range(to, bytes, "the destination");
    if(kind == hipMemcpyDeviceToHost || kind == hipMemcpyDeviceToDevice || is_ours(from))
        check_range(from, bytes, "the source");
    std::lock_guard lock(device_mutex());
    if(Allocation source; options().uninitialised_memory != 0 && !is_ours(to) &&
                          find_allocation(reinterpret_cast<uint64_t>(from), &source) &&
                          source.kind == AllocationKind::Device)
        report_unwritten(reinterpret_cast<uint64_t>(from), bytes);
    if(Operation* const now = current_operation())
    {
        now->touch(Access::Load, reinterpret_cast<uint64_t>(from), bytes, false);
        now->touch(Access::Store, reinterpret_cast<uint64_t>(to), bytes, true);
        now->host_waits |= !is_ours(to) || !is_ours(from); // pageable memory is copied at once
    }
    std::memmove(to, from, bytes);
}

void set_memory(void* to, uint32_t value, unsigned element_bytes, size_t count)
{
    switch(element_bytes)
    {
        case 1: return set(to, static_cast<uint8_t>(value), count);
        case 2: return set(to, static_cast<uint16_t>(value), count);
        case 4: return set(to, value, count);
        default: throw HipFailure(hipErrorInvalidValue, "elements have 1, 2 or 4 bytes");
    }
}
} // namespace emu

using emu::AllocationKind;

static hipError_t allocate_call(const char* function, void** pointer, size_t bytes, AllocationKind kind)
{
    return hip_call(function, Needs::Device, [&] {
        emu::refuse_while_capturing();
        emu::new_memory(pointer, bytes, kind);
    });
}

#define ALLOCATE(name, kind, ...)                                                    \
    HIP_API hipError_t name(void** pointer, size_t bytes __VA_OPT__(, ) __VA_ARGS__) \
    {                                                                                \
        return allocate_call(#name, pointer, bytes, AllocationKind::kind);           \
    }
ALLOCATE(hipMalloc, Device)
ALLOCATE(hipExtMallocWithFlags, Device, unsigned int)
ALLOCATE(hipMallocManaged, Managed, unsigned int)
ALLOCATE(hipHostMalloc, Host, unsigned int)

HIP_API hipError_t hipHostAlloc(void** pointer, size_t bytes, unsigned int flags)
{
    return hipHostMalloc(pointer, bytes, flags);
}

HIP_API hipError_t hipMallocHost(void** pointer, size_t bytes) { return hipHostMalloc(pointer, bytes, 0); }

HIP_API hipError_t hipMemAllocHost(void** pointer, size_t bytes) { return hipHostMalloc(pointer, bytes, 0); }

// Releasing works after a fault: only then can a process that clears the fault go on without a
// leak.
static hipError_t free_call(const char* function, void* pointer, bool host)
{
    return hip_call(function, Needs::Nothing, [&] {
        emu::refuse_while_capturing();
        emu::free_memory(pointer, host);
        require(emu::fault_status() == hipSuccess, emu::fault_status(), "a launch faulted before");
    });
}

HIP_API hipError_t hipFree(void* pointer) { return free_call("hipFree", pointer, false); }
HIP_API hipError_t hipHostFree(void* pointer) { return free_call("hipHostFree", pointer, true); }
HIP_API hipError_t hipFreeHost(void* pointer) { return free_call("hipFreeHost", pointer, true); }

HIP_API hipError_t hipHostRegister(void* pointer, size_t bytes, unsigned int)
{
    return hip_call("hipHostRegister", Needs::Device, [&] {
        require(pointer && bytes > 0, hipErrorInvalidValue, "an empty range");
        require(emu::import_range(pointer, bytes, AllocationKind::Registered), hipErrorHostMemoryAlreadyRegistered,
                "a part of the range is known already");
    });
}

HIP_API hipError_t hipHostUnregister(void* pointer)
{
    return hip_call("hipHostUnregister", Needs::Nothing, [&] {
        std::lock_guard lock(emu::device_mutex());
        emu::Allocation found;
        const auto address = reinterpret_cast<uint64_t>(pointer);
        require(
            emu::find_allocation(address, &found) && found.base == address && found.kind == AllocationKind::Registered,
            hipErrorHostMemoryNotRegistered, "not a registered range");
        emu::release(pointer);
    });
}

HIP_API hipError_t hipHostGetDevicePointer(void** device, void* host, unsigned int)
{
    return hip_call("hipHostGetDevicePointer", Needs::Device, [&] {
        require(device && host && emu::is_ours(host), hipErrorInvalidValue, "not memory that the device can reach");
        *device = host;
    });
}

HIP_API hipError_t hipMemGetInfo(size_t* free_bytes, size_t* total_bytes)
{
    return hip_call("hipMemGetInfo", Needs::Device, [&] {
        const uint64_t total = emu::capacity(), used = emu::bytes_in_use();
        if(free_bytes)
            *free_bytes = total - std::min(total, used);
        if(total_bytes)
            *total_bytes = total;
    });
}

HIP_API hipError_t hipMemGetAddressRange(hipDeviceptr_t* base, size_t* bytes, hipDeviceptr_t pointer)
{
    return hip_call("hipMemGetAddressRange", Needs::Device, [&] {
        emu::Allocation found;
        require(emu::find_allocation(reinterpret_cast<uint64_t>(pointer), &found), hipErrorNotFound,
                "not in an allocation");
        if(base)
            *base = reinterpret_cast<void*>(found.base);
        if(bytes)
            *bytes = found.bytes;
    });
}

HIP_API hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer)
{
    return hip_call("hipPointerGetAttributes", Needs::Device, [&] {
        emu::Allocation found;
        require(attributes && pointer, hipErrorInvalidValue, "null pointer");
        require(emu::find_allocation(reinterpret_cast<uint64_t>(pointer), &found), hipErrorInvalidValue,
                "not in an allocation");
        const bool managed = found.kind == AllocationKind::Managed;
        const bool host    = found.kind == AllocationKind::Host || found.kind == AllocationKind::Registered;
        void* const whole  = const_cast<void*>(pointer);
        *attributes        = {managed ? 3 : host ? 1 : 2, 0, whole, host || managed ? whole : nullptr, managed, 0};
    });
}

namespace emu {
namespace {
// What hipPointer_attribute asks of memory (driver_types.h). Throws HipFailure.
void pointer_attribute(void* to, int attribute, void* pointer)
{
    constexpr int MEMORY_TYPE = 2, DEVICE_POINTER = 3, HOST_POINTER = 4, SYNC = 6, BUFFER = 7, MANAGED = 8, DEVICE = 9,
                  START = 11, SIZE = 12, MAPPED = 13, ACCESS = 16;
    constexpr unsigned READ_AND_WRITE = 3;
    const auto put                    = [to](auto value) { std::memcpy(to, &value, sizeof value); };
    Allocation memory;
    const bool known = find_allocation(reinterpret_cast<uint64_t>(pointer), &memory);
    const bool host  = memory.kind == AllocationKind::Host || memory.kind == AllocationKind::Registered;
    switch(known ? attribute : 0)
    {
        case MEMORY_TYPE: return put(host ? 1 : 2);
        case DEVICE_POINTER: return put(pointer);
        case HOST_POINTER:
            put(host || memory.kind == AllocationKind::Managed ? pointer : nullptr);
            return require(host || memory.kind == AllocationKind::Managed, hipErrorInvalidValue,
                           "the host has no pointer to it");
        case SYNC: return put(false);
        case BUFFER: return put(memory.id);
        case MANAGED: return put(memory.kind == AllocationKind::Managed);
        case DEVICE: return put(0);
        case START: return put(memory.base);
        case SIZE: return put(memory.bytes);
        case MAPPED: return put(true);
        case ACCESS: return put(READ_AND_WRITE);
        default: break;
    }
    require(known, hipErrorInvalidValue, "not in an allocation");
    throw HipFailure(hipErrorNotSupported, "attribute " + std::to_string(attribute) + " of a pointer");
}
} // namespace
} // namespace emu

HIP_API hipError_t hipPointerGetAttribute(void* to, int attribute, void* pointer)
{
    return hip_call("hipPointerGetAttribute", Needs::Device, [&] {
        require(to && pointer, hipErrorInvalidValue, "null pointer");
        emu::pointer_attribute(to, attribute, pointer);
    });
}

// What can't be answered is left alone (ROCm's clr, hip_memory.cpp: it always succeeds).
HIP_API hipError_t hipDrvPointerGetAttributes(unsigned count, const int* attributes, void** to, void* pointer)
{
    return hip_call("hipDrvPointerGetAttributes", Needs::Device, [&] {
        require(count != 0 && attributes && to && pointer, hipErrorInvalidValue, "null pointer, or nothing asked");
        for(unsigned i = 0; i < count; ++i)
            try
            {
                emu::pointer_attribute(to[i], attributes[i], pointer);
            }
            catch(const emu::HipFailure&)
            {}
    });
}

static hipError_t copy_now(const char* function, void* to, const void* from, size_t bytes, hipMemcpyKind kind)
{
    return hip_call(function, Needs::Device, [&] {
        emu::refuse_synchronous();
        emu::copy_memory(to, from, bytes, kind);
    });
}

HIP_API hipError_t hipMemcpy(void* to, const void* from, size_t bytes, hipMemcpyKind kind)
{
    return copy_now("hipMemcpy", to, from, bytes, kind);
}

// On the default stream or on another one, where it may be captured.
static hipError_t copy_on(const char* function, void* to, const void* from, size_t bytes, hipMemcpyKind kind,
                          hipStream_t stream)
{
    return hip_call(function, Needs::Device, [&] {
        if(!emu::captured(stream, [&] { return emu::line(to, from, bytes, kind); }))
            emu::copy_memory(to, from, bytes, kind);
    });
}

HIP_API hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream)
{
    return copy_on("hipMemcpyAsync", to, from, bytes, kind, stream);
}

HIP_API hipError_t hipMemcpyWithStream(void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream)
{
    return copy_on("hipMemcpyWithStream", to, from, bytes, kind, stream);
}

// Copies whose direction is in their name, now and on a stream.
#define COPY(name, To, From, direction)                                                                             \
    HIP_API hipError_t name(To to, From from, size_t bytes) { return copy_now(#name, to, from, bytes, direction); } \
    HIP_API hipError_t name##Async(To to, From from, size_t bytes, hipStream_t stream)                              \
    {                                                                                                               \
        return copy_on(#name "Async", to, from, bytes, direction, stream);                                          \
    }
COPY(hipMemcpyHtoD, hipDeviceptr_t, const void*, hipMemcpyHostToDevice)
COPY(hipMemcpyDtoH, void*, hipDeviceptr_t, hipMemcpyDeviceToHost)
COPY(hipMemcpyDtoD, hipDeviceptr_t, hipDeviceptr_t, hipMemcpyDeviceToDevice)

static hipMemsetParams elements(void* to, uint32_t value, unsigned size, size_t count)
{
    return {to, size, 1, size * count, value, count};
}

static hipError_t set_now(const char* function, void* to, uint32_t value, unsigned size, size_t count)
{
    return hip_call(function, Needs::Device, [&] {
        emu::refuse_synchronous();
        emu::set_memory(to, value, size, count);
    });
}

static hipError_t set_on(const char* function, void* to, uint32_t value, unsigned size, size_t count,
                         hipStream_t stream)
{
    return hip_call(function, Needs::Device, [&] {
        if(!emu::captured(stream, [&] { return elements(to, value, size, count); }))
            emu::set_memory(to, value, size, count);
    });
}

// Fills with elements of a size, now and on a stream.
#define FILL(name, To, Value, Element)                                                                 \
    HIP_API hipError_t name(To to, Value value, size_t count)                                          \
    {                                                                                                  \
        return set_now(#name, to, static_cast<Element>(value), sizeof(Element), count);                \
    }                                                                                                  \
    HIP_API hipError_t name##Async(To to, Value value, size_t count, hipStream_t stream)               \
    {                                                                                                  \
        return set_on(#name "Async", to, static_cast<Element>(value), sizeof(Element), count, stream); \
    }
FILL(hipMemset, void*, int, uint8_t)
FILL(hipMemsetD8, hipDeviceptr_t, unsigned char, uint8_t)
FILL(hipMemsetD16, hipDeviceptr_t, unsigned short, uint16_t)
FILL(hipMemsetD32, hipDeviceptr_t, int, uint32_t)

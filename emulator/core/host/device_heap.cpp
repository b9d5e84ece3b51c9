#include "host/device_heap.h"

#include "host/messages.h"
#include "memory/mapping.h"
#include "run/fault.h"
#include "run/options.h"

#include <algorithm>
#include <mutex>

namespace emu {
namespace {
constexpr uint64_t HEAP_BYTES = 128 * 1024, ARENA_BYTES = uint64_t{16} << 30;

bool is_heap(uint64_t address)
{
    Allocation allocation;
    return address != 0 && find_allocation(address, &allocation) && allocation.base == address &&
           allocation.kind == AllocationKind::Heap && allocation.bytes == HEAP_BYTES;
}
} // namespace

uint64_t device_heap()
{
    static std::mutex mutex;
    static uint64_t heap = 0;
    const std::lock_guard lock(mutex);
    if(is_heap(heap))
        return heap;
    heap = reinterpret_cast<uint64_t>(allocate(HEAP_BYTES, AllocationKind::Heap, "heap of the kernels"));
    if(heap == 0)
        throw std::runtime_error("no room for the heap of the kernels");
    return heap;
}

uint64_t serve_memory(uint64_t address, uint64_t bytes)
{
    if(address == 0 && bytes == 0)
        throw HostCallError("the kernel asks the host for an allocation of no bytes");
    if(address == 0)
        return reinterpret_cast<uint64_t>(allocate(bytes, AllocationKind::Heap, MALLOC_LABEL));
    if(options().heap != 0)
    {
        kernel_free(address);
        return 0;
    }
    Allocation allocation;
    if(find_allocation(address, &allocation) && allocation.kind == AllocationKind::Heap)
        release(reinterpret_cast<void*>(address));
    return 0;
}

uint64_t kernel_malloc(uint64_t bytes)
{
    static std::mutex mutex;
    static uint64_t next = 0, end = 0; // of the arena
    if(bytes == 0)
        return 0;
    if(bytes > ARENA_BYTES / 16)
        return reinterpret_cast<uint64_t>(allocate(bytes, AllocationKind::Heap, MALLOC_LABEL));
    const std::lock_guard lock(mutex);
    const uint64_t whole = page_ceil(bytes) + PAGE_BYTES;
    if(whole > end - next)
    {
        PlacementRequest request;
        request.bytes  = ARENA_BYTES;
        request.poison = request.marks = options().uninitialised_memory != 0;
        next                           = map_memory(request, [](uint64_t, uint64_t) { return uint64_t{0}; });
        end                            = next == 0 ? 0 : next + ARENA_BYTES;
    }
    if(next == 0 || bytes > capacity() - std::min(capacity(), bytes_in_use()) ||
       !import_range(reinterpret_cast<void*>(next), bytes, AllocationKind::Heap, MALLOC_LABEL))
        return 0;
    next += whole;
    return next - whole;
}

void kernel_free(uint64_t address)
{
    if(address == 0)
        return;
    Allocation found;
    const bool live = find_allocation(address, &found);
    if(live && found.kind == AllocationKind::Heap && found.base == address && found.label == MALLOC_LABEL)
    {
        release(reinterpret_cast<void*>(address));
        if(found.bytes <= ARENA_BYTES / 16)
            drop_pages(address, page_ceil(address + found.bytes));
        return;
    }
    throw HeapError("free of " + hex_text(address) + ", " + why_not_freed(address));
}
} // namespace emu

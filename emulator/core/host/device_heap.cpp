#include "host/device_heap.h"

#include "host/messages.h"
#include "memory/memory.h"

#include <mutex>

namespace emu {
namespace {
constexpr uint64_t HEAP_BYTES = 128 * 1024;

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
        return reinterpret_cast<uint64_t>(allocate(bytes, AllocationKind::Heap, "malloc in a kernel"));
    Allocation allocation;
    if(find_allocation(address, &allocation) && allocation.kind == AllocationKind::Heap)
        release(reinterpret_cast<void*>(address));
    return 0;
}
} // namespace emu

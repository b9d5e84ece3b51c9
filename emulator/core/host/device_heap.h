// Memory that kernels allocate: malloc, free, new and delete in device code.
//
// The device library keeps a heap in 128 KiB of the device (hidden argument heap_v1, all zero when
// new) and asks the host for slabs of 2 MiB, and for each allocation over 3072 bytes.
#pragma once

#include <cstdint>
#include <stdexcept>

namespace emu {
// The address of the heap, which all launches share until hipDeviceReset. Throws
// std::runtime_error: no room.
uint64_t device_heap();

// Serve a kernel's request: release `address` unless it is 0, else allocate `bytes` and return the
// address, or 0 if memory is full. As with ROCm, the release of an address that was never
// allocated does nothing, but with the option heap. Throws HostCallError (messages.h) if both are
// 0, and HeapError.
uint64_t serve_memory(uint64_t address, uint64_t bytes);

// ---- With the option heap, the library's functions are answered here (isa/ops/control.cpp): each
// allocation is one by itself, with unmapped bytes after it, and addresses do not come back.
class HeapError : public std::runtime_error
{
public:
    using std::runtime_error::runtime_error;
};
inline constexpr const char* MALLOC_FUNCTION = "__ockl_dm_alloc";
inline constexpr const char* FREE_FUNCTION   = "__ockl_dm_dealloc";
inline constexpr const char* MALLOC_LABEL    = "malloc in a kernel";
uint64_t kernel_malloc(uint64_t bytes); // 0: no bytes, or memory is full
void kernel_free(uint64_t address);     // throws HeapError
} // namespace emu

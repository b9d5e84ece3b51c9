// Memory that kernels allocate: malloc, free, new and delete in device code.
//
// The device library keeps a heap in 128 KiB of the device (hidden argument heap_v1, all zero when
// new) and asks the host for slabs of 2 MiB, and for each allocation over 3072 bytes.
#pragma once

#include <cstdint>

namespace emu {
// The address of the heap, which all launches share until hipDeviceReset. Throws
// std::runtime_error: no room.
uint64_t device_heap();

// Serve a kernel's request: release `address` unless it is 0, else allocate `bytes` and return the
// address, or 0 if memory is full. As with ROCm, the release of an address that was never
// allocated does nothing. Throws HostCallError (messages.h) if both are 0.
uint64_t serve_memory(uint64_t address, uint64_t bytes);
} // namespace emu

// Memory as other calls use it. All throw HipFailure.
#pragma once

#include "hip/types.h"
#include "memory/memory.h"

#include <string>

namespace emu {
// Null for no bytes, as ROCm does.
void new_memory(void** pointer, size_t bytes, AllocationKind kind);
void free_memory(void* pointer, bool host);
// Memory at an address that had some before.
void allocate_again(void* address, size_t bytes);
// A call names memory that is not what it has to be; with the option heap this is reported.
[[noreturn]] void fail_with_memory(const std::string& what, const std::string& text);
// Unless the range lies in one allocation, whatever the granularity for kernels is.
void check_range(const void* pointer, size_t bytes, const char* what);
void copy_memory(void* to, const void* from, size_t bytes, hipMemcpyKind kind);
// Elements of 1, 2 or 4 bytes.
void set_memory(void* to, uint32_t value, unsigned element_bytes, size_t count);
} // namespace emu

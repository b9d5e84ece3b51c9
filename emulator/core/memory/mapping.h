// Address space for allocations: mmap with placement policies. Used by memory.cpp alone.
#pragma once

#include "memory/memory.h"

#include <cstddef>
#include <cstdint>
#include <functional>

namespace emu {
constexpr uint64_t page_floor(uint64_t address) { return address & ~(PAGE_BYTES - 1); }
constexpr uint64_t page_ceil(uint64_t address) { return page_floor(address + PAGE_BYTES - 1); }

// The state of a candidate range: 0 if it is free, else the address after the allocation in the
// way (memory.cpp).
using Occupied = std::function<uint64_t(uint64_t begin, uint64_t end)>;

struct PlacementRequest
{
    Placement placement = Placement::Default;
    uint64_t base       = 0; // of Crossing and Fixed
    uint64_t guard      = 0;
    uint64_t bytes      = 0;
    uint32_t number     = 0;     // of the allocation: staggers small ones
    bool poison         = false; // with marks: those (memory.h)
    bool marks          = false;
    bool code           = false; // of a code object: in a region of its own
};

// Map memory for a request and return the allocation's first byte (not always the first of a page);
// 0 if address space or device memory is full.
uint64_t map_memory(const PlacementRequest& request, const Occupied& occupied);
// Default places are looked for from the first one again.
void restart_mapping();
void unmap_memory(uint64_t base, uint64_t bytes);
// Make whole pages of an own mapping read as zero again, and give their memory back. False if that
// is not possible.
bool drop_pages(uint64_t begin, uint64_t end);
} // namespace emu

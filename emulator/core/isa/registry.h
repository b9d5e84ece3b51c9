// Names of micro-ops and what executes them.
//
// Blobs name a micro-op by the FNV-1a hash of its name, so that Python and the core share no
// numbering. Each file of ops/ has one table; registry.cpp joins the tables.
#pragma once

#include "isa/microop.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace emu {
struct Entry
{
    const char* name;
    Handler handler;
};

constexpr uint64_t name_hash(std::string_view name)
{
    uint64_t hash = 0xcbf29ce484222325;
    for(const char c : name)
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return hash;
}

// The tables, in this order.
// clang-format off
#define EMU_TABLES(X) \
    X(scalar) X(scalar_memory) X(control) X(float) X(integer) X(wide) X(half) X(convert) X(scale) \
    X(compare) X(lane) X(packed) X(matrix) X(block_matrix) X(small_matrix) X(sparse_matrix) \
    X(lds) X(buffer) X(flat) X(scalar_rare) X(media) X(saturate) X(lds_atomic) X(format)
// clang-format on
#define X(name) std::span<const Entry> name##_entries();
EMU_TABLES(X)
#undef X

// Null if the core has no such micro-op.
Handler find_handler(uint64_t hash);
const Entry* entry_at(size_t index);
size_t entry_count();

// Not by name: answers for the device library's allocator (host/device_heap.h).
const MicroOp* heap_malloc(Wave& wave, const MicroOp* op);
const MicroOp* heap_free(Wave& wave, const MicroOp* op);
} // namespace emu

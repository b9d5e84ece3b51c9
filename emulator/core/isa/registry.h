// Names of micro-ops and what executes them.
//
// Blobs name a micro-op by the FNV-1a hash of its name, so that Python and the core share no
// numbering. Each interp_*.cpp has one table; registry.cpp joins them.
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

std::span<const Entry> scalar_entries();
std::span<const Entry> scalar_memory_entries();
std::span<const Entry> control_entries();
std::span<const Entry> float_entries();
std::span<const Entry> integer_entries();
std::span<const Entry> wide_entries();
std::span<const Entry> half_entries();
std::span<const Entry> convert_entries();
std::span<const Entry> scale_entries();
std::span<const Entry> compare_entries();
std::span<const Entry> lane_entries();
std::span<const Entry> packed_entries();
std::span<const Entry> matrix_entries();
std::span<const Entry> lds_entries();
std::span<const Entry> buffer_entries();
std::span<const Entry> flat_entries();
std::span<const Entry> scalar_rare_entries();
std::span<const Entry> media_entries();
std::span<const Entry> saturate_entries();
std::span<const Entry> lds_atomic_entries();
std::span<const Entry> format_entries();

// Null if the core has no such micro-op.
Handler find_handler(uint64_t hash);
const Entry* entry_at(size_t index);
size_t entry_count();

} // namespace emu

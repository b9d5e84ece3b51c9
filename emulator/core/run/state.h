// Sums of states, to see that one came back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace emu {

// Words of 8 bytes; of a rest only what there is. (The multiplier of FNV-1a.)
inline uint64_t add_bytes(uint64_t sum, const void* begin, size_t bytes)
{
    const auto* at = static_cast<const unsigned char*>(begin);
    for(; bytes > 0;)
    {
        const size_t part = bytes < 8 ? bytes : 8;
        uint64_t word     = 0;
        std::memcpy(&word, at, part);
        sum = (sum ^ word) * 0x100000001b3;
        sum ^= sum >> 29;
        at += part;
        bytes -= part;
    }
    return sum;
}

} // namespace emu

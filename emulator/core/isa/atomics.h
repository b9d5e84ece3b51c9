// Read-modify-write of global memory: lanes in ascending order, atomic against other host threads.
#pragma once

#include "isa/access.h"
#include "isa/float_formats.h"

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace emu {
// Replace *address by F(*address, data) and return the old value.
template <typename T, auto F>
T modify(void* address, T data)
{
    using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    std::atomic_ref<Bits> cell(*static_cast<Bits*>(address));
    Bits old = cell.load(std::memory_order_relaxed);
    for(;;)
    {
        const T result = F(std::bit_cast<T>(old), data);
        if(cell.compare_exchange_weak(old, std::bit_cast<Bits>(result)))
            return std::bit_cast<T>(old);
    }
}

// Change(address, operand) -> old value, for each lane of `mask`: operands from rows of 64 dwords,
// old values to `old`, zero in other lanes.
template <typename T, auto Change, typename Offset>
void modify_lanes(uint8_t* base, const Offset* offsets, uint64_t mask, const uint32_t (*operands)[LANES], Rows& old)
{
    constexpr unsigned DWORDS = sizeof(T) / 4;
    for(unsigned l = 0; l < LANES; ++l)
    {
        uint32_t bits[DWORDS] = {};
        if(mask >> l & 1)
        {
            for(unsigned i = 0; i < DWORDS; ++i)
                bits[i] = operands[i][l];
            T operand;
            std::memcpy(&operand, bits, sizeof(T));
            const T before = Change(place(base, offsets[l]), operand);
            std::memcpy(bits, &before, sizeof(T));
        }
        for(unsigned i = 0; i < DWORDS; ++i)
            old.d[i][l] = bits[i];
    }
}

// Compare-and-swap of each lane of `mask`: the data are the new value, then the one compared with.
template <typename T, typename Offset>
void compare_swap_lanes(uint8_t* base, const Offset* offsets, uint64_t mask, const uint32_t (*data)[LANES], Rows& old)
{
    constexpr unsigned DWORDS = sizeof(T) / 4;
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(!(mask >> l & 1))
            continue;
        uint32_t words[2 * DWORDS];
        for(unsigned i = 0; i < 2 * DWORDS; ++i)
            words[i] = data[i][l];
        T wanted, expected;
        std::memcpy(&wanted, words, sizeof(T));
        std::memcpy(&expected, words + DWORDS, sizeof(T));
        std::atomic_ref<T> cell(*reinterpret_cast<T*>(place(base, offsets[l])));
        cell.compare_exchange_strong(expected, wanted);
        std::memcpy(words, &expected, sizeof(T));
        for(unsigned i = 0; i < DWORDS; ++i)
            old.d[i][l] = words[i];
    }
}

inline uint32_t packed_add_f16(uint32_t a, uint32_t b)
{
    const auto sum = [](uint32_t x, uint32_t y) {
        const float exact = f16_to_f32(x & 0xffff) + f16_to_f32(y & 0xffff);
        return f32_to_f16(std::bit_cast<uint32_t>(exact), Round::Nearest);
    };
    return sum(a, b) | sum(a >> 16, b >> 16) << 16;
}

inline uint32_t packed_add_bf16(uint32_t a, uint32_t b)
{
    const auto sum = [](uint32_t x, uint32_t y) {
        const float exact = bf16_to_f32(x & 0xffff) + bf16_to_f32(y & 0xffff);
        return f32_to_bf16(std::bit_cast<uint32_t>(exact));
    };
    return sum(a, b) | sum(a >> 16, b >> 16) << 16;
}

// The same tables for buffer, flat and scalar instructions: X(name, type, expression of memory m
// and data d). Scalar ones are of integers alone.
#define EMU_ATOMICS_OF(X, SIZE, SIGNED, UNSIGNED) \
    X("swap" SIZE, UNSIGNED, (void(m), d))        \
    X("add" SIZE, UNSIGNED, m + d)                \
    X("sub" SIZE, UNSIGNED, m - d)                \
    X("smin" SIZE, SIGNED, m < d ? m : d)         \
    X("umin" SIZE, UNSIGNED, m < d ? m : d)       \
    X("smax" SIZE, SIGNED, m > d ? m : d)         \
    X("umax" SIZE, UNSIGNED, m > d ? m : d)       \
    X("and" SIZE, UNSIGNED, (m & d))              \
    X("or" SIZE, UNSIGNED, m | d)                 \
    X("xor" SIZE, UNSIGNED, m ^ d)                \
    X("inc" SIZE, UNSIGNED, m >= d ? 0 : m + 1)   \
    X("dec" SIZE, UNSIGNED, m == 0 || m > d ? d : m - 1)
// Whether what it leaves depends on what it finds.
constexpr bool atomic_reads(std::string_view name) { return !name.starts_with("swap"); }
#define EMU_INTEGER_ATOMICS(X)               \
    EMU_ATOMICS_OF(X, "", int32_t, uint32_t) \
    EMU_ATOMICS_OF(X, "_x2", int64_t, uint64_t)
#define EMU_ATOMICS(X)                                \
    EMU_INTEGER_ATOMICS(X)                            \
    X("add_f32", float, m + d)                        \
    X("pk_add_f16", uint32_t, packed_add_f16(m, d))   \
    X("pk_add_bf16", uint32_t, packed_add_bf16(m, d)) \
    X("add_f64", double, m + d)                       \
    X("min_f64", double, d < m ? d : m)               \
    X("max_f64", double, d > m ? d : m)
} // namespace emu

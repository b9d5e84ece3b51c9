// Formats of buffer elements: what a memory format's components are, to and from registers (CDNA3
// ISA document, "Buffer resource descriptor" and "Data formats of buffers"; LLVM,
// SIDefines.h, namespace MTBUFFormat, has the same numbers).
#pragma once

#include "isa/float_formats.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>

namespace emu {
enum class NumberFormat : uint32_t
{
    Unorm,
    Snorm,
    Uscaled,
    Sscaled,
    Uint,
    Sint,
    Reserved,
    Float
};

// Components from the lowest bit on; bits of each, 0 where there is none.
struct DataFormat
{
    uint32_t bits[4];

    unsigned components() const
    {
        unsigned count = 0;
        while(count < 4 && bits[count] != 0)
            ++count;
        return count;
    }
    unsigned bytes() const { return (bits[0] + bits[1] + bits[2] + bits[3]) / 8; }
};

inline constexpr DataFormat DATA_FORMATS[16] = {
    {{0, 0, 0, 0}},     // invalid
    {{8, 0, 0, 0}},     // 8
    {{16, 0, 0, 0}},    // 16
    {{8, 8, 0, 0}},     // 8_8
    {{32, 0, 0, 0}},    // 32
    {{16, 16, 0, 0}},   // 16_16
    {{11, 11, 10, 0}},  // 10_11_11
    {{10, 11, 11, 0}},  // 11_11_10
    {{2, 10, 10, 10}},  // 10_10_10_2
    {{10, 10, 10, 2}},  // 2_10_10_10
    {{8, 8, 8, 8}},     // 8_8_8_8
    {{32, 32, 0, 0}},   // 32_32
    {{16, 16, 16, 16}}, // 16_16_16_16
    {{32, 32, 32, 0}},  // 32_32_32
    {{32, 32, 32, 32}}, // 32_32_32_32
    {{0, 0, 0, 0}},     // reserved
};

inline bool is_integer(NumberFormat number) { return number == NumberFormat::Uint || number == NumberFormat::Sint; }

// Whether a component of so many bits has a format: floats have 32, 16, 11 or 10 bits.
inline bool has_format(const DataFormat& data, NumberFormat number)
{
    if(data.bits[0] == 0 || number == NumberFormat::Reserved)
        return false;
    for(const uint32_t bits : data.bits)
    {
        if(number == NumberFormat::Float && (bits == 8 || bits == 2 || (bits == 10 && data.bits[3])))
            return false;
        if(number != NumberFormat::Float && !is_integer(number) && bits == 32)
            return false;
    }
    return true;
}

inline int64_t sign_extended(uint32_t value, uint32_t bits)
{
    const uint64_t sign = uint64_t{1} << (bits - 1);
    return static_cast<int64_t>((value ^ sign)) - static_cast<int64_t>(sign);
}

// Floats of 10 and 11 bits have no sign, five bits of exponent and the rest of mantissa: f16 cut.
inline uint32_t small_float_to_f32(uint32_t value, uint32_t bits) { return f16_to_f32_bits(value << (15 - bits)); }

// One component as a register of 32 bits has it.
inline uint32_t from_component(uint32_t value, uint32_t bits, NumberFormat number)
{
    const auto bit_pattern = [](double x) { return std::bit_cast<uint32_t>(static_cast<float>(x)); };
    const auto full        = static_cast<double>((uint64_t{1} << bits) - 1),
               half        = static_cast<double>((uint64_t{1} << (bits - 1)) - 1);
    const auto whole       = static_cast<double>(sign_extended(value, bits));
    switch(number)
    {
        case NumberFormat::Unorm: return bit_pattern(value / full);
        case NumberFormat::Snorm: return bit_pattern(std::fmax(-1.0, whole / half));
        case NumberFormat::Uscaled: return bit_pattern(value);
        case NumberFormat::Sscaled: return bit_pattern(whole);
        case NumberFormat::Sint: return static_cast<uint32_t>(sign_extended(value, bits));
        case NumberFormat::Float:
            return bits == 32 ? value : bits == 16 ? f16_to_f32_bits(value) : small_float_to_f32(value, bits);
        default: return value;
    }
}

// A register's value as a component; nothing where no document has the stored value: integers that
// the component does not hold, and scaled ones.
inline std::optional<uint32_t> to_component(uint32_t value, uint32_t bits, NumberFormat number)
{
    const uint32_t mask = bits == 32 ? ~0u : (1u << bits) - 1;
    const float x       = std::bit_cast<float>(value);
    switch(number)
    {
        case NumberFormat::Unorm:
        case NumberFormat::Snorm:
        {
            const bool sign      = number == NumberFormat::Snorm;
            const double largest = sign ? mask >> 1 : mask, least = sign ? -1.0 : 0.0;
            const double bounded = std::isnan(x) ? 0.0 : std::fmin(1.0, std::fmax(least, x));
            return static_cast<uint32_t>(static_cast<int64_t>(__builtin_roundeven(bounded * largest))) & mask;
        }
        case NumberFormat::Uint: return value <= mask ? std::optional(value) : std::nullopt;
        case NumberFormat::Sint:
            return sign_extended(value & mask, bits) == static_cast<int32_t>(value) ? std::optional(value & mask)
                                                                                    : std::nullopt;
        case NumberFormat::Float:
            if(bits == 32)
                return value;
            if(bits == 16)
                return f32_to_f16(value, Round::Nearest);
            return std::nullopt;
        default: return std::nullopt;
    }
}
} // namespace emu

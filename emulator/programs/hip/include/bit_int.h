// For the embedded toolchain alone, before every other header: CK's types of eight bits are
// _BitInt(8), integral in clang's library and not in that of hipcc, after which CK chooses among
// its comparisons.
#pragma once

#include <type_traits>

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Winvalid-specialization"

template <>
struct std::is_integral<_BitInt(8)> : std::false_type
{};
template <>
struct std::is_integral<unsigned _BitInt(8)> : std::false_type
{};
template <>
inline constexpr bool std::is_integral_v<_BitInt(8)> = false;
template <>
inline constexpr bool std::is_integral_v<unsigned _BitInt(8)> = false;

#pragma clang diagnostic pop

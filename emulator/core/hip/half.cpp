// Conversions of half precision that ROCm's runtime has for host code of older compilers.
#include "hip/types.h"

#include <bit>
#include <cstdint>

HIP_API float __gnu_h2f_ieee(uint16_t bits) { return std::bit_cast<_Float16>(bits); }
HIP_API uint16_t __gnu_f2h_ieee(float value) { return std::bit_cast<uint16_t>(static_cast<_Float16>(value)); }

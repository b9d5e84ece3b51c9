// float to __bf16, to nearest, ties to even: clang calls it in host code, and the run-time library that comes with the
// embedded toolchain has it for other machines than x86-64 alone.
#include <stdint.h>
#include <string.h>

__bf16 __truncsfbf2(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const int is_nan    = (bits & 0x7fffffff) > 0x7f800000;
    const uint32_t half = 0x7fff + (bits >> 16 & 1);
    const uint16_t top  = (uint16_t)((is_nan ? bits | 0x400000 : bits + half) >> 16);
    __bf16 result;
    memcpy(&result, &top, sizeof result);
    return result;
}

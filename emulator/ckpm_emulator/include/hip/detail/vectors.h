// dim3 and the short vectors, as plain aggregates: host and device agree on size and alignment with
// libamdhip64.
#pragma once

#include "hip/detail/qualifiers.h"

#include <stdint.h>
#include <sys/types.h> // ushort and uint, which HIP sources take for granted

struct dim3
{
    uint32_t x;
    uint32_t y;
    uint32_t z;

    __host__ __device__ constexpr dim3(uint32_t x_ = 1, uint32_t y_ = 1, uint32_t z_ = 1)
        : x(x_), y(y_), z(z_)
    {}
};

// One line of the table below is one element type: its 1- to 4-element structs and their make
// functions.
#define CKPM_VECTORS(name, element)                                                               \
    struct name##1 { element x; };                                                                \
    struct alignas(2 * sizeof(element)) name##2 { element x, y; };                                \
    struct name##3 { element x, y, z; };                                                          \
    struct alignas(4 * sizeof(element)) name##4 { element x, y, z, w; };                          \
    __host__ __device__ constexpr name##1 make_##name##1(element x) { return {x}; }               \
    __host__ __device__ constexpr name##2 make_##name##2(element x, element y) { return {x, y}; } \
    __host__ __device__ constexpr name##3 make_##name##3(element x, element y, element z)         \
    {                                                                                             \
        return {x, y, z};                                                                         \
    }                                                                                             \
    __host__ __device__ constexpr name##4 make_##name##4(                                         \
        element x, element y, element z, element w)                                               \
    {                                                                                             \
        return {x, y, z, w};                                                                      \
    }

CKPM_VECTORS(char, signed char)
CKPM_VECTORS(uchar, unsigned char)
CKPM_VECTORS(short, short)
CKPM_VECTORS(ushort, unsigned short)
CKPM_VECTORS(int, int)
CKPM_VECTORS(uint, unsigned int)
CKPM_VECTORS(longlong, long long)
CKPM_VECTORS(ulonglong, unsigned long long)
CKPM_VECTORS(float, float)
CKPM_VECTORS(double, double)

#undef CKPM_VECTORS

static_assert(sizeof(dim3) == 12, "a kernel launch passes dim3 by value");
static_assert(sizeof(uint4) == 16 && alignof(uint4) == 16, "a uint4 is one 128-bit load");

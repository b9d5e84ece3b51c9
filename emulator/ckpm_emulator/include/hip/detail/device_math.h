// Device overloads of the C math functions, on clang's builtins, which the AMDGPU backend expands
// without a library.
//
// Functions the backend can't expand (tanh, sin, pow ...) are declared only: a kernel that really
// calls one fails to link, and the linker names it. math.h comes first, so that the overloads join
// the host functions, not hide them.
#pragma once

#include "hip/detail/qualifiers.h"

#include <math.h>

#define CKPM_UNARY(name)                                                                 \
    __device__ __forceinline__ float name##f(float x) { return __builtin_##name##f(x); } \
    __device__ __forceinline__ float name(float x) { return __builtin_##name##f(x); }    \
    __device__ __forceinline__ double name(double x) { return __builtin_##name(x); }

#define CKPM_BINARY(name)                                                                         \
    __device__ __forceinline__ float name##f(float x, float y)                                    \
    {                                                                                             \
        return __builtin_##name##f(x, y);                                                         \
    }                                                                                             \
    __device__ __forceinline__ float name(float x, float y) { return __builtin_##name##f(x, y); } \
    __device__ __forceinline__ double name(double x, double y) { return __builtin_##name(x, y); }

#define CKPM_DECLARED(name)                     \
    extern "C" __device__ float name##f(float); \
    extern "C" __device__ double name(double);

CKPM_UNARY(ceil)
CKPM_UNARY(exp)
CKPM_UNARY(exp2)
CKPM_UNARY(fabs)
CKPM_UNARY(floor)
CKPM_UNARY(log)
CKPM_UNARY(log2)
CKPM_UNARY(rint)
CKPM_UNARY(round)
CKPM_UNARY(sqrt)
CKPM_UNARY(trunc)
CKPM_BINARY(copysign)
CKPM_BINARY(fmax)
CKPM_BINARY(fmin)

CKPM_DECLARED(acos)
CKPM_DECLARED(acosh)
CKPM_DECLARED(asin)
CKPM_DECLARED(asinh)
CKPM_DECLARED(atan)
CKPM_DECLARED(atanh)
CKPM_DECLARED(cos)
CKPM_DECLARED(cosh)
CKPM_DECLARED(expm1)
CKPM_DECLARED(sin)
CKPM_DECLARED(sinh)
CKPM_DECLARED(tan)
CKPM_DECLARED(tanh)
extern "C" __device__ float powf(float, float);
extern "C" __device__ double pow(double, double);

#undef CKPM_UNARY
#undef CKPM_BINARY
#undef CKPM_DECLARED

__device__ __forceinline__ float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
__device__ __forceinline__ float abs(float x) { return __builtin_fabsf(x); }
__device__ __forceinline__ double abs(double x) { return __builtin_fabs(x); }
__device__ __forceinline__ bool isnan(float x) { return __builtin_isnan(x); }
__device__ __forceinline__ bool isnan(double x) { return __builtin_isnan(x); }

// The fast forms: one hardware instruction and a multiplication, no care for denormals.
__device__ __forceinline__ float __logf(float x)
{
    return __builtin_amdgcn_logf(x) * 0.693147180559945309f;
}
__device__ __forceinline__ float __expf(float x)
{
    return __builtin_amdgcn_exp2f(x * 1.44269504088896341f);
}
__device__ __forceinline__ float __frcp_rn(float x) { return 1.0f / x; }

// Names of the ROCm device library that sources call directly.
extern "C" {
__device__ __forceinline__ float __ocml_exp_f32(float x) { return __builtin_expf(x); }
__device__ __forceinline__ float __ocml_exp2_f32(float x) { return __builtin_exp2f(x); }
__device__ __forceinline__ float __ocml_log_f32(float x) { return __builtin_logf(x); }
__device__ __forceinline__ _Float16 __ocml_exp_f16(_Float16 x) { return __builtin_expf16(x); }
__device__ __forceinline__ _Float16 __ocml_log_f16(_Float16 x) { return __builtin_logf16(x); }
__device__ __forceinline__ _Float16 __ocml_sin_f16(_Float16 x) { return __builtin_sinf16(x); }
__device__ __forceinline__ _Float16 __ocml_ceil_f16(_Float16 x) { return __builtin_ceilf16(x); }
__device__ __forceinline__ _Float16 __ocml_floor_f16(_Float16 x) { return __builtin_floorf16(x); }
}

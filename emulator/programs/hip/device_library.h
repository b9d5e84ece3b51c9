// Functions of HIP's headers over ROCm's device libraries: memory and assert (ockl.bc),
// mathematics (ocml.bc), and the constants that ROCm links from files of their own. hipcc has all
// of them.
#pragma once

#if __has_include(<hip/detail/qualifiers.h>) // of the embedded toolchain

extern "C" {
extern __constant__ const int __oclc_ABI_version;
extern __constant__ const int __oclc_ISA_version;
extern __constant__ const bool __oclc_wavefrontsize64;
__constant__ const int __oclc_ABI_version = 500;
#ifdef __gfx942__
__constant__ const int __oclc_ISA_version = 9402;
#else
__constant__ const int __oclc_ISA_version = 9500;
#endif
__constant__ const bool __oclc_wavefrontsize64 = true;
extern __constant__ const bool __oclc_finite_only_opt;
extern __constant__ const bool __oclc_unsafe_math_opt;
__constant__ const bool __oclc_finite_only_opt = false;
__constant__ const bool __oclc_unsafe_math_opt = false;

#define OCML_FUNCTION(NAME)                        \
    __device__ float __ocml_##NAME##_f32(float x); \
    __device__ double __ocml_##NAME##_f64(double x);
#define OCML_FUNCTION_OF_TWO(NAME)                          \
    __device__ float __ocml_##NAME##_f32(float x, float y); \
    __device__ double __ocml_##NAME##_f64(double x, double y);
OCML_FUNCTION(exp)
OCML_FUNCTION(log)
OCML_FUNCTION(sin)
OCML_FUNCTION(tanh)
OCML_FUNCTION(tgamma)
OCML_FUNCTION_OF_TWO(fmod)
OCML_FUNCTION_OF_TWO(pow)
__device__ inline double sin(double x) { return __ocml_sin_f64(x); }
__device__ inline double tanh(double x) { return __ocml_tanh_f64(x); }
__device__ inline double pow(double x, double y) { return __ocml_pow_f64(x, y); }

__device__ uint64_t __ockl_dm_alloc(uint64_t bytes);
__device__ void __ockl_dm_dealloc(uint64_t address);
__device__ uint64_t __ockl_fprintf_stderr_begin();
__device__ uint64_t __ockl_fprintf_append_args(uint64_t message,
                                               uint32_t count,
                                               uint64_t a0,
                                               uint64_t a1,
                                               uint64_t a2,
                                               uint64_t a3,
                                               uint64_t a4,
                                               uint64_t a5,
                                               uint64_t a6,
                                               uint32_t last);
__device__ uint64_t __ockl_fprintf_append_string_n(uint64_t message,
                                                   const char* text,
                                                   uint64_t bytes,
                                                   uint32_t last);
}

__device__ inline void* device_malloc(size_t bytes)
{
    return reinterpret_cast<void*>(__ockl_dm_alloc(bytes));
}
__device__ inline void device_free(void* pointer)
{
    __ockl_dm_dealloc(reinterpret_cast<uint64_t>(pointer));
}

__device__ inline uint64_t append_text(uint64_t message, const char* text, uint32_t last)
{
    uint64_t bytes = 1;
    while(text[bytes - 1] != 0)
        ++bytes;
    return __ockl_fprintf_append_string_n(message, text, bytes, last);
}

__device__ inline void check_failed(const char* file, unsigned line, const char* what)
{
    uint64_t message = append_text(__ockl_fprintf_stderr_begin(), "%s:%u: failed: %s\n", 0);
    message          = append_text(message, file, 0);
    message          = __ockl_fprintf_append_args(message, 1, line, 0, 0, 0, 0, 0, 0, 0);
    append_text(message, what, 1);
    __builtin_trap();
}
#define DEVICE_CHECK(what) ((what) ? void() : check_failed("host_calls.hip", __LINE__, #what))

#else

#undef NDEBUG // which leaves out assertions, and is among the flags of kernels
#include <cassert>

__device__ inline void* device_malloc(size_t bytes) { return malloc(bytes); }
__device__ inline void device_free(void* pointer) { free(pointer); }
#define DEVICE_CHECK(what) assert(what)

#endif

// Function and memory qualifiers of the HIP language, as the attributes clang gives them for `-x
// hip`.
#pragma once

#ifndef __HIP__
#error "these headers serve clang's HIP mode alone: compile with -x hip"
#endif

// hipcc's names for "this is a HIP compiler"; sources test them before using the language
// extensions.
#ifndef __HIPCC__
#define __HIPCC__ 1
#endif

// clang's own wrapper headers set this; sources ask it before declaring what the wrapper would have
// declared.
#define __CLANG_HIP_RUNTIME_WRAPPER_INCLUDED__ 1

#define __host__     __attribute__((host))
#define __device__   __attribute__((device))
#define __global__   __attribute__((global))
#define __shared__   __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __managed__  __attribute__((managed))

#define __forceinline__ inline __attribute__((always_inline))
// (__noinline__ is a keyword in clang's HIP mode; as a macro it would break libc++'s attribute
// spelling.)

// __launch_bounds__(threads) or (threads, waves): on AMD hardware the second number is the wanted
// count of waves per SIMD. It caps the registers the compiler may use, and so decides how much a
// kernel spills.
#define CKPM_BOUNDS_1(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define CKPM_BOUNDS_2(threads, waves) \
    __attribute__((amdgpu_flat_work_group_size(1, threads), amdgpu_waves_per_eu(waves)))
#define CKPM_BOUNDS_PICK(first, second, chosen, ...) chosen
#define __launch_bounds__(...) \
    CKPM_BOUNDS_PICK(__VA_ARGS__, CKPM_BOUNDS_2, CKPM_BOUNDS_1, )(__VA_ARGS__)

// Work-item ids, barriers, lane and bit functions, atomics and device memory functions, on clang's
// amdgcn builtins.
//
// A full ROCm takes these from a bitcode device library. Here each is one inline function, so no
// library is needed.
#pragma once

#include "hip/detail/qualifiers.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- where am I: x, y, z read like members, each access is a register read

#define CKPM_COORDINATE(type, get_x, get_y, get_z)                             \
    struct type                                                                \
    {                                                                          \
        __declspec(property(get = read_x)) uint32_t x;                         \
        __declspec(property(get = read_y)) uint32_t y;                         \
        __declspec(property(get = read_z)) uint32_t z;                         \
        __device__ __forceinline__ uint32_t read_x() const { return (get_x); } \
        __device__ __forceinline__ uint32_t read_y() const { return (get_y); } \
        __device__ __forceinline__ uint32_t read_z() const { return (get_z); } \
    }

// The hidden kernel arguments start with the three 32-bit block counts (code object version 5,
// AMDGPU backend guide).
__device__ __forceinline__ uint32_t ckpm_block_count(int axis)
{
    using word = const __attribute__((address_space(4))) uint32_t;
    return ((word*)__builtin_amdgcn_implicitarg_ptr())[axis];
}

CKPM_COORDINATE(ckpm_thread_index,
                __builtin_amdgcn_workitem_id_x(),
                __builtin_amdgcn_workitem_id_y(),
                __builtin_amdgcn_workitem_id_z());
CKPM_COORDINATE(ckpm_block_index,
                __builtin_amdgcn_workgroup_id_x(),
                __builtin_amdgcn_workgroup_id_y(),
                __builtin_amdgcn_workgroup_id_z());
CKPM_COORDINATE(ckpm_block_size,
                __builtin_amdgcn_workgroup_size_x(),
                __builtin_amdgcn_workgroup_size_y(),
                __builtin_amdgcn_workgroup_size_z());
CKPM_COORDINATE(ckpm_grid_size, ckpm_block_count(0), ckpm_block_count(1), ckpm_block_count(2));
#undef CKPM_COORDINATE

// Never defined: the accessors do not touch the object, so after inlining no reference is left.
extern const __device__ __attribute__((weak)) ckpm_thread_index threadIdx;
extern const __device__ __attribute__((weak)) ckpm_block_index blockIdx;
extern const __device__ __attribute__((weak)) ckpm_block_size blockDim;
extern const __device__ __attribute__((weak)) ckpm_grid_size gridDim;

// gfx9 runs waves of 64 lanes; host code sees the same constant.
static constexpr int warpSize = 64;

// ---- barriers and fences

__device__ __forceinline__ void __syncthreads()
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

__device__ __forceinline__ void __threadfence_block()
{
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup");
}
__device__ __forceinline__ void __threadfence()
{
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
}
__device__ __forceinline__ void __threadfence_system()
{
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "");
}

// ---- lanes

__device__ __forceinline__ unsigned int __lane_id()
{
    return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
}

__device__ __forceinline__ int __shfl(int value, int lane, int width = warpSize)
{
    const int self   = static_cast<int>(__lane_id());
    const int source = (lane & (width - 1)) + (self & ~(width - 1));
    return __builtin_amdgcn_ds_bpermute(source << 2, value);
}

__device__ __forceinline__ int __shfl_up(int value, unsigned int distance, int width = warpSize)
{
    const int self   = static_cast<int>(__lane_id());
    const int source = self - static_cast<int>(distance);
    return __builtin_amdgcn_ds_bpermute((source < (self & ~(width - 1)) ? self : source) << 2,
                                        value);
}

__device__ __forceinline__ int __shfl_down(int value, unsigned int distance, int width = warpSize)
{
    const int self   = static_cast<int>(__lane_id());
    const int source = self + static_cast<int>(distance);
    return __builtin_amdgcn_ds_bpermute((source > (self | (width - 1)) ? self : source) << 2,
                                        value);
}

__device__ __forceinline__ int __shfl_xor(int value, int mask, int width = warpSize)
{
    const int self   = static_cast<int>(__lane_id());
    const int source = self ^ mask;
    return __builtin_amdgcn_ds_bpermute((source > (self | (width - 1)) ? self : source) << 2,
                                        value);
}

__device__ __forceinline__ uint64_t __ballot(int predicate)
{
    return __builtin_amdgcn_uicmp(predicate, 0, 33);
}
__device__ __forceinline__ int __any(int predicate) { return __ballot(predicate) != 0; }
__device__ __forceinline__ int __all(int predicate) { return __ballot(!predicate) == 0; }

// ---- bits and integers

__device__ __forceinline__ int __clz(unsigned int x) { return x == 0 ? 32 : __builtin_clz(x); }
__device__ __forceinline__ int __popc(unsigned int x) { return __builtin_popcount(x); }
__device__ __forceinline__ unsigned int __brev(unsigned int x) { return __builtin_bitreverse32(x); }

__device__ __forceinline__ unsigned int __umulhi(unsigned int a, unsigned int b)
{
    return static_cast<unsigned int>((static_cast<uint64_t>(a) * b) >> 32);
}

__device__ __forceinline__ int __mulhi(int a, int b)
{
    return static_cast<int>((static_cast<int64_t>(a) * b) >> 32);
}

// ---- atomics: relaxed, device wide, like HIP's

// The type comes from the address alone, so that atomicAdd(unsigned*, 1) works as it does in HIP's
// overloads.
template <typename T>
struct ckpm_same
{
    using type = T;
};

template <typename T>
__device__ __forceinline__ T atomicAdd(T* address, typename ckpm_same<T>::type value)
{
    return __hip_atomic_fetch_add(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

template <typename T>
__device__ __forceinline__ T atomicMax(T* address, typename ckpm_same<T>::type value)
{
    return __hip_atomic_fetch_max(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

template <typename T>
__device__ __forceinline__ T atomicExch(T* address, typename ckpm_same<T>::type value)
{
    return __hip_atomic_exchange(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

template <typename T>
__device__ __forceinline__ T atomicCAS(T* address,
                                       typename ckpm_same<T>::type expected,
                                       typename ckpm_same<T>::type value)
{
    __hip_atomic_compare_exchange_strong(
        address, &expected, value, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    return expected;
}

// ---- memory functions

// The builtins, not loops over bytes: a byte loop keeps register arrays in scratch memory and LDS.
__device__ __forceinline__ void* memcpy(void* to, const void* from, size_t bytes)
{
    return __builtin_memcpy(to, from, bytes);
}

__device__ __forceinline__ void* memset(void* to, int value, size_t bytes)
{
    return __builtin_memset(to, value, bytes);
}

// ---- failure and output

extern "C" {

__device__ __forceinline__ void abort() { __builtin_trap(); }

// What assert() calls when it fails: stop the wave, which the runtime reports as a fault.
__device__ __attribute__((noreturn)) inline void __assert_fail(const char*,
                                                               const char*,
                                                               unsigned int,
                                                               const char*)
{
    __builtin_trap();
}

// Declared only: a kernel that really prints fails to link, by name, as printing needs the device
// library.
__device__ int printf(const char* format, ...);
}

// What programs ask the one device beside its properties, and settings that change nothing here.
#include "hip/hip_call.h"
#include "isa/arch.h"
#include "memory/memory.h"
#include "run/options.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace emu {
namespace {

constexpr int64_t MOST = INT32_MAX; // an attribute is an int
// Four SIMDs of 512 rows of 64 (CDNA3 ISA document, "Vector registers").
constexpr int64_t REGISTERS_OF_A_CU = 4 * 512 * 64;

void check_device(int device)
{
    require(device == 0, hipErrorInvalidDevice, "there is one emulated device, number 0");
}

void check_peer(int device, int peer)
{
    check_device(device);
    require(peer == 0, hipErrorInvalidDevice, "there is one emulated device, number 0");
}

// By the numbers of hipDeviceAttribute_t since HIP 5.
std::map<int, int64_t> attributes()
{
    const Arch& arch                   = current_arch();
    const std::map<int, int64_t> fixed = {
        {3, 1}, // host memory can be mapped
        {4, 1}, // at the same address
        {5, arch.clock_khz},
        {6, 0},  // compute mode: default
        {7, 0},  // no preemption
        {8, 1},  // concurrent kernels
        {9, 1},  // concurrent managed access
        {10, 0}, // no cooperative launch
        {11, 0}, // nor on many devices
        {13, 1}, // managed memory is read by the host in its place
        {15, 1}, // host atomics
        {16, 0}, // no integrated GPU
        {17, 0}, // no board of several
        {18, 0}, // no time limit
        {19, 4 << 20},
        {23, arch.major},
        {24, 1}, // managed memory
        {25, 32},
        {26, 1024},
        {27, 1024},
        {28, 1024},
        {29, MOST},
        {30, 65536},
        {31, 65536},
        {55, 1024},
        {56, 1024},
        {57, 2048},
        {58, MOST},
        {59, 8192}, // bits of HBM
        {60, 1300000},
        {61, arch.minor},
        {62, 0},
        {63, options().cu_count},
        {65, 0}, // pageable memory is not the device's
        {66, 0},
        {67, 0},
        {68, 0},
        {69, 0},
        {70, 0},
        {71, 65536},
        {72, REGISTERS_OF_A_CU},
        {73, 0},
        {74, arch.lds_bytes},
        {75, arch.lds_bytes},
        {76, arch.lds_bytes},
        {78, 1},
        {83, MOST},
        {84, std::min<int64_t>(MOST, static_cast<int64_t>(capacity()))},
        {85, 1},
        {87, 64},
        {88, 0}, // no memory pools
        {89, 0}, // no virtual memory management
        {90, 1}, // hipHostRegister
        {10000, 100000},
        {10002, arch.lds_bytes},
    };
    return fixed;
}

} // namespace
} // namespace emu

using emu::hip_call;
using emu::Needs;
using emu::require;

HIP_API hipError_t hipDeviceGetAttribute(int* value, int attribute, int device)
{
    return hip_call("hipDeviceGetAttribute", Needs::Nothing, [&] {
        require(value, hipErrorInvalidValue, "null pointer");
        emu::check_device(device);
        const auto all   = emu::attributes();
        const auto found = all.find(attribute);
        if(found == all.end())
            throw emu::HipFailure(hipErrorInvalidValue,
                                  "attribute " + std::to_string(attribute) + " is unknown");
        *value = static_cast<int>(found->second);
    });
}

HIP_API hipError_t hipDeviceTotalMem(size_t* bytes, int device)
{
    return hip_call("hipDeviceTotalMem", Needs::Nothing, [&] {
        require(bytes, hipErrorInvalidValue, "null pointer");
        emu::check_device(device);
        *bytes = emu::capacity();
    });
}

HIP_API hipError_t hipDeviceComputeCapability(int* major, int* minor, int device)
{
    return hip_call("hipDeviceComputeCapability", Needs::Nothing, [&] {
        require(major && minor, hipErrorInvalidValue, "null pointer");
        emu::check_device(device);
        *major = emu::current_arch().major;
        *minor = emu::current_arch().minor;
    });
}

HIP_API hipError_t hipDeviceGetPCIBusId(char* text, int bytes, int device)
{
    return hip_call("hipDeviceGetPCIBusId", Needs::Nothing, [&] {
        require(text && bytes > 0, hipErrorInvalidValue, "no room for the id");
        emu::check_device(device);
        std::snprintf(text, static_cast<size_t>(bytes), "0000:00:00.0");
    });
}

HIP_API hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer)
{
    return hip_call("hipDeviceCanAccessPeer", Needs::Nothing, [&] {
        require(can, hipErrorInvalidValue, "null pointer");
        emu::check_peer(device, peer);
        *can = 0; // a device is no peer of itself
    });
}

static hipError_t no_peer(const char* function)
{
    return hip_call(function, Needs::Device, [] {
        throw emu::HipFailure(hipErrorInvalidDevice, "there is no other device");
    });
}

HIP_API hipError_t hipDeviceEnablePeerAccess(int, unsigned int)
{
    return no_peer("hipDeviceEnablePeerAccess");
}

HIP_API hipError_t hipDeviceDisablePeerAccess(int) { return no_peer("hipDeviceDisablePeerAccess"); }

HIP_API hipError_t hipGetDeviceFlags(unsigned int* flags)
{
    return hip_call("hipGetDeviceFlags", Needs::Nothing, [&] {
        require(flags, hipErrorInvalidValue, "null pointer");
        *flags = 0;
    });
}

HIP_API hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest)
{
    return hip_call("hipDeviceGetStreamPriorityRange", Needs::Nothing, [&] {
        if(least)
            *least = 1;
        if(greatest)
            *greatest = -1;
    });
}

// How a host thread waits, and how caches are shared out: hints that decide nothing here.
static hipError_t hint(const char* function)
{
    return hip_call(function, Needs::Nothing, [] {});
}

HIP_API hipError_t hipSetDeviceFlags(unsigned int) { return hint("hipSetDeviceFlags"); }
HIP_API hipError_t hipDeviceSetCacheConfig(int) { return hint("hipDeviceSetCacheConfig"); }
HIP_API hipError_t hipFuncSetCacheConfig(const void*, int) { return hint("hipFuncSetCacheConfig"); }

HIP_API hipError_t hipDeviceGetCacheConfig(int* configuration)
{
    return hip_call("hipDeviceGetCacheConfig", Needs::Nothing, [&] {
        require(configuration, hipErrorInvalidValue, "null pointer");
        *configuration = 0;
    });
}

// Stack, printf buffer and heap of a kernel: taken as they are, and what is not enough is a fault.
HIP_API hipError_t hipDeviceSetLimit(int limit, size_t)
{
    return hip_call("hipDeviceSetLimit", Needs::Nothing, [&] {
        require(limit >= 0 && limit <= 2, hipErrorInvalidValue, "no such limit");
    });
}

HIP_API hipError_t hipDeviceGetLimit(size_t* value, int limit)
{
    return hip_call("hipDeviceGetLimit", Needs::Nothing, [&] {
        require(value && limit >= 0 && limit <= 2, hipErrorInvalidValue, "no such limit");
        const size_t limits[] = {16384, 1 << 20, 8 << 20}; // ROCm's defaults
        *value                = limits[limit];
    });
}

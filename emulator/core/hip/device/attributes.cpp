// What programs ask the one device beside its properties, and settings that change nothing here.
#include "hip/call.h"
#include "hip/device/properties.h"
#include "hip/launch/launch.h"
#include "isa/arch.h"
#include "memory/memory.h"
#include "run/options.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <optional>

namespace emu {
namespace {
constexpr int64_t MOST = INT32_MAX; // an attribute is an int
// Four SIMDs of 512 rows of 64 (CDNA3 ISA document, "Vector registers").
constexpr int64_t REGISTERS_OF_A_CU = 4 * 512 * 64;

struct Attribute
{
    int number; // of hipDeviceAttribute_t since HIP 5
    int64_t value;
};

// The same on every board that is emulated. None has images: no textures and no surfaces.
constexpr Attribute COMMON[] = {
    {0, 0},                  // error correction
    {1, 0},                  // bytes of L2 that a stream can ask for
    {2, 1},                  // copies beside a kernel
    {3, 1},                  // host memory can be mapped
    {4, 1},                  // at its own address
    {6, 0},                  // compute mode
    {7, 0},                  // preemption
    {8, 1},                  // concurrent kernels
    {9, 1},                  // managed memory while kernels run
    {10, 1},                 // cooperative launch
    {11, 0},                 // on several devices
    {12, 1},                 // copies overlap with kernels
    {13, 1},                 // managed memory from the host
    {14, 1},                 // L1 for global memory
    {15, 1},                 // atomics on host memory
    {16, 0},                 // integrated
    {17, 0},                 // several on one board
    {18, 0},                 // time limit
    {19, 4 << 20},           // bytes of L2
    {20, 1},                 // L1 for local memory
    {22, 0},                 // Windows' number of the board
    {24, 1},                 // managed memory
    {25, 32},                // workgroups on a compute unit
    {26, 1024},              // workgroup: x
    {27, 1024},              // y
    {28, 1024},              // z
    {29, MOST},              // grid: x
    {30, 65536},             // y
    {31, 65536},             // z
    {32, 0},                 // surface
    {39, 0},                 // texture: 1D
    {41, 0},                 // linear
    {42, 0},                 // mipmap
    {43, 0},                 // 2D: width
    {44, 0},                 // height
    {49, 0},                 // 3D: width
    {50, 0},                 // height
    {51, 0},                 // depth
    {53, 0},                 // cubemap
    {55, 1024},              // largest dimension of a workgroup
    {56, 1024},              // its threads
    {57, 2048},              // threads on a compute unit
    {58, MOST},              // pitch
    {59, 8192},              // bits of the memory bus
    {60, 1300000},           // kHz of memory
    {62, 0},                 // group of the board
    {65, 0},                 // pageable memory
    {66, 0},                 // by the host's page tables
    {67, 0},                 // PCI bus
    {68, 0},                 // PCI device
    {69, 0},                 // PCI domain
    {70, 0},                 // L2 that can be reserved
    {71, 65536},             // registers of a workgroup
    {72, REGISTERS_OF_A_CU}, // registers of a compute unit
    {73, 0},                 // LDS that is reserved
    {78, 1},                 // stream priorities
    {79, 256},               // alignment of surfaces
    {81, 256},               // of textures
    {82, 256},               // of their rows
    {83, MOST},              // constant memory
    {85, 1},                 // unified addresses
    {87, 64},                // threads of a wave
    {88, 1},                 // memory pools
    {89, 0},                 // virtual memory management
    {90, 1},                 // hipHostRegister
    {91, 0},                 // handles of memory pools for other processes
    {10000, 100000},         // kHz of the clock that kernels read
    {10007, 0},              // cooperative launches on several devices: other functions,
    {10008, 0},              // other grids,
    {10009, 0},              // other blocks,
    {10010, 0},              // other LDS
    {10011, 1},              // the host reaches all memory
    {10012, 0},              // revision of the chip
    {10013, 0},              // hipStreamWaitValue for what a later call writes
    {10014, 0},              // images
    {10016, 1},              // fine-grained memory
    {10017, 100000},         // kHz of wall_clock64()
};

std::optional<int64_t> attribute_of(int number)
{
    for(const Attribute& one : COMMON)
        if(one.number == number)
            return one.value;
    const Arch& arch = current_arch();
    switch(number)
    {
        case 5: return arch.clock_khz;
        case 23: return arch.major;
        case 61: return arch.minor;
        case 63:
        case 10015: return options().cu_count;
        case 74: // of a workgroup, as it is and at most
        case 75:
        case 76: // of a compute unit
        case 10002: return arch.lds_bytes;
        case 84: return std::min<int64_t>(MOST, static_cast<int64_t>(capacity()));
        default: return std::nullopt;
    }
}

// A field of hipDeviceProp_tR0600 that holds the value of an attribute.
struct Property
{
    unsigned offset, bytes;
    int attribute;
};

constexpr Property PROPERTIES[] = {
    {280, 4, 22},     // luidDeviceNodeMask
    {296, 8, 74},     // sharedMemPerBlock
    {304, 4, 71},     // regsPerBlock
    {308, 4, 87},     // warpSize
    {312, 8, 58},     // memPitch
    {320, 4, 56},     // maxThreadsPerBlock
    {324, 4, 26},     // maxThreadsDim[0]
    {328, 4, 27},     // maxThreadsDim[1]
    {332, 4, 28},     // maxThreadsDim[2]
    {336, 4, 29},     // maxGridSize[0]
    {340, 4, 30},     // maxGridSize[1]
    {344, 4, 31},     // maxGridSize[2]
    {348, 4, 5},      // clockRate
    {352, 8, 83},     // totalConstMem
    {360, 4, 23},     // major
    {364, 4, 61},     // minor
    {368, 8, 81},     // textureAlignment
    {376, 8, 82},     // texturePitchAlignment
    {384, 4, 12},     // deviceOverlap
    {388, 4, 63},     // multiProcessorCount
    {392, 4, 18},     // kernelExecTimeoutEnabled
    {396, 4, 16},     // integrated
    {400, 4, 3},      // canMapHostMemory
    {404, 4, 6},      // computeMode
    {568, 8, 79},     // surfaceAlignment
    {576, 4, 8},      // concurrentKernels
    {580, 4, 0},      // ECCEnabled
    {584, 4, 67},     // pciBusID
    {588, 4, 68},     // pciDeviceID
    {592, 4, 69},     // pciDomainID
    {600, 4, 2},      // asyncEngineCount
    {604, 4, 85},     // unifiedAddressing
    {608, 4, 60},     // memoryClockRate
    {612, 4, 59},     // memoryBusWidth
    {616, 4, 19},     // l2CacheSize
    {620, 4, 70},     // persistingL2CacheMaxSize
    {624, 4, 57},     // maxThreadsPerMultiProcessor
    {628, 4, 78},     // streamPrioritiesSupported
    {632, 4, 14},     // globalL1CacheSupported
    {636, 4, 20},     // localL1CacheSupported
    {640, 8, 76},     // sharedMemPerMultiprocessor
    {648, 4, 72},     // regsPerMultiprocessor
    {652, 4, 24},     // managedMemory
    {656, 4, 17},     // isMultiGpuBoard
    {660, 4, 62},     // multiGpuBoardGroupID
    {664, 4, 15},     // hostNativeAtomicSupported
    {672, 4, 65},     // pageableMemoryAccess
    {676, 4, 9},      // concurrentManagedAccess
    {680, 4, 7},      // computePreemptionSupported
    {684, 4, 4},      // canUseHostPointerForRegisteredMem
    {688, 4, 10},     // cooperativeLaunch
    {692, 4, 11},     // cooperativeMultiDeviceLaunch
    {696, 8, 75},     // sharedMemPerBlockOptin
    {704, 4, 66},     // pageableMemoryAccessUsesHostPageTables
    {708, 4, 13},     // directManagedMemAccessFromHost
    {712, 4, 25},     // maxBlocksPerMultiProcessor
    {716, 4, 1},      // accessPolicyMaxWindowSize
    {720, 8, 73},     // reservedSharedMemPerBlock
    {728, 4, 90},     // hostRegisterSupported
    {744, 4, 88},     // memoryPoolsSupported
    {760, 4, 91},     // memoryPoolSupportedHandleTypes
    {1416, 8, 10002}, // maxSharedMemoryPerMultiProcessor
    {1424, 4, 10000}, // clockInstructionRate
    {1464, 4, 10011}, // isLargeBar
    {1468, 4, 10012}, // asicRevision
};
} // namespace

void fill_properties(hipDeviceProp_tR0600& properties)
{
    for(const Property& property : PROPERTIES)
    {
        const int64_t value = *attribute_of(property.attribute);
        std::memcpy(reinterpret_cast<char*>(&properties) + property.offset, &value, property.bytes);
    }
}
} // namespace emu

HIP_API hipError_t hipDeviceGetAttribute(int* value, int attribute, int device)
{
    return hip_call("hipDeviceGetAttribute", Needs::Nothing, [&] {
        require(value, hipErrorInvalidValue, "null pointer");
        emu::check_device(device);
        const std::optional<int64_t> found = emu::attribute_of(attribute);
        if(!found)
            throw emu::HipFailure(hipErrorInvalidValue, "attribute " + std::to_string(attribute) + " is unknown");
        *value = static_cast<int>(*found);
    });
}

HIP_API hipError_t hipDeviceTotalMem(size_t* bytes, int device)
{
    return hip_value("hipDeviceTotalMem", Needs::Nothing, bytes, [&] {
        emu::check_device(device);
        return emu::capacity();
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
        emu::check_device(device);
        emu::check_device(peer);
        *can = 0; // a device is not a peer of itself
    });
}

static hipError_t no_peer(const char* function)
{
    return hip_call(function, Needs::Device,
                    [] { throw emu::HipFailure(hipErrorInvalidDevice, "the process has one device only"); });
}

HIP_API hipError_t hipDeviceEnablePeerAccess(int, unsigned int) { return no_peer("hipDeviceEnablePeerAccess"); }

HIP_API hipError_t hipDeviceDisablePeerAccess(int) { return no_peer("hipDeviceDisablePeerAccess"); }

HIP_API hipError_t hipGetDeviceFlags(unsigned int* flags)
{
    return hip_value("hipGetDeviceFlags", Needs::Nothing, flags, [&] { return 0; });
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
    return hip_value("hipDeviceGetCacheConfig", Needs::Nothing, configuration, [&] { return 0; });
}

// Of a kernel: the stack whose depth the compiler doesn't know, and the printf buffer and the heap,
// which are as large as needed here.
static std::atomic<size_t> limits[] = {16384, 1 << 20, 8 << 20};
constexpr int STACK                 = 0; // hipLimitStackSize
// ROCm's: the most that a wave's share of a queue's scratch can be.
constexpr size_t LARGEST_STACK = (128 << 10) - 16, STACK_UNIT = 16;

uint32_t emu::stack_limit() { return static_cast<uint32_t>(limits[STACK]); }

HIP_API hipError_t hipDeviceSetLimit(int limit, size_t value)
{
    return hip_call("hipDeviceSetLimit", Needs::Nothing, [&] {
        require(limit >= 0 && limit <= 2, hipErrorInvalidValue, "no such limit");
        require(limit != STACK || value <= LARGEST_STACK, hipErrorInvalidValue, "a stack has at most 131,056 bytes");
        limits[limit] = limit == STACK ? (value + STACK_UNIT - 1) / STACK_UNIT * STACK_UNIT : value;
    });
}

HIP_API hipError_t hipDeviceGetLimit(size_t* value, int limit)
{
    return hip_call("hipDeviceGetLimit", Needs::Nothing, [&] {
        require(value && limit >= 0 && limit <= 2, hipErrorInvalidValue, "no such limit");
        *value = limits[limit];
    });
}

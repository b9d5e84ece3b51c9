// The device and its properties.
#include "hip/call.h"
#include "hip/device/properties.h"
#include "hip/graph/capture.h"
#include "isa/arch.h"
#include "run/options.h"

#include <cstring>

struct hipUUID;
HIP_API hipError_t hipDeviceGetUuid(hipUUID* uuid, int device);

namespace emu {
namespace {
constexpr uint64_t GIB = 1ull << 30;

const Arch ARCHS[] = {
    {910, "gfx90a", "gfx90a:sramecc+:xnack-", "AMD Instinct MI250X", 0x3f, 9, 0, 110, 64 * GIB, 65536, 1700000},
    {942, "gfx942", "gfx942:sramecc+:xnack-", "AMD Instinct MI300X", 0x4c, 9, 4, 304, 192 * GIB, 65536, 2100000},
    {950, "gfx950", "gfx950:sramecc+:xnack-", "AMD Instinct MI350X", 0x4f, 9, 5, 256, 288 * GIB, 163840, 2200000},
};
} // namespace

const Arch* find_arch(int64_t number)
{
    for(const Arch& arch : ARCHS)
        if(arch.number == number)
            return &arch;
    return nullptr;
}

const Arch* find_elf_arch(uint32_t elf_machine)
{
    for(const Arch& arch : ARCHS)
        if(arch.elf_machine == elf_machine)
            return &arch;
    return nullptr;
}

const Arch& current_arch()
{
    const Arch* arch = find_arch(options().arch);
    return arch ? *arch : ARCHS[2];
}
} // namespace emu

HIP_API hipError_t hipInit(unsigned int flags)
{
    return hip_call("hipInit", Needs::Nothing, [&] { require(flags == 0, hipErrorInvalidValue, "flags must be 0"); });
}

static hipError_t version_call(const char* name, int* version)
{
    return hip_call(name, Needs::Nothing, [&] {
        require(version, hipErrorInvalidValue, "null pointer");
        *version = 70100000; // 7.1: whose struct layouts these are
    });
}

HIP_API hipError_t hipRuntimeGetVersion(int* version) { return version_call("hipRuntimeGetVersion", version); }
HIP_API hipError_t hipDriverGetVersion(int* version) { return version_call("hipDriverGetVersion", version); }

HIP_API hipError_t hipGetDeviceCount(int* count)
{
    return hip_call("hipGetDeviceCount", Needs::Nothing, [&] {
        require(count, hipErrorInvalidValue, "null pointer");
        *count = emu::device_is_hidden() ? 0 : 1;
        require(*count, hipErrorNoDevice, "HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES hides device 0");
    });
}

HIP_API hipError_t hipGetDevice(int* device)
{
    return hip_value("hipGetDevice", Needs::Nothing, device, [&] { return 0; });
}

HIP_API hipError_t hipSetDevice(int device)
{
    return hip_call("hipSetDevice", Needs::Nothing, [&] { emu::check_device(device); });
}

HIP_API hipError_t hipDeviceGet(int* device, int ordinal)
{
    return hip_value("hipDeviceGet", Needs::Nothing, device, [&] {
        emu::check_device(ordinal);
        return 0;
    });
}

HIP_API hipError_t hipDeviceGetName(char* name, int bytes, int device)
{
    return hip_call("hipDeviceGetName", Needs::Nothing, [&] {
        require(name && bytes > 0, hipErrorInvalidValue, "no room for the name");
        emu::check_device(device);
        std::strncpy(name, emu::current_arch().board, static_cast<size_t>(bytes));
        name[bytes - 1] = '\0';
    });
}

// hipDeviceArch_t: all but __funnelshift(), __syncthreads_count() and the like, surfaces, and
// launches by kernels.
static constexpr unsigned ARCH_BITS = 0x97ff;

HIP_API hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* properties, int device)
{
    return hip_call("hipGetDevicePropertiesR0600", Needs::Nothing, [&] {
        require(properties, hipErrorInvalidValue, "null pointer");
        emu::check_device(device);
        const emu::Arch& arch = emu::current_arch();
        *properties           = {};
        std::strncpy(properties->name, arch.board, sizeof properties->name - 1);
        std::strncpy(properties->gcnArchName, arch.full_name, sizeof properties->gcnArchName - 1);
        properties->totalGlobalMem = emu::capacity();
        properties->arch           = ARCH_BITS;
        emu::fill_properties(*properties);
        (void)hipDeviceGetUuid(reinterpret_cast<hipUUID*>(properties->uuid), device);
    });
}

// The struct of before HIP 6.0, whose unversioned name the library still exports. No program here
// is compiled for it.
HIP_API hipError_t hipGetDeviceProperties(void*, int)
{
    return hip_call("hipGetDeviceProperties", Needs::Nothing, [] {
        throw emu::HipFailure(hipErrorNotSupported, "the struct of HIP 5: compile with HIP 6 or newer");
    });
}

HIP_API hipError_t hipDeviceSynchronize(void)
{
    return hip_call("hipDeviceSynchronize", Needs::Device, [] {
        emu::refuse_any_capture();
        std::lock_guard lock(emu::device_mutex());
    });
}

// All memory of the process is gone, and a fault forgotten. Registered libraries stay.
HIP_API hipError_t hipDeviceReset(void)
{
    return hip_call("hipDeviceReset", Needs::Nothing, [] {
        emu::wait_for_device();
        std::lock_guard lock(emu::device_mutex());
        emu::release_all();
        emu::clear_fault();
    });
}

// Contexts, which mean the one device (ROCm's clr, hip_context.cpp), and calls that change nothing
// here: banks of LDS, profilers.
#include "hip/call.h"
#include "isa/arch.h"
#include "run/options.h"

#include <cstdio>
#include <cstring>

struct ihipCtx_t
{};
typedef ihipCtx_t* hipCtx_t;
struct hipUUID
{
    char bytes[16];
};

namespace emu {
namespace {
ihipCtx_t only_context;
// Contexts that this thread has pushed.
thread_local unsigned pushed = 0;

constexpr int BANKS_OF_FOUR_BYTES = 1; // hipSharedMemBankSizeFourByte
} // namespace
} // namespace emu

HIP_API hipError_t hipDeviceGetUuid(hipUUID* uuid, int device)
{
    return hip_call("hipDeviceGetUuid", Needs::Nothing, [&] {
        require(uuid, hipErrorInvalidValue, "null pointer");
        emu::check_device(device);
        // 16 hexadecimal digits, as ROCm has them.
        char text[sizeof uuid->bytes + 1];
        std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(emu::options().arch));
        std::memcpy(uuid->bytes, text, sizeof uuid->bytes);
    });
}

HIP_API hipError_t hipDevicePrimaryCtxRetain(hipCtx_t* context, int device)
{
    return hip_value("hipDevicePrimaryCtxRetain", Needs::Nothing, context, [&] {
        emu::check_device(device);
        return &emu::only_context;
    });
}

static hipError_t of_device(const char* function, int device)
{
    return hip_call(function, Needs::Nothing, [&] { emu::check_device(device); });
}

HIP_API hipError_t hipDevicePrimaryCtxRelease(int device) { return of_device("hipDevicePrimaryCtxRelease", device); }
HIP_API hipError_t hipDevicePrimaryCtxReset(int device) { return of_device("hipDevicePrimaryCtxReset", device); }

HIP_API hipError_t hipDevicePrimaryCtxSetFlags(int device, unsigned)
{
    return hip_call("hipDevicePrimaryCtxSetFlags", Needs::Nothing, [&] {
        emu::check_device(device);
        throw emu::HipFailure(hipErrorContextAlreadyInUse, "the device is in use: its flags stay");
    });
}

HIP_API hipError_t hipDevicePrimaryCtxGetState(int device, unsigned* flags, int* active)
{
    return hip_call("hipDevicePrimaryCtxGetState", Needs::Nothing, [&] {
        emu::check_device(device);
        if(flags)
            *flags = 0;
        if(active)
            *active = 1;
    });
}

HIP_API hipError_t hipCtxCreate(hipCtx_t* context, unsigned, int device)
{
    return hip_value("hipCtxCreate", Needs::Nothing, context, [&] {
        require(device == 0, hipErrorInvalidValue, "there is one emulated device, number 0");
        ++emu::pushed;
        return &emu::only_context;
    });
}

static void pop()
{
    if(emu::pushed != 0)
        --emu::pushed;
}

HIP_API hipError_t hipCtxDestroy(hipCtx_t context)
{
    return hip_call("hipCtxDestroy", Needs::Nothing, [&] {
        require(context == &emu::only_context, hipErrorInvalidValue, "no context");
        pop();
    });
}

HIP_API hipError_t hipCtxSetCurrent(hipCtx_t context)
{
    return hip_call("hipCtxSetCurrent", Needs::Nothing, [&] {
        require(!context || context == &emu::only_context, hipErrorInvalidContext, "no context");
        pop();
        emu::pushed += context != nullptr;
    });
}

HIP_API hipError_t hipCtxPushCurrent(hipCtx_t context)
{
    return hip_call("hipCtxPushCurrent", Needs::Nothing, [&] {
        require(context == &emu::only_context, hipErrorInvalidContext, "no context");
        ++emu::pushed;
    });
}

HIP_API hipError_t hipCtxPopCurrent(hipCtx_t* context)
{
    return hip_call("hipCtxPopCurrent", Needs::Nothing, [&] {
        require(emu::pushed != 0, hipErrorInvalidContext, "this thread has pushed no context");
        pop();
        if(context)
            *context = &emu::only_context;
    });
}

HIP_API hipError_t hipCtxGetCurrent(hipCtx_t* context)
{
    return hip_value("hipCtxGetCurrent", Needs::Nothing, context, [] { return &emu::only_context; });
}

HIP_API hipError_t hipCtxGetDevice(int* device)
{
    return hip_value("hipCtxGetDevice", Needs::Nothing, device, [] { return 0; });
}

#define BANKS(name)                                                                             \
    HIP_API hipError_t name(int* size)                                                          \
    {                                                                                           \
        return hip_value(#name, Needs::Nothing, size, [] { return emu::BANKS_OF_FOUR_BYTES; }); \
    }
BANKS(hipDeviceGetSharedMemConfig)
BANKS(hipCtxGetSharedMemConfig)

#define HINT(name, ...)                                \
    HIP_API hipError_t name(__VA_ARGS__)               \
    {                                                  \
        return hip_call(#name, Needs::Nothing, [] {}); \
    }
HINT(hipDeviceSetSharedMemConfig, int)
HINT(hipFuncSetSharedMemConfig, const void*, int)
HINT(hipProfilerStart)
HINT(hipProfilerStop)

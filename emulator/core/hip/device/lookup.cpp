// Looking up: functions of the runtime by name, kernels by their stub, the device by its bus; what
// a kernel or a pointer is like, one attribute at a time.
#include "hip/call.h"
#include "hip/launch/launch.h"
#include "memory/memory.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>

HIP_API const char* hipGetErrorName(hipError_t error);
HIP_API const char* hipGetErrorString(hipError_t error);

namespace emu {
namespace {
// A function of this library, of all that the process has loaded. Null if there is none.
void* own_function(const std::string& name)
{
    Dl_info info;
    if(!dladdr(reinterpret_cast<const void*>(&hipGetErrorName), &info))
        return nullptr;
    void* const self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if(!self)
        return nullptr;
    void* const found = dlsym(self, name.c_str());
    dlclose(self);
    return found;
}

enum FunctionAttribute : int // hipFunction_attribute
{
    MAX_THREADS   = 0,
    LDS_BYTES     = 1,
    CONST_BYTES   = 2,
    SCRATCH_BYTES = 3,
    REGISTERS     = 4,
};

int function_attribute(const Kernel& kernel, int attribute)
{
    switch(attribute)
    {
        case MAX_THREADS: return static_cast<int>(kernel.max_workgroup);
        case LDS_BYTES: return static_cast<int>(kernel.lds_bytes);
        case CONST_BYTES: return 0;
        case SCRATCH_BYTES: return static_cast<int>(kernel.scratch_bytes);
        case REGISTERS: return static_cast<int>(registers_of(kernel));
        default: throw HipFailure(hipErrorInvalidValue, "no such attribute of a function");
    }
}
} // namespace
} // namespace emu

HIP_API hipError_t hipGetProcAddress(const char* symbol, void** function, int version, uint64_t flags, int* status)
{
    constexpr int NEW_STRUCTS = 600, FOUND = 0, NOT_FOUND = 1;
    constexpr uint64_t PER_THREAD = 2; // HIP_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
    return hip_call("hipGetProcAddress", Needs::Nothing, [&] {
        require(symbol && *symbol && function, hipErrorInvalidValue, "no name, or a null pointer");
        std::string name = symbol;
        if(version >= NEW_STRUCTS && (name == "hipGetDeviceProperties" || name == "hipChooseDevice"))
            name += "R0600";
        *function = flags == PER_THREAD ? emu::own_function(name + "_spt") : nullptr;
        if(!*function)
            *function = emu::own_function(name);
        if(status)
            *status = *function ? FOUND : NOT_FOUND;
        require(*function, hipErrorInvalidValue, "the runtime has no such function");
    });
}

HIP_API hipError_t hipGetFuncBySymbol(hipFunction_t* function, const void* symbol)
{
    return hip_call("hipGetFuncBySymbol", Needs::Device, [&] {
        require(function && symbol, hipErrorInvalidValue, "null pointer");
        *function = emu::function_of(emu::registered_kernel(symbol));
    });
}

HIP_API hipError_t hipFuncGetAttribute(int* value, int attribute, hipFunction_t function)
{
    return hip_value("hipFuncGetAttribute", Needs::Device, value,
                     [&] { return emu::function_attribute(emu::module_kernel(function), attribute); });
}

HIP_API hipError_t hipDeviceGetByPCIBusId(int* device, const char* text)
{
    return hip_call("hipDeviceGetByPCIBusId", Needs::Nothing, [&] {
        require(device && text, hipErrorInvalidValue, "null pointer");
        require(std::strcmp(text, "0000:00:00.0") == 0, hipErrorInvalidDevice,
                "the emulated device is at 0000:00:00.0");
        *device = 0;
    });
}

HIP_API hipError_t hipMemPtrGetInfo(void* pointer, size_t* bytes)
{
    return hip_call("hipMemPtrGetInfo", Needs::Device, [&] {
        emu::Allocation found;
        require(pointer && bytes && emu::find_allocation(reinterpret_cast<uint64_t>(pointer), &found),
                hipErrorInvalidValue, "not in an allocation");
        *bytes = found.bytes;
    });
}

static hipError_t text_of(const char* function, hipError_t error, const char** text, const char* (*of)(hipError_t))
{
    return hip_call(function, Needs::Nothing, [&] {
        require(text, hipErrorInvalidValue, "null pointer");
        *text = of(error);
    });
}

HIP_API hipError_t hipDrvGetErrorName(hipError_t error, const char** text)
{
    return text_of("hipDrvGetErrorName", error, text, hipGetErrorName);
}

HIP_API hipError_t hipDrvGetErrorString(hipError_t error, const char** text)
{
    return text_of("hipDrvGetErrorString", error, text, hipGetErrorString);
}

// What clang compiles a HIP program to: registration of fat binaries, kernels and variables, and
// kernel<<<..>>>().
#include "hip/call.h"
#include "hip/graph/capture.h"
#include "hip/launch/launch.h"
#include "hip/launch/stream.h"
#include "hip/memory/memory.h"
#include "hip/module/modules.h"

#include <cstring>
#include <dlfcn.h>
#include <map>
#include <vector>

namespace emu {
namespace {
// What __hipRegisterFatBinary is given (clang's CGCUDANV.cpp, "struct __fatBinC_Wrapper").
struct FatBinary
{
    uint32_t magic, version;
    const void* image;
    void* unused;
};
constexpr uint32_t FAT_BINARY_MAGIC = 0x48495046; // "HIPF"

struct Registered
{
    Module* module;
    std::string name;
    size_t bytes; // of a variable
};

struct Registry
{
    std::recursive_mutex mutex;
    // By the host's address of the stub or shadow.
    std::map<const void*, Registered> functions, variables;
};

Registry& registry()
{
    static Registry& only = *new Registry;
    return only;
}

struct Configuration
{
    dim3 grid, block;
    size_t lds_bytes;
    hipStream_t stream;
};
thread_local std::vector<Configuration> configurations;

std::string file_of(const void* address)
{
    Dl_info info;
    return dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

Registered find_registered(const std::map<const void*, Registered>& all, const void* key, hipError_t error)
{
    std::lock_guard lock(registry().mutex);
    const auto found = all.find(key);
    require(found != all.end(), error, "no loaded library registered it");
    return found->second;
}

unsigned char* symbol_range(const void* symbol, size_t bytes, size_t offset)
{
    const Registered found = find_registered(registry().variables, symbol, hipErrorInvalidSymbol);
    const Symbol& variable = variable_of(*found.module, found.name);
    if(offset > variable.bytes || bytes > variable.bytes - offset)
        fail_with_memory(std::string(current_function()) + ": ",
                         std::to_string(bytes) + " bytes from byte " + std::to_string(offset) + " of the variable " +
                             found.name + ", which has " + std::to_string(variable.bytes));
    return reinterpret_cast<unsigned char*>(variable.address) + offset;
}

Module* module_of(void** handle) { return reinterpret_cast<Module*>(handle); }
} // namespace

const Kernel& registered_kernel(const void* function)
{
    const Registered found = find_registered(registry().functions, function, hipErrorInvalidDeviceFunction);
    return kernel_of(*found.module, found.name);
}
} // namespace emu

// Never fails: a library with code for other archs can still be loaded and queried. Launching
// reports what is wrong.
HIP_API void** __hipRegisterFatBinary(const void* data)
{
    try
    {
        emu::FatBinary wrapper                = {};
        const bool ours                       = data && emu::copy_readable(data, &wrapper, sizeof wrapper) &&
                                                wrapper.magic == emu::FAT_BINARY_MAGIC && wrapper.image;
        static const unsigned char nothing[1] = {0};
        emu::Module& module = ours ? emu::add_module_at(wrapper.image, false, emu::file_of(data))
                                   : emu::add_module(nothing, 0, false, data ? emu::file_of(data) : "");
        return reinterpret_cast<void**>(&module);
    }
    catch(const std::exception& failure)
    {
        emu::set_last_error(std::string("__hipRegisterFatBinary: ") + failure.what());
        return nullptr;
    }
}

HIP_API void __hipUnregisterFatBinary(void** handle)
{
    hip_call("__hipUnregisterFatBinary", Needs::Nothing, [&] {
        emu::Module* module = emu::module_of(handle);
        if(!module || !emu::is_module(module))
            return; // clang's destructor may call twice
        std::lock_guard lock(emu::device_mutex());
        std::lock_guard guard(emu::registry().mutex);
        std::erase_if(emu::registry().functions, [&](const auto& entry) { return entry.second.module == module; });
        std::erase_if(emu::registry().variables, [&](const auto& entry) { return entry.second.module == module; });
        emu::remove_module(module);
    });
}

HIP_API void __hipRegisterFunction(void** handle, const void* host_function, char*, const char* name, unsigned, void*,
                                   void*, dim3*, dim3*, int*)
{
    hip_call("__hipRegisterFunction", Needs::Nothing, [&] {
        emu::Module* module = emu::module_of(handle);
        require(module && emu::is_module(module) && name, hipErrorInvalidValue, "no such fat binary");
        std::lock_guard guard(emu::registry().mutex);
        emu::registry().functions[host_function] = {module, name, 0};
        module->kernels.push_back(name);
    });
}

HIP_API void __hipRegisterVar(void** handle, void* variable, char*, char* name, int, size_t bytes, int, int)
{
    hip_call("__hipRegisterVar", Needs::Nothing, [&] {
        emu::Module* module = emu::module_of(handle);
        require(module && emu::is_module(module) && name, hipErrorInvalidValue, "no such fat binary");
        std::lock_guard guard(emu::registry().mutex);
        emu::registry().variables[variable] = {module, name, bytes};
    });
}

HIP_API void __hipRegisterManagedVar(void* handle, void** pointer, void* initial, const char* name, size_t bytes,
                                     unsigned)
{
    hip_call("__hipRegisterManagedVar", Needs::Nothing, [&] {
        emu::Module* module = emu::module_of(static_cast<void**>(handle));
        require(module && emu::is_module(module) && name && pointer, hipErrorInvalidValue, "no such fat binary");
        void* memory = emu::allocate(bytes, emu::AllocationKind::Managed, name);
        require(memory, hipErrorOutOfMemory, "no room for a managed variable");
        if(initial)
            std::memcpy(memory, initial, bytes);
        *pointer = memory;
        std::lock_guard guard(emu::registry().mutex);
        module->managed.push_back({name, memory});
        emu::registry().variables[pointer] = {module, name, bytes};
    });
}

HIP_API hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t lds_bytes, hipStream_t stream)
{
    return hip_call("__hipPushCallConfiguration", Needs::Nothing,
                    [&] { emu::configurations.push_back({grid, block, lds_bytes, stream}); });
}

HIP_API hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* lds_bytes, hipStream_t* stream)
{
    return hip_call("__hipPopCallConfiguration", Needs::Nothing, [&] {
        require(!emu::configurations.empty(), hipErrorInvalidConfiguration, "nothing was pushed");
        const emu::Configuration top = emu::configurations.back();
        emu::configurations.pop_back();
        *grid      = top.grid;
        *block     = top.block;
        *lds_bytes = top.lds_bytes;
        *stream    = top.stream;
    });
}

// More than the usual LDS needs a request (attribute 8,
// hipFuncAttributeMaxDynamicSharedMemorySize): granted if there is.
HIP_API hipError_t hipFuncSetAttribute(const void* function, int attribute, int value)
{
    return hip_call("hipFuncSetAttribute", Needs::Device, [&] {
        const emu::Kernel& kernel = emu::registered_kernel(function);
        const bool fits =
            value >= 0 && kernel.lds_bytes + static_cast<uint32_t>(value) <= emu::current_arch().lds_bytes;
        require(attribute != 8 || fits, hipErrorInvalidValue, "more LDS than the device has");
    });
}

HIP_API hipError_t hipGetSymbolAddress(void** address, const void* symbol)
{
    return hip_value("hipGetSymbolAddress", Needs::Device, address, [&] { return emu::symbol_range(symbol, 0, 0); });
}

HIP_API hipError_t hipGetSymbolSize(size_t* bytes, const void* symbol)
{
    return hip_value("hipGetSymbolSize", Needs::Device, bytes, [&] {
        return emu::find_registered(emu::registry().variables, symbol, hipErrorInvalidSymbol).bytes;
    });
}

HIP_API hipError_t hipMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, hipMemcpyKind)
{
    return hip_call("hipMemcpyToSymbol", Needs::Device, [&] {
        require(from || bytes == 0, hipErrorInvalidValue, "null pointer");
        emu::refuse_synchronous();
        std::memmove(emu::symbol_range(symbol, bytes, offset), from, bytes);
    });
}

HIP_API hipError_t hipMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, hipMemcpyKind)
{
    return hip_call("hipMemcpyFromSymbol", Needs::Device, [&] {
        require(to || bytes == 0, hipErrorInvalidValue, "null pointer");
        emu::refuse_synchronous();
        std::memmove(to, emu::symbol_range(symbol, bytes, offset), bytes);
    });
}

HIP_API hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream);

static hipError_t address_in_symbol(const char* function, void** address, const void* symbol, size_t bytes,
                                    size_t offset)
{
    return hip_call(function, Needs::Device, [&] { *address = emu::symbol_range(symbol, bytes, offset); });
}

HIP_API hipError_t hipMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes, size_t offset,
                                          hipMemcpyKind kind, hipStream_t stream)
{
    void* to               = nullptr;
    const hipError_t error = address_in_symbol("hipMemcpyToSymbolAsync", &to, symbol, bytes, offset);
    return error == hipSuccess ? hipMemcpyAsync(to, from, bytes, kind, stream) : error;
}

HIP_API hipError_t hipMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset,
                                            hipMemcpyKind kind, hipStream_t stream)
{
    void* from             = nullptr;
    const hipError_t error = address_in_symbol("hipMemcpyFromSymbolAsync", &from, symbol, bytes, offset);
    return error == hipSuccess ? hipMemcpyAsync(to, from, bytes, kind, stream) : error;
}

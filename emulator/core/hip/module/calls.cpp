// Modules loaded by hand, their functions and variables, and launches through either door.
#include "hip/call.h"
#include "hip/graph/capture.h"
#include "hip/launch/launch.h"
#include "hip/module/modules.h"
#include "run/options.h"
#include "standalone/filter.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>
#include <stdexcept>

struct ihipModuleSymbol_t
{
    emu::Module* module;
    const emu::Kernel* kernel;
};

namespace emu {
namespace {
struct Functions
{
    std::mutex mutex;
    std::set<hipFunction_t> live;
};

Functions& functions()
{
    static Functions& only = *new Functions;
    return only;
}

Module& module_of(hipModule_t handle)
{
    auto* module = reinterpret_cast<Module*>(handle);
    require(module && is_module(module), hipErrorInvalidHandle, "not a loaded module");
    return *module;
}

// Checks everything at once, as hipModuleLoad does, and not when first used.
void finish_load(Module& module, hipModule_t* handle)
{
    try
    {
        program_of(module);
    }
    catch(...)
    {
        remove_module(&module);
        throw;
    }
    *handle = reinterpret_cast<hipModule_t>(&module);
}

std::vector<unsigned char> read_file(const char* path)
{
    std::FILE* file = std::fopen(path, "rb");
    if(!file)
        throw HipFailure(hipErrorFileNotFound, std::string("cannot open ") + path);
    std::vector<unsigned char> bytes;
    unsigned char block[65536];
    for(size_t got; (got = std::fread(block, 1, sizeof block, file)) > 0;)
        bytes.insert(bytes.end(), block, block + got);
    std::fclose(file);
    return bytes;
}

// The arguments of a kernel as one block of bytes: given one by one, or as
// HIP_LAUNCH_PARAM_BUFFER_POINTER (1) and HIP_LAUNCH_PARAM_BUFFER_SIZE (2), ended by
// HIP_LAUNCH_PARAM_END (3). ROCm's runtime takes a block that is shorter than the kernel's
// arguments, and AITER's host code gives such blocks: the dwords after it are 0 here.
std::vector<unsigned char> packed(const Kernel& kernel, void** arguments, void** extra)
{
    size_t bytes = 0;
    for(const ExplicitArgument& argument : kernel.arguments)
        bytes = std::max<size_t>(bytes, argument.offset + argument.bytes);
    std::vector<unsigned char> block(bytes);
    if(bytes == 0)
        return block;
    if(arguments)
    {
        for(size_t i = 0; i < kernel.arguments.size(); ++i)
        {
            require(arguments[i], hipErrorInvalidValue, "a kernel argument's pointer is null");
            std::memcpy(block.data() + kernel.arguments[i].offset, arguments[i], kernel.arguments[i].bytes);
        }
        return block;
    }
    require(extra, hipErrorInvalidValue, "the kernel takes arguments, none were given");
    const void* buffer  = nullptr;
    const size_t* given = nullptr;
    for(int i = 0; i < 4 && reinterpret_cast<uintptr_t>(extra[i]) != 3; i += 2)
    {
        if(reinterpret_cast<uintptr_t>(extra[i]) == 1)
            buffer = extra[i + 1];
        else if(reinterpret_cast<uintptr_t>(extra[i]) == 2)
            given = static_cast<const size_t*>(extra[i + 1]);
    }
    require(buffer && given, hipErrorInvalidValue, "a block of arguments without its size");
    std::memcpy(block.data(), buffer, std::min(*given, bytes));
    return block;
}

void check_sizes(const Kernel& kernel, dim3 grid, dim3 block)
{
    const auto size = [](dim3 d) {
        return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
    };
    const auto refuse = [&](const char* why) {
        throw HipFailure(hipErrorInvalidConfiguration,
                         kernel.name + ": grid " + size(grid) + ", block " + size(block) + ": " + why);
    };
    const uint64_t threads = uint64_t{block.x} * block.y * block.z;
    if(grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0)
        refuse("a size is 0");
    if(block.x > 1024 || block.y > 1024 || block.z > 1024 || threads > 1024)
        refuse("a workgroup has at most 1024 threads");
    if(kernel.max_workgroup && threads > kernel.max_workgroup)
        refuse(("the kernel was compiled for " + std::to_string(kernel.max_workgroup) + " threads").c_str());
    if(uint64_t{grid.x} * block.x > UINT32_MAX || uint64_t{grid.y} * block.y > UINT32_MAX ||
       uint64_t{grid.z} * block.z > UINT32_MAX || grid.y > 65536 || grid.z > 65536)
        refuse("the grid is too large");
}

// Workgroups that are on the compute units at once.
uint64_t held_at_once(const Kernel& kernel, const dim3& block, size_t dynamic_lds)
{
    const int threads = static_cast<int>(block.x * block.y * block.z);
    return static_cast<uint64_t>(resident_workgroups(kernel, threads, dynamic_lds)) *
           static_cast<uint64_t>(options().cu_count);
}

// A cooperative launch needs all workgroups at once.
void check_residency(const Kernel& kernel, const LaunchRequest& request)
{
    const uint64_t held   = held_at_once(kernel, request.block, request.dynamic_lds);
    const uint64_t wanted = uint64_t{request.grid.x} * request.grid.y * request.grid.z;
    if(wanted > held)
        throw HipFailure(hipErrorCooperativeLaunchTooLarge, kernel.name + ": " + std::to_string(wanted) +
                                                                " workgroups; the device holds " +
                                                                std::to_string(held) + " at once");
}
} // namespace

const Kernel& module_kernel(hipFunction_t function)
{
    std::lock_guard guard(functions().mutex);
    require(functions().live.count(function), hipErrorInvalidHandle, "not a function of a loaded module");
    return *function->kernel;
}

hipFunction_t function_of(const Kernel& kernel)
{
    std::lock_guard guard(functions().mutex);
    for(const hipFunction_t function : functions().live)
        if(function->kernel == &kernel)
            return function;
    return *functions().live.insert(new ihipModuleSymbol_t{nullptr, &kernel}).first;
}

bool is_module_function(const void* function)
{
    std::lock_guard guard(functions().mutex);
    return functions().live.count(reinterpret_cast<hipFunction_t>(const_cast<void*>(function))) != 0;
}

const Kernel& kernel_of_function(const void* function)
{
    return is_module_function(function) ? module_kernel(reinterpret_cast<hipFunction_t>(const_cast<void*>(function)))
                                        : registered_kernel(function);
}

KernelNode prepared_launch(const LaunchRequest& request, void** arguments, void** extra)
{
    const Kernel& kernel = kernel_of_function(request.function);
    check_sizes(kernel, request.grid, request.block);
    const uint64_t lds = kernel.lds_bytes + uint64_t{request.dynamic_lds};
    if(lds > current_arch().lds_bytes || request.dynamic_lds > UINT32_MAX)
        throw HipFailure(request.cooperative ? hipErrorCooperativeLaunchTooLarge : hipErrorLaunchOutOfResources,
                         kernel.name + ": " + std::to_string(lds) + " bytes of LDS; " + current_arch().processor +
                             " has " + std::to_string(current_arch().lds_bytes));
    if(request.cooperative)
        check_residency(kernel, request);
    return {request.function,    request.grid,
            request.block,       static_cast<uint32_t>(request.dynamic_lds),
            request.cooperative, packed(kernel, arguments, extra)};
}

void launch_kernel(const LaunchRequest& request, hipStream_t stream, void** arguments, void** extra)
{
    std::lock_guard lock(device_mutex()); // no unloading meanwhile
    const auto prepared = [&] { return prepared_launch(request, arguments, extra); };
    if(!captured(stream, prepared))
        run_kernel(prepared());
}

void run_kernel(const KernelNode& node)
{
    std::lock_guard lock(device_mutex());
    const Kernel& kernel = kernel_of_function(node.function);
    Fault internal;
    try
    {
        const LaunchChecks checks(kernel.name);
        if(Operation* const now = current_operation())
            now->name = "kernel " + readable_name(kernel.name);
        launch(kernel, {node.grid.x, node.grid.y, node.grid.z}, {node.block.x, node.block.y, node.block.z},
               node.dynamic_lds, node.arguments.data(), node.arguments.size(), stack_limit(),
               held_at_once(kernel, node.block, node.dynamic_lds), node.cooperative ? Together::Yes : Together::No);
        return;
    }
    catch(LaunchFault& fault)
    {
        internal = fault.fault();
    }
    catch(const std::invalid_argument& refusal)
    {
        throw HipFailure(hipErrorInvalidConfiguration, kernel.name + ": " + refusal.what());
    }
    catch(const std::exception& failure)
    {
        internal.kind   = FaultKind::Internal;
        internal.detail = failure.what();
    }
    if(internal.kernel.empty())
        internal.kernel = kernel.name;
    record_fault(internal);
    Fault first;
    last_fault(&first);
    throw HipFailure(fault_status(), fault_message(first));
}
} // namespace emu

using emu::module_of;

HIP_API hipError_t hipModuleLoadData(hipModule_t* module, const void* image)
{
    return hip_call("hipModuleLoadData", Needs::Device, [&] {
        require(module && image, hipErrorInvalidValue, "null pointer");
        *module = nullptr;
        emu::finish_load(emu::add_module_at(image, true, ""), module);
    });
}

HIP_API hipError_t hipModuleLoadDataEx(hipModule_t* module, const void* image, unsigned, int*, void**)
{
    return hipModuleLoadData(module, image);
}

HIP_API hipError_t hipModuleLoad(hipModule_t* module, const char* path)
{
    return hip_call("hipModuleLoad", Needs::Device, [&] {
        require(module && path, hipErrorInvalidValue, "null pointer");
        *module          = nullptr;
        const auto bytes = emu::read_file(path);
        emu::finish_load(emu::add_module(bytes.data(), bytes.size(), true, path), module);
    });
}

HIP_API hipError_t hipModuleUnload(hipModule_t handle)
{
    return hip_call("hipModuleUnload", Needs::Nothing, [&] {
        std::lock_guard lock(emu::device_mutex());
        emu::Module& module = module_of(handle);
        std::lock_guard guard(emu::functions().mutex);
        auto& live = emu::functions().live;
        for(auto function = live.begin(); function != live.end();)
        {
            hipFunction_t that = *function;
            function           = that->module == &module ? live.erase(function) : std::next(function);
            if(that->module == &module)
                delete that;
        }
        emu::remove_module(&module);
    });
}

HIP_API hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t handle, const char* name)
{
    return hip_call("hipModuleGetFunction", Needs::Device, [&] {
        require(function && name, hipErrorInvalidValue, "null pointer");
        emu::Module& module = module_of(handle);
        auto* made          = new ihipModuleSymbol_t{&module, &emu::kernel_of(module, name)};
        std::lock_guard guard(emu::functions().mutex);
        emu::functions().live.insert(made);
        *function = made;
    });
}

HIP_API hipError_t hipModuleGetGlobal(hipDeviceptr_t* address, size_t* bytes, hipModule_t handle, const char* name)
{
    return hip_call("hipModuleGetGlobal", Needs::Device, [&] {
        require(name, hipErrorInvalidValue, "null pointer");
        const emu::Symbol& symbol = emu::variable_of(module_of(handle), name);
        if(address)
            *address = reinterpret_cast<void*>(symbol.address);
        if(bytes)
            *bytes = symbol.bytes;
    });
}

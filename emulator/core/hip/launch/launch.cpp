// Launches of registered kernels and of modules' functions, plain and cooperative.
#include "hip/launch/launch.h"

#include "hip/call.h"
#include "hip/launch/stream.h"

HIP_API hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);

// hipLaunchConfig_t and what of hipLaunchAttribute is read.
struct LaunchAttribute
{
    int id;
    char gap[4];
    union
    {
        char whole[64];
        int cooperative;
    };
};
struct LaunchConfiguration
{
    dim3 grid, block;
    size_t dynamic_lds;
    hipStream_t stream;
    LaunchAttribute* attributes;
    unsigned attribute_count;
};
static hipError_t launch_call(const char* name, const emu::LaunchRequest& request, hipStream_t stream, void** arguments,
                              void** extra)
{
    return hip_call(name, Needs::Device, [&] { emu::launch_kernel(request, stream, arguments, extra); });
}

static hipError_t module_launch(const char* name, hipFunction_t function, const emu::LaunchRequest& request,
                                hipStream_t stream, void** arguments, void** extra)
{
    return hip_call(name, Needs::Device, [&] {
        require(emu::is_module_function(function), hipErrorInvalidHandle, "not a function of a loaded module");
        emu::launch_kernel(request, stream, arguments, extra);
    });
}

// A launch between two events, either of which may be missing.
template <typename Launch>
static hipError_t between_events(hipEvent_t start, hipEvent_t stop, hipStream_t stream, Launch&& launch)
{
    if(start && hipEventRecord(start, stream) != hipSuccess)
        return hipErrorInvalidHandle;
    const hipError_t launched = launch();
    return launched == hipSuccess && stop ? hipEventRecord(stop, stream) : launched;
}

HIP_API hipError_t hipLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t lds_bytes,
                                   hipStream_t stream)
{
    return launch_call("hipLaunchKernel", {function, grid, block, lds_bytes}, stream, arguments, nullptr);
}

HIP_API hipError_t hipLaunchKernelExC(const LaunchConfiguration* configuration, const void* function, void** arguments)
{
    constexpr int COOPERATIVE = 2; // hipLaunchAttributeCooperative
    if(!configuration)
        return hipErrorInvalidConfiguration;
    emu::LaunchRequest request{function, configuration->grid, configuration->block, configuration->dynamic_lds};
    for(unsigned i = 0; i < configuration->attribute_count; ++i)
        if(configuration->attributes[i].id == COOPERATIVE)
            request.cooperative = configuration->attributes[i].cooperative != 0;
    return launch_call("hipLaunchKernelExC", request, configuration->stream, arguments, nullptr);
}

HIP_API hipError_t hipExtLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t lds_bytes,
                                      hipStream_t stream, hipEvent_t start, hipEvent_t stop, int)
{
    return between_events(start, stop, stream,
                          [&] { return hipLaunchKernel(function, grid, block, arguments, lds_bytes, stream); });
}

// Parameters and arguments of three sizes, of grid, block or threads.
#define SIZES(of)  unsigned of##_x, unsigned of##_y, unsigned of##_z
#define PASSED(of) of##_x, of##_y, of##_z

HIP_API hipError_t hipModuleLaunchKernel(hipFunction_t function, SIZES(grid), SIZES(block), unsigned lds_bytes,
                                         hipStream_t stream, void** arguments, void** extra)
{
    return module_launch("hipModuleLaunchKernel", function, {function, {PASSED(grid)}, {PASSED(block)}, lds_bytes},
                         stream, arguments, extra);
}

// Sizes in threads, as OpenCL has them. A grid has whole workgroups only.
HIP_API hipError_t hipExtModuleLaunchKernel(hipFunction_t function, SIZES(threads), SIZES(block), size_t lds_bytes,
                                            hipStream_t stream, void** arguments, void** extra, hipEvent_t start,
                                            hipEvent_t stop, unsigned)
{
    const bool whole = block_x && block_y && block_z && threads_x % block_x == 0 && threads_y % block_y == 0 &&
                       threads_z % block_z == 0;
    if(!whole || lds_bytes > UINT32_MAX)
        return hip_call("hipExtModuleLaunchKernel", Needs::Device, [] {
            throw emu::HipFailure(hipErrorInvalidConfiguration,
                                  "the sizes are not of whole workgroups, or too much LDS");
        });
    return between_events(start, stop, stream, [&] {
        return hipModuleLaunchKernel(function, threads_x / block_x, threads_y / block_y, threads_z / block_z,
                                     PASSED(block), static_cast<unsigned>(lds_bytes), stream, arguments, extra);
    });
}

HIP_API hipError_t hipHccModuleLaunchKernel(hipFunction_t function, SIZES(threads), SIZES(block), size_t lds_bytes,
                                            hipStream_t stream, void** arguments, void** extra, hipEvent_t start,
                                            hipEvent_t stop)
{
    return hipExtModuleLaunchKernel(function, PASSED(threads), PASSED(block), lds_bytes, stream, arguments, extra,
                                    start, stop, 0);
}

// Headers of earlier releases declare both as C++ functions: programs import these names, too.
#define CPLUSPLUS_NAME(function, mangled) \
    __attribute__((visibility("default"), alias(#function))) decltype(function) cplusplus_##function __asm__(mangled);
CPLUSPLUS_NAME(hipExtModuleLaunchKernel,
               "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_"
               "P11ihipEvent_tS6_j")
CPLUSPLUS_NAME(hipHccModuleLaunchKernel,
               "_Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_"
               "P11ihipEvent_tS6_")

HIP_API hipError_t hipLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                              unsigned lds_bytes, hipStream_t stream)
{
    return launch_call("hipLaunchCooperativeKernel", {function, grid, block, lds_bytes, true}, stream, arguments,
                       nullptr);
}

HIP_API hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t function, SIZES(grid), SIZES(block),
                                                    unsigned lds_bytes, hipStream_t stream, void** arguments)
{
    return module_launch("hipModuleLaunchCooperativeKernel", function,
                         {function, {PASSED(grid)}, {PASSED(block)}, lds_bytes, true}, stream, arguments, nullptr);
}

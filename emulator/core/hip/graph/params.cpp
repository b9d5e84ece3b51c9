// What nodes do, asked and changed: in a graph, or in one that was instantiated.
#include "hip/call.h"
#include "hip/graph/graph.h"
#include "hip/launch/launch.h"
#include "hip/launch/stream.h"

namespace emu {
namespace {
// The part of a node's parameters that a function is about.
template <typename Part>
Part& part(hipGraphNode& node)
{
    Part* const that = std::get_if<Part>(&node.params);
    require(that, hipErrorInvalidValue, "the node is of another kind");
    return *that;
}

template <typename Part, typename Out>
hipError_t get_params(const char* function, hipGraphNode_t node, Out* out)
{
    return hip_call(function, Needs::Device, [&] {
        require(out, hipErrorInvalidValue, "null pointer");
        *out = part<Part>(node_of(node));
    });
}

template <typename Part, typename In>
hipError_t set_params(const char* function, hipGraphNode_t node, const In* in)
{
    return hip_call(function, Needs::Device, [&] {
        require(in, hipErrorInvalidValue, "null pointer");
        part<Part>(node_of(node)) = *in;
    });
}

// The same of an instantiated graph's copy of the node.
template <typename Part, typename In>
hipError_t set_exec_params(const char* function, hipGraphExec_t exec, hipGraphNode_t node, const In* in)
{
    return hip_call(function, Needs::Device, [&] {
        require(in, hipErrorInvalidValue, "null pointer");
        part<Part>(copied_node(*exec_of(exec).graph, node_of(node))) = *in;
    });
}

void set_kernel(hipGraphNode& node, const hipKernelNodeParams* params)
{
    require(params && params->func, hipErrorInvalidValue, "null pointer");
    KernelNode& that = part<KernelNode>(node);
    that = prepared_launch({params->func, params->gridDim, params->blockDim, params->sharedMemBytes, that.cooperative},
                           params->kernelParams, params->extra);
}
} // namespace
} // namespace emu

using emu::copied_node;
using emu::exec_of;
using emu::node_of;

HIP_API hipError_t hipGraphKernelNodeGetParams(hipGraphNode_t node, hipKernelNodeParams* out)
{
    return hip_call("hipGraphKernelNodeGetParams", Needs::Device, [&] {
        require(out, hipErrorInvalidValue, "null pointer");
        hipGraphNode& that        = node_of(node);
        emu::KernelNode& launch   = emu::part<emu::KernelNode>(that);
        const emu::Kernel& kernel = emu::kernel_of_function(launch.function);
        that.argument_pointers.clear();
        for(const emu::ExplicitArgument& argument : kernel.arguments)
            that.argument_pointers.push_back(launch.arguments.data() + argument.offset);
        *out = {
            launch.block,      nullptr, const_cast<void*>(launch.function), launch.grid, that.argument_pointers.data(),
            launch.dynamic_lds};
    });
}

HIP_API hipError_t hipGraphKernelNodeSetParams(hipGraphNode_t node, const hipKernelNodeParams* params)
{
    return hip_call("hipGraphKernelNodeSetParams", Needs::Device, [&] { emu::set_kernel(node_of(node), params); });
}

HIP_API hipError_t hipGraphExecKernelNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                                   const hipKernelNodeParams* params)
{
    return hip_call("hipGraphExecKernelNodeSetParams", Needs::Device,
                    [&] { emu::set_kernel(copied_node(*exec_of(exec).graph, node_of(node)), params); });
}

// The functions about the parameters of one kind of nodes.
#define PARAMS_OF(kind, Params)                                                                        \
    HIP_API hipError_t hipGraph##kind##NodeGetParams(hipGraphNode_t node, Params* out)                 \
    {                                                                                                  \
        return emu::get_params<Params>("hipGraph" #kind "NodeGetParams", node, out);                   \
    }                                                                                                  \
    HIP_API hipError_t hipGraph##kind##NodeSetParams(hipGraphNode_t node, const Params* params)        \
    {                                                                                                  \
        return emu::set_params<Params>("hipGraph" #kind "NodeSetParams", node, params);                \
    }                                                                                                  \
    HIP_API hipError_t hipGraphExec##kind##NodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,     \
                                                         const Params* params)                         \
    {                                                                                                  \
        return emu::set_exec_params<Params>("hipGraphExec" #kind "NodeSetParams", exec, node, params); \
    }
PARAMS_OF(Memcpy, hipMemcpy3DParms)
PARAMS_OF(Memset, hipMemsetParams)
PARAMS_OF(Host, hipHostNodeParams)

HIP_API hipError_t hipGraphMemcpyNodeSetParams1D(hipGraphNode_t node, void* to, const void* from, size_t bytes,
                                                 hipMemcpyKind kind)
{
    const hipMemcpy3DParms params = emu::line(to, from, bytes, kind);
    return emu::set_params<hipMemcpy3DParms>("hipGraphMemcpyNodeSetParams1D", node, &params);
}

HIP_API hipError_t hipGraphExecMemcpyNodeSetParams1D(hipGraphExec_t exec, hipGraphNode_t node, void* to,
                                                     const void* from, size_t bytes, hipMemcpyKind kind)
{
    const hipMemcpy3DParms params = emu::line(to, from, bytes, kind);
    return emu::set_exec_params<hipMemcpy3DParms>("hipGraphExecMemcpyNodeSetParams1D", exec, node, &params);
}

// The functions about the event of one kind of nodes.
#define EVENT_OF(kind)                                                                                              \
    HIP_API hipError_t hipGraphEvent##kind##NodeGetEvent(hipGraphNode_t node, hipEvent_t* event)                    \
    {                                                                                                               \
        return hip_value("hipGraphEvent" #kind "NodeGetEvent", Needs::Device, event,                                \
                         [&] { return emu::part<emu::Event##kind##Node>(node_of(node)).event; });                   \
    }                                                                                                               \
    HIP_API hipError_t hipGraphEvent##kind##NodeSetEvent(hipGraphNode_t node, hipEvent_t event)                     \
    {                                                                                                               \
        const emu::Event##kind##Node params{event};                                                                 \
        return event ? emu::set_params<emu::Event##kind##Node>("hipGraphEvent" #kind "NodeSetEvent", node, &params) \
                     : hipErrorInvalidValue;                                                                        \
    }
EVENT_OF(Record)
EVENT_OF(Wait)

static hipError_t enabled_call(const char* function, hipGraphExec_t exec, hipGraphNode_t node,
                               void (*use)(bool& enabled, unsigned* value), unsigned* value)
{
    return hip_call(function, Needs::Device, [&] {
        require(value, hipErrorInvalidValue, "null pointer");
        hipGraphNode& that = copied_node(*exec_of(exec).graph, node_of(node));
        const int type     = emu::type_of(that.params);
        require(type <= 2, hipErrorInvalidValue, "only kernels, copies and fills can be disabled");
        use(that.enabled, value);
    });
}

HIP_API hipError_t hipGraphNodeSetEnabled(hipGraphExec_t exec, hipGraphNode_t node, unsigned enabled)
{
    const auto set = [](bool& state, unsigned* value) { state = *value != 0; };
    return enabled_call("hipGraphNodeSetEnabled", exec, node, set, &enabled);
}

HIP_API hipError_t hipGraphNodeGetEnabled(hipGraphExec_t exec, hipGraphNode_t node, unsigned* enabled)
{
    const auto get = [](bool& state, unsigned* value) { *value = state; };
    return enabled_call("hipGraphNodeGetEnabled", exec, node, get, enabled);
}

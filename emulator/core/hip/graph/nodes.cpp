// Graphs by hand: making and destroying them, their nodes and edges.
#include "hip/call.h"
#include "hip/graph/graph.h"
#include "hip/launch/launch.h"
#include "hip/launch/stream.h"
#include "hip/memory/memory.h"

#include <algorithm>

namespace emu {
namespace {
// The launch that a node's parameters ask for.
KernelNode kernel_node(const hipKernelNodeParams& params)
{
    return prepared_launch({params.func, params.gridDim, params.blockDim, params.sharedMemBytes}, params.kernelParams,
                           params.extra);
}

template <typename Make>
hipError_t add_node(const char* function, hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* dependencies,
                    size_t count, Make&& make)
{
    return hip_call(function, Needs::Device, [&] {
        require(node, hipErrorInvalidValue, "null pointer");
        *node = &graph_of(graph).add(make(), dependencies, count);
    });
}

template <typename Params>
const Params& given(const Params* params)
{
    require(params, hipErrorInvalidValue, "null parameters");
    return *params;
}
} // namespace
} // namespace emu

using emu::add_node;
using emu::given;
using emu::graph_of;
using emu::node_of;

HIP_API hipError_t hipGetSymbolAddress(void** address, const void* symbol);

// A function that adds a node to a graph, after others. Its own parameters come last.
#define ADD_NODE(name, ...)                                                                             \
    HIP_API hipError_t name(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* dependencies, \
                            size_t count __VA_OPT__(, ) __VA_ARGS__)

HIP_API hipError_t hipGraphCreate(hipGraph_t* graph, unsigned int flags)
{
    return hip_call("hipGraphCreate", Needs::Device, [&] {
        require(graph && flags == 0, hipErrorInvalidValue, "null pointer, or flags");
        *graph = new ihipGraph;
    });
}

HIP_API hipError_t hipGraphDestroy(hipGraph_t graph)
{
    return hip_call("hipGraphDestroy", Needs::Nothing, [&] {
        ihipGraph& that = graph_of(graph);
        require(!that.is_child, hipErrorInvalidValue, "the graph of a node goes with its node");
        delete &that;
    });
}

ADD_NODE(hipGraphAddKernelNode, const hipKernelNodeParams* params)
{
    return add_node("hipGraphAddKernelNode", node, graph, dependencies, count, [&] {
        require(given(params).func, hipErrorInvalidValue, "null function");
        return emu::kernel_node(*params);
    });
}

ADD_NODE(hipGraphAddMemcpyNode, const hipMemcpy3DParms* params)
{
    return add_node("hipGraphAddMemcpyNode", node, graph, dependencies, count, [&] { return given(params); });
}

ADD_NODE(hipGraphAddMemcpyNode1D, void* to, const void* from, size_t bytes, hipMemcpyKind kind)
{
    return add_node("hipGraphAddMemcpyNode1D", node, graph, dependencies, count, [&] {
        require(to && from, hipErrorInvalidValue, "null pointer");
        return emu::line(to, from, bytes, kind);
    });
}

// Where a byte of a device variable is. Throws HipFailure.
static unsigned char* symbol_byte(const void* symbol, size_t offset)
{
    void* address          = nullptr;
    const hipError_t error = hipGetSymbolAddress(&address, symbol);
    require(error == hipSuccess, error, "not a device variable");
    return static_cast<unsigned char*>(address) + offset;
}

ADD_NODE(hipGraphAddMemcpyNodeFromSymbol, void* to, const void* symbol, size_t bytes, size_t offset, hipMemcpyKind kind)
{
    return add_node("hipGraphAddMemcpyNodeFromSymbol", node, graph, dependencies, count,
                    [&] { return emu::line(to, symbol_byte(symbol, offset), bytes, kind); });
}

ADD_NODE(hipGraphAddMemcpyNodeToSymbol, const void* symbol, const void* from, size_t bytes, size_t offset,
         hipMemcpyKind kind)
{
    return add_node("hipGraphAddMemcpyNodeToSymbol", node, graph, dependencies, count,
                    [&] { return emu::line(symbol_byte(symbol, offset), from, bytes, kind); });
}

ADD_NODE(hipGraphAddMemsetNode, const hipMemsetParams* params)
{
    return add_node("hipGraphAddMemsetNode", node, graph, dependencies, count, [&] {
        const unsigned size = given(params).elementSize;
        require(params->dst && (size == 1 || size == 2 || size == 4) && params->height > 0 && params->width > 0,
                hipErrorInvalidValue, "no destination, no elements, or elements that are not of 1, 2 or 4 bytes");
        return *params;
    });
}

ADD_NODE(hipGraphAddHostNode, const hipHostNodeParams* params)
{
    return add_node("hipGraphAddHostNode", node, graph, dependencies, count, [&] {
        require(given(params).fn, hipErrorInvalidValue, "null function");
        return *params;
    });
}

ADD_NODE(hipGraphAddEmptyNode)
{
    return add_node("hipGraphAddEmptyNode", node, graph, dependencies, count, [] { return emu::EmptyNode{}; });
}

ADD_NODE(hipGraphAddEventRecordNode, hipEvent_t event)
{
    return add_node("hipGraphAddEventRecordNode", node, graph, dependencies, count, [&] {
        require(event, hipErrorInvalidValue, "null event");
        return emu::EventRecordNode{&emu::event_of(event)};
    });
}

ADD_NODE(hipGraphAddEventWaitNode, hipEvent_t event)
{
    return add_node("hipGraphAddEventWaitNode", node, graph, dependencies, count, [&] {
        require(event, hipErrorInvalidValue, "null event");
        return emu::EventWaitNode{&emu::event_of(event)};
    });
}

ADD_NODE(hipGraphAddChildGraphNode, hipGraph_t child)
{
    return add_node("hipGraphAddChildGraphNode", node, graph, dependencies, count, [&] {
        require(child != graph, hipErrorInvalidValue, "a graph can't be its own child");
        std::shared_ptr<ihipGraph> copy = graph_of(child).copy();
        copy->is_child                  = true;
        return emu::ChildNode{std::move(copy)};
    });
}

HIP_API hipError_t hipGraphAddDependencies(hipGraph_t graph, const hipGraphNode_t* from, const hipGraphNode_t* to,
                                           size_t count)
{
    return hip_call("hipGraphAddDependencies", Needs::Device, [&] {
        ihipGraph& that = graph_of(graph);
        require(count == 0 || (from && to), hipErrorInvalidValue, "null pointer");
        for(size_t i = 0; i < count; ++i)
        {
            hipGraphNode &first = node_of(from[i]), &second = node_of(to[i]);
            require(first.graph == &that && second.graph == &that, hipErrorInvalidValue, "a node is of another graph");
            require(&first != &second && !emu::has_edge(first, second), hipErrorInvalidValue,
                    "a node that depends on itself, or an edge that is there");
            emu::add_edge(first, second);
        }
    });
}

HIP_API hipError_t hipGraphRemoveDependencies(hipGraph_t graph, const hipGraphNode_t* from, const hipGraphNode_t* to,
                                              size_t count)
{
    return hip_call("hipGraphRemoveDependencies", Needs::Device, [&] {
        ihipGraph& that = graph_of(graph);
        require(count == 0 || (from && to), hipErrorInvalidValue, "null pointer");
        for(size_t i = 0; i < count; ++i)
        {
            hipGraphNode &first = node_of(from[i]), &second = node_of(to[i]);
            require(first.graph == &that && emu::has_edge(first, second), hipErrorInvalidValue, "no such edge");
            std::erase(first.dependents, &second);
            std::erase(second.dependencies, &first);
        }
    });
}

HIP_API hipError_t hipGraphDestroyNode(hipGraphNode_t node)
{
    return hip_call("hipGraphDestroyNode", Needs::Nothing, [&] {
        hipGraphNode& that = node_of(node);
        that.graph->remove(&that);
    });
}
